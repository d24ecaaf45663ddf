"""Runs a system program, such as a batch system's own commands, with limits on time and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from forestay.ports.errors import Permanent, PortError


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended, and its output; bytes that are not UTF-8 are replaced."""

    code: int
    """Its exit code; below zero, the signal that ended it."""
    out: str
    err: str


class Commands(Protocol):
    """The port."""

    async def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 30.0,
    ) -> CommandResult:
        """Run a program until it exits, with `stdin` as its standard input, and return its output.

        Everyone on the host can see arguments: secrets go into `environment`, which is the whole environment (None: our own), or into `stdin`.
        `Transient`: it took longer than `seconds`, or printed more than is read; it and the processes it started were killed, and whether it
        had its effect is unknown. `Permanent`: there is no such program, or it may not be run.
        """
        ...


async def answer_of(
    commands: Commands, command: Sequence[str], *, environment: Mapping[str, str] | None = None, seconds: float = 30.0
) -> CommandResult | None:
    """The output of a read-only program; None when it did not finish. `Permanent`: it cannot be run at all."""
    try:
        return await commands.run(command, environment=environment, seconds=seconds)
    except Permanent:
        raise
    except PortError:
        return None
