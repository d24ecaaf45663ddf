"""What there is to read until a failure is understood, with and without what Forestay keeps beside the log (paper P4, section 4.4).

Failures of public trackers, each with the cause that a person read from it, are reported to a real server, each behind ordinary output. Nobody is timed: what is counted is text.
*Without*, a person reads the log: all that is kept of it, or, at best, the failure's own lines, as if somebody had pointed to them. *With*, a person reads what `forestay explain` says; nothing
where it is right and trying again by itself helps; and the log as well where the cause is unknown or wrong.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.system.matrix.site import FailureSite, until

from forestay.client import ForestayClient
from forestay.client.api import engine_calls
from forestay.client.api.schemas import NewEvent

RECORDS = Path(__file__).parents[2] / "unit" / "packs"
AHEAD = 60
"""Lines of ordinary output ahead of a failure."""
AT_ONCE = 50
QUOTED, WIDE = 3, 200
"""Lines that `forestay explain` quotes, and how much of each."""
ENGINE = "recorded"


@dataclass(frozen=True)
class Record:
    """A failure that was collected, as a job would have left it."""

    source: str
    log: str
    """The failure's own lines."""
    evidence: Mapping[str, Any]
    """With the ordinary output ahead of it."""
    causes: frozenset[str]
    retry: str


@dataclass(frozen=True)
class Diagnosed:
    """What was on record of one failure, and how much there is to read of it."""

    source: str
    cause: str
    right: bool
    helped: bool
    """The next step is right, too, and needs nobody."""
    explained: int
    """Characters of the explanation."""
    own: int
    """Characters of the failure's own lines."""
    whole: int
    """Characters of the log that is kept."""

    def without(self, *, pointed: bool) -> int:
        return self.own if pointed else self.whole

    def with_metadata(self, *, pointed: bool) -> int:
        if self.right and self.helped:
            return 0
        return self.explained + (0 if self.right else self.without(pointed=pointed))


def records(each: int = 1) -> list[Record]:
    """Every so-manieth record of all collections."""
    chance = random.Random(3)
    ordinary = (RECORDS / "ordinary_output.txt").read_text(encoding="utf-8").splitlines()
    lines = [
        line
        for file in sorted(RECORDS.glob("unseen_*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    records = []
    for line in lines[::each]:
        read: dict[str, Any] = json.loads(line)
        wanted, source = read.pop("expect"), read.pop("source")
        log_tail = read.get("log_tail", "")
        log = log_tail if isinstance(log_tail, str) else "\n".join(log_tail)
        ahead = "\n".join(chance.choice(ordinary) for _ in range(AHEAD))
        evidence = {**read, "log_tail": f"{ahead}\n{log}"}
        records.append(
            Record(source, log, evidence, frozenset({wanted["cause"], *wanted.get("also", [])}), wanted["retry"])
        )
    return records


def diagnose(site: FailureSite, some: Sequence[Record]) -> tuple[list[Diagnosed], list[float]]:
    """Report them all; what was on record of each, and how many seconds each report of some of them took."""
    tenant = site.tenant()
    with (
        site.client(tenant, "engine", subject="engine") as engine,
        site.client(tenant, "operator", "viewer", subject="olga") as operator,
    ):
        names: dict[str, Record] = {}
        seconds = []
        for start in range(0, len(some), AT_ONCE):
            part = some[start : start + AT_ONCE]
            began = time.monotonic()
            answers = engine.send(engine_calls.report(ENGINE, [_event(record) for record in part]))
            seconds.append((time.monotonic() - began) / len(part))
            names |= {str(answer["incident"]): record for answer, record in zip(answers, part, strict=True)}
        assert len(names) == len(some), "every failure is an incident of its own"
        return [_read(operator, name, record) for name, record in names.items()], seconds


def _event(record: Record) -> NewEvent:
    name = uuid4().hex
    return {
        "id": name,
        "run": name,
        "task": "step",
        "kind": "task-aborted",
        "evidence": dict(record.evidence),
        "otherwise": "hold",
    }


def _read(operator: ForestayClient, name: str, record: Record) -> Diagnosed:
    whole: Any = until(lambda: operator.incident(name), "the incident")
    finding: dict[str, Any] = whole["context"].get("finding", {})
    quoted = [str(line)[:WIDE] for line in finding.get("lines", [])[:QUOTED]]
    names = [str(whole["cause"]), str(finding.get("words", "")), str(finding.get("advice", "")), *quoted]
    right = whole["cause"] in record.causes
    return Diagnosed(
        record.source,
        str(whole["cause"]),
        right,
        right and record.retry != "no" and finding.get("retry") == record.retry,
        sum(map(len, names)),
        len(record.log),
        len(str(record.evidence["log_tail"])),
    )


def summary(diagnosed: Sequence[Diagnosed], seconds: Sequence[float]) -> dict[str, Any]:
    """Means over all of them."""
    result: dict[str, Any] = {
        "records": len(diagnosed),
        "right": sum(other_diagnosed.right for other_diagnosed in diagnosed) / len(diagnosed),
        "unknown": sum(other_diagnosed.cause == "unknown" for other_diagnosed in diagnosed) / len(diagnosed),
        "nothing to read": sum(other_diagnosed.right and other_diagnosed.helped for other_diagnosed in diagnosed)
        / len(diagnosed),
        "seconds until on record": sum(seconds) / len(seconds),
    }
    for word, pointed in (("log", False), ("own lines", True)):
        without = sum(other_diagnosed.without(pointed=pointed) for other_diagnosed in diagnosed) / len(diagnosed)
        with_it = sum(other_diagnosed.with_metadata(pointed=pointed) for other_diagnosed in diagnosed) / len(diagnosed)
        result[word] = {"without": without, "with": with_it}
    return result
