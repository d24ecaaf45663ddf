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
        """Run a program to its end, with `given` as its standard input, and return what it said.

        Arguments are seen by everyone on the host: secrets go by the environment, which is the whole of it (None: our own), or by what is given.
        `Transient`: it took longer than `seconds`, or said more than is read; it and what it started are dead, and whether it did what
        it should is not known. `Permanent`: there is no such program, or it may not be run.
        """
        ...


async def answer_of(
    commands: Commands, command: Sequence[str], *, environment: Mapping[str, str] | None = None, seconds: float = 30.0
) -> CommandResult | None:
    """What a program says that only reads; None when it came to no end, so that nobody knows. `Permanent`: it cannot be run at all."""
    try:
        return await commands.run(command, environment=environment, seconds=seconds)
    except Permanent:
        raise
    except PortError:
        return None
