"""A schedule: when runs of a flow are started, and what happens to a start that is too late or too early."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from forestay.domain.flows.definition.expression import BadExpression, Path, template_references
from forestay.domain.flows.definition.flow_plan import texts_of
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.flows.execution.scope import filled

DAY = 86_400
MIN_CATCH_UP, MAX_CATCH_UP = 10, 365 * DAY
MAX_CRON = 20
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_CRON = re.compile(r"[0-9A-Za-z*/,?#-]+( [0-9A-Za-z*/,?#-]+){4,6}|@(hourly|daily|weekly|monthly|yearly)")
SCHEDULED: frozenset[Path] = frozenset({("scheduled", "time"), ("scheduled", "date")})
"""What the parameters of a schedule may refer to."""


class Overlap(StrEnum):
    """What happens to a start while the run of the last one has not ended."""

    SKIP = "skip"
    """It is skipped."""
    BUFFER_ONE = "buffer-one"
    """It is made when that run has ended; if there are several, only the first."""
    BUFFER_ALL = "buffer-all"
    """All are made, one after another."""
    ALLOW = "allow"
    """It is made at once: runs may overlap."""


@dataclass(frozen=True, slots=True)
class RunSchedule:
    """A schedule as its owner defined it."""

    name: str
    flow: str
    """The flow's version."""
    cron: tuple[str, ...]
    """Cron expressions; each makes starts."""
    params: Mapping[str, object] = field(default_factory=dict)
    """The parameters of each run. ``${scheduled.time}`` and ``${scheduled.date}`` give the time for which a run was planned."""
    time_zone: str = "UTC"
    catch_up: int = DAY
    """Seconds: starts missed while the engine was down are made afterwards if they are not older than this."""
    overlap: Overlap = Overlap.SKIP
    paused: bool = False
    note: str = ""


def check_schedule(schedule: RunSchedule) -> Iterator[FlowProblem]:
    """All errors of a schedule by itself; its flow and its time zone are checked where these are known."""
    if not NAME.fullmatch(schedule.name):
        yield FlowProblem(("name",), "a schedule's name has letters, digits, '-' and '_', and begins with a letter")
    if not 0 < len(schedule.cron) <= MAX_CRON:
        yield FlowProblem(("cron",), f"give 1 to {MAX_CRON} cron expressions")
    for place, text in enumerate(schedule.cron):
        if not _CRON.fullmatch(text):
            words = "expected minute, hour, day of month, month and day of week, such as '0 2 * * *', or @daily"
            yield FlowProblem(("cron", place), words)
    if not MIN_CATCH_UP <= schedule.catch_up <= MAX_CATCH_UP:
        yield FlowProblem(("catch_up",), f"expected {MIN_CATCH_UP} s to a year")
    for text in texts_of(schedule.params):
        try:
            wrong = [".".join(path) for path in template_references(text) if path not in SCHEDULED]
        except BadExpression as why:
            wrong = [str(why)]
        if wrong:
            yield FlowProblem(("params",), f"only ${{scheduled.time}} and ${{scheduled.date}} can be used: {wrong[0]}")


def params_at(schedule: RunSchedule, planned: datetime) -> dict[str, object]:
    """The parameters of the run that was planned for a time, which is in the schedule's time zone."""
    known: dict[Path, object] = {
        ("scheduled", "time"): planned.isoformat(timespec="seconds"),
        ("scheduled", "date"): planned.date().isoformat(),
    }
    return {name: filled(value, known.get) for name, value in schedule.params.items()}


def start_key(name: str, at: int) -> str:
    """The idempotency key of the run that a schedule starts for a time: however often it is requested, there is one run."""
    return f"schedule:{name}:{at}"
