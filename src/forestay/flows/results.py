"""What awaiting a job returns or raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class JobFailed(Exception):
    """A job, or too many of a scatter, failed after its last attempt, or someone removed it. Catch it like any exception; if uncaught, the run fails."""

    def __init__(self, task: str, reason: str, *, exit_code: int | None = None, bad: int = 1, count: int = 1) -> None:
        super().__init__(f"{task}: {reason}" if reason else task)
        self.task = task
        self.reason = reason
        self.exit_code = exit_code
        self.bad = bad
        self.count = count


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a job, to be used in the commands and inputs of others; the file's location is filled in when those begin."""

    task: str
    name: str

    def __str__(self) -> str:
        return f"${{tasks.{self.task}.outputs.{self.name}}}"


@dataclass(frozen=True, slots=True)
class Outputs(Mapping[str, str]):
    """The outputs of a job by name, as texts that refer to the files."""

    task: str
    names: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> str:
        if name not in self.names:
            raise KeyError(f"{self.task} has no output {name!r}; it has {', '.join(self.names) or 'none'}")
        return str(Output(self.task, name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a job, or of all jobs of a scatter, that succeeded."""

    task: str
    state: str = "completed"
    """``completed``; ``forced_complete`` or ``skipped`` if a person said so, and then there is no result."""
    result: Any = None
    """The content of the job's result file."""
    results: tuple[Any, ...] = ()
    """For a scatter of at most 500 jobs with a result file: the content of each, in order; ``None`` for a failed one."""
    exit_code: int | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)
    well: int = 1
    bad: int = 0
    count: int = 1
