"""Reads records of past jobs, determines the causes of failures, and sums up what they cost."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.domain.exceptions.incidents.retry_policy import with_verdict
from forestay.domain.rules.lost_hours import FIELDS, Loss, LostHours, PastRule
from forestay.domain.rules.plain_condition import whole_condition
from forestay.formats.accounting.condor_history import read_condor_history
from forestay.formats.accounting.nextflow import ReadLog, read_log_file, read_trace
from forestay.formats.accounting.past_log import read_tail
from forestay.formats.accounting.sacct import read_sacct
from forestay.formats.accounting.snakemake import read_snakemake
from forestay.formats.rules.rule_file import read_rule_file, starter_rules

CHUNK = 1 << 20
KNOWN = 50_000
"""The number of findings that are cached: most failures without a log are alike."""
FAR = 0.9
"""Below this share of a limit no pattern depends on the value."""
NEAR_END = 120.0
TOP = 20
"""The number of owners and hosts that a report names."""


Attempts = Iterable[PastAttempt]


class SourceKind(StrEnum):
    """Who recorded it."""

    SACCT = "sacct"
    CONDOR = "condor_history"
    TRACE = "Nextflow trace"
    NEXTFLOW_LOG = "Nextflow log"
    SNAKEMAKE = "Snakemake log"


class UnknownSource(ValueError):
    """A file in a format that no reader supports."""


def kind_of(path: Path) -> SourceKind:
    """The kind of a file, by its first lines."""
    with path.open(encoding="utf-8", errors="replace") as file:
        head = file.read(4096)
    first = head.partition("\n")[0]
    if "|" in first and {"JobID", "State"} <= set(re.split(r"[|\n]", first)):
        return SourceKind.SACCT
    if "\t" in first and {"hash", "status", "name"} <= set(first.split("\t")):
        return SourceKind.TRACE
    if head.lstrip()[:1] in ("[", "{") and '"ClusterId"' in head:
        return SourceKind.CONDOR
    if re.match(r"[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d\.\d{3} \[", head):
        return SourceKind.NEXTFLOW_LOG
    if path.name.endswith(".snakemake.log") or "Building DAG of jobs" in head:
        return SourceKind.SNAKEMAKE
    raise UnknownSource(
        f"{path} is none of: sacct --parsable2 with its heading, condor_history -json, a Nextflow trace or log, a Snakemake log"
    )


def find_files(folder: Path) -> list[Path]:
    """The traces and logs of engines in a folder, where they put them."""
    names = (
        "trace*.txt",
        "*trace*.tsv",
        "pipeline_info/*trace*.txt",
        ".nextflow.log*",
        ".snakemake/log/*.snakemake.log",
    )
    paths = {path for name in names for path in folder.glob(name) if path.is_file()}
    return sorted(path for path in paths if _is_known(path))


def _is_known(path: Path) -> bool:
    try:
        kind_of(path)
    except (OSError, UnknownSource):
        return False
    return True


def read_file(path: Path, *, logs: bool = True) -> Iterator[PastAttempt]:
    """The attempts in a file of any kind."""
    kind = kind_of(path)
    known = path.stat()
    read_log: ReadLog = read_tail if logs else lambda *_: ""
    owner = _user(known.st_uid)
    with path.open(encoding="utf-8", errors="replace") as file:
        if kind is SourceKind.SACCT:
            yield from read_sacct(file, read_log=read_log)
        elif kind is SourceKind.CONDOR:
            yield from read_condor_history(iter(lambda: file.read(CHUNK), ""), read_log=read_log)
        elif kind is SourceKind.TRACE:
            yield from read_trace(file, owner, read_log=read_log)
        elif kind is SourceKind.NEXTFLOW_LOG:
            year = datetime.fromtimestamp(known.st_mtime, UTC).year
            yield from read_log_file(file, owner, year, read_log=read_log)
        else:
            yield from read_snakemake(file, owner, read_log=read_log)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


class PastCauses:
    """Causes of past failures; one that is like another is not classified again."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self._known: dict[tuple[object, ...], CauseFinding] = {}

    def of(self, evidence: Evidence) -> CauseFinding:
        if evidence.log_tail:
            return with_verdict(self._classifier.classify(evidence), evidence)
        key = _alike(evidence)
        finding = self._known.get(key)
        if finding is None:
            bare = replace(evidence, node="", more={})
            finding = with_verdict(self._classifier.classify(bare), bare)
            if len(self._known) < KNOWN:
                self._known[key] = finding
        return finding


def _alike(evidence: Evidence) -> tuple[object, ...]:
    peak, limit, wall, most = evidence.peak_memory, evidence.memory_limit, evidence.wall_time, evidence.time_limit
    memory = peak / limit if peak is not None and limit else None
    time = wall / most if wall is not None and most else None
    far = time is None or (time < FAR and wall is not None and most is not None and most - wall > NEAR_END)
    return (
        evidence.exit_code,
        evidence.signal,
        evidence.scheduler,
        evidence.scheduler_state,
        evidence.scheduler_reason,
        evidence.hold_code,
        evidence.hold_subcode,
        None if memory is None else round(memory, 3) if memory >= FAR else 0,
        "far" if far else (round(time or 0, 2), round((most or 0) - (wall or 0))),
    )


def past_rules() -> list[PastRule]:
    """The starter rules that need only fields of the accounting data."""
    rules = []
    for rule in read_rule_file(starter_rules()).rules:
        comparisons = whole_condition(rule["condition"])
        if comparisons is not None and all(comparison.field in FIELDS for comparison in comparisons):
            rules.append(PastRule(rule["name"], rule["description"], comparisons))
    return rules


class Lookback:
    """The results of past attempts, and the cost of their failures."""

    def __init__(self, classifier: Classifier) -> None:
        self.losses = LostHours(past_rules())
        self._causes = PastCauses(classifier)

    def add(self, attempts: Attempts, since: float = 0.0) -> Iterator[int]:
        """Add attempts that ended since the given time; yields their number after each."""
        for attempt in attempts:
            if attempt.ended is not None and attempt.ended < since:
                continue
            finding = None
            if attempt.state is PastState.FAILED and attempt.evidence is not None:
                finding = self._causes.of(attempt.evidence)
            self.losses.add(attempt, finding)
            yield self.losses.attempts

    def report(self, *, redact_names: bool = False) -> dict[str, Any]:
        return report(self.losses, redact_names=redact_names)


def report(losses: LostHours, *, redact_names: bool = False) -> dict[str, Any]:
    """The contents of a report, as plain values; with ``redact_names`` without names, ids and lines of logs."""
    owners, hosts = _top(losses.by_owner), _top(losses.by_host)
    if redact_names:
        owners = [{**row, "name": f"user {place}"} for place, row in enumerate(owners, 1)]
        hosts = [{**row, "name": f"host {place}"} for place, row in enumerate(hosts, 1)]
    causes = []
    for name, loss in sorted(losses.by_cause.items(), key=lambda pair: -pair[1].core_hours):
        advice = max(loss.advice, key=lambda text: loss.advice[text], default="")
        examples = [] if redact_names else [{"job": job, "lines": list(lines)[-2:]} for job, lines in loss.examples]
        causes.append(
            {
                "cause": name,
                "failures": loss.failures,
                "core_hours": round(loss.core_hours, 3),
                "confidence": round(loss.confidence / loss.failures, 3),
                "advice": advice,
                "examples": examples,
            }
        )
    rules = []
    for estimate in losses.estimates:
        low, high = estimate.recovered()
        cheap, dear = estimate.wasted()
        rules.append(
            {
                "rule": estimate.rule.name,
                "description": estimate.rule.description,
                "failures": estimate.answered.failures,
                "core_hours": round(estimate.answered.core_hours, 3),
                "run_again": estimate.run_again,
                "succeeded": estimate.succeeded,
                "recovered": [round(low, 1), round(high, 1)],
                "wasted_core_hours": [round(cheap, 3), round(dear, 3)],
            }
        )
    days = {
        datetime.fromtimestamp(day * 86_400, UTC).date().isoformat(): {cause: round(hours, 3) for cause, hours in by.items()}
        for day, by in sorted(losses.by_day.items())
    }  # fmt: skip
    return {
        "from": _date(losses.first),
        "to": _date(losses.last),
        "sources": dict(losses.by_source),
        "attempts": losses.attempts,
        "core_hours": round(losses.core_hours, 3),
        "succeeded": _loss(losses.succeeded),
        "cancelled": _loss(losses.cancelled),
        "failed": _loss(losses.failed),
        "causes": causes,
        "owners": owners,
        "owners_in_all": len(losses.by_owner),
        "hosts": hosts,
        "hosts_in_all": len(losses.by_host),
        "rules": rules,
        "days": days,
        "names_redacted": redact_names,
    }


def _loss(loss: Loss) -> dict[str, Any]:
    return {"attempts": loss.failures, "core_hours": round(loss.core_hours, 3)}


def _top(table: dict[str, Loss]) -> list[dict[str, Any]]:
    rows = sorted(table.items(), key=lambda pair: (-pair[1].core_hours, -pair[1].failures, pair[0]))[:TOP]
    return [{"name": name, "failures": loss.failures, "core_hours": round(loss.core_hours, 3)} for name, loss in rows]


def _date(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).date().isoformat()


def columns_known(help_text: str, wanted: Sequence[str]) -> list[str]:
    """The columns that `sacct --helpformat` lists."""
    known = {word.lower() for word in help_text.split()}
    return [name for name in wanted if name.lower() in known]


def environment_of_sacct(environment: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """Our environment, without variables that sacct treats as options, and with times in the format that is read."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("SACCT_", "SLURM_")) or name == "SLURM_CONF"
    }
    return {**kept, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"}
