"""The checker's verdict on a history, and the lines that tell it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import orjson

_BUILD = Path(__file__).parent / "checker" / "build"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found."""

    verdict: str
    operations: int
    documents: int
    acknowledged: int
    conflicted: int
    conflicted_effective: int
    unknown: int
    unknown_effective: int
    reads: int
    stale_reads: int
    dirty_reads: int
    violations: tuple[str, ...]
    undecided: tuple[str, ...]
    seconds: float

    @property
    def sound(self) -> bool:
        return self.verdict == "OK"

    def line(self, name: str, kills: int) -> str:
        """The verdict in one line."""
        word = {"OK": "linearizable", "VIOLATION": "NOT LINEARIZABLE"}.get(self.verdict, "NOT DECIDED")
        return (
            f"{name}: {self.operations} operations on {self.documents} documents, {kills} kills, "
            f"{self.acknowledged} acknowledged writes: {word}; "
            f"{self.conflicted} conflicts of which {self.conflicted_effective} had taken effect; "
            f"{self.unknown} unknown of which {self.unknown_effective} had taken effect; "
            f"{self.stale_reads} stale and {self.dirty_reads} dirty of {self.reads} reads"
        )


def total(verdicts: list[Verdict]) -> Verdict:
    """Several verdicts as one: the worst word, and the sums."""
    worst = "OK"
    for word in ("UNDECIDED", "VIOLATION"):
        if any(verdict.verdict == word for verdict in verdicts):
            worst = word
    sums = {
        field.name: sum((getattr(verdict, field.name) for verdict in verdicts[1:]), getattr(verdicts[0], field.name))
        for field in fields(Verdict)
        if field.name != "verdict"
    }
    return Verdict(verdict=worst, **sums)


@cache
def checker() -> Path:
    """The built checker; its own tests have passed if it is there."""
    return Path(subprocess.run([_BUILD], check=True, text=True, stdout=subprocess.PIPE).stdout.strip())


def judge(history: Path, *, timeout: str = "2m") -> Verdict:
    """Let the checker judge a history. Pictures of what is wrong are put beside it."""
    summary = history.with_suffix(".json")
    summary.unlink(missing_ok=True)
    command: list[str | Path] = [checker(), "-timeout", timeout, "-pictures", history.parent, "-json", summary, history]
    done = subprocess.run(command, check=False, text=True, capture_output=True)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"the checker gave up on {history}: {done.stderr}")
    facts = orjson.loads(summary.read_bytes())
    facts |= {name: tuple(facts[name]) for name in ("violations", "undecided")}
    return Verdict(**facts)
