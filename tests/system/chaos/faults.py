"""What the campaign did to whom, and when: written down as it happens, read by the auditor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FOR_EVER = float("inf")


@dataclass(slots=True)
class Fault:
    """One fault. Times are seconds since 1970; one that has not ended yet lasts for ever."""

    kind: str
    """`kill`, `stop`, `cut`, `lose`, `down`, `crash`, `err`."""
    what: str
    """`pilot`, `server`, `reconciler`, `node`, `store`."""
    who: str
    began: float
    ended: float = FOR_EVER
    detail: str = ""

    def touches(self, first: float, last: float) -> bool:
        return self.began <= last and self.ended >= first


class FaultLog:
    """All faults of a campaign, also as a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.faults: list[Fault] = []

    def begin(self, kind: str, what: str, who: str, detail: str = "") -> Fault:
        fault = Fault(kind, what, who, time.time(), detail=detail)
        self.faults.append(fault)
        self._write(fault)
        return fault

    def end(self, fault: Fault, *, at: float | None = None) -> None:
        fault.ended = time.time() if at is None else at
        self._write(fault)

    def moment(self, kind: str, what: str, who: str, detail: str = "") -> Fault:
        """A fault that is over at once."""
        fault = self.begin(kind, what, who, detail)
        self.end(fault, at=fault.began)
        return fault

    def of(self, *, kind: str | None = None, what: Iterable[str] = ()) -> Iterator[Fault]:
        wanted = set(what)
        for fault in self.faults:
            if (kind is None or fault.kind == kind) and (not wanted or fault.what in wanted):
                yield fault

    def _write(self, fault: Fault) -> None:
        line = asdict(fault)
        line["ended"] = None if fault.ended == FOR_EVER else fault.ended
        with self._path.open("a") as lines:
            lines.write(json.dumps(line) + "\n")


def read_faults(path: Path) -> list[Fault]:
    """All faults in the order in which they began; of each the last that was written."""
    faults: dict[tuple[str, str, str, float], Fault] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        ended = line.pop("ended")
        fault = Fault(**line, ended=FOR_EVER if ended is None else ended)
        faults[fault.kind, fault.what, fault.who, fault.began] = fault
    return list(faults.values())
