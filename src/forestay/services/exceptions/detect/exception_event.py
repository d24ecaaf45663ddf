"""An exception as it was raised by our flows, a reconciler or another engine, and the incident made from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    FINDING,
    MAX_DOCUMENT,
    OWN_ENGINE,
    Incident,
    incident_id,
    with_fingerprint,
)

ROOM = MAX_DOCUMENT * 3 // 4
"""Bytes of an incident's context; the rest of the document needs some too."""
_DATA = (("run", "data"), ("task", "data"), ("evidence", "more"), ("external",), ("job", "parameters"), ("tasks",))
"""Where much may stand, and what is left out first when it is too much."""


@dataclass(frozen=True, slots=True)
class ExceptionEvent:
    """An exception to be answered."""

    kind: ExceptionType
    tenant: str
    owner: str
    event: str
    """The raiser's own id of what happened: the same event, raised again, is the same incident."""
    at: int
    """Milliseconds since 1970."""
    engine: str = OWN_ENGINE
    run: str = ""
    instance: str = ""
    task: str = ""
    """The task of the task, whose tree is asked; empty: the task's name."""
    job: str = ""
    attempt: int = 0
    round: int = 0
    flow: str = ""
    """The version of the run's flow."""
    flow_name: str = ""
    """Its name: rule sets are of all versions."""
    cause: str = "unknown"
    parent: str = ""
    """The incident whose playbook started the run."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """What the rules see, in groups as conditions name them: ``{"run": {"data": {…}}, "task": {…}, "tasks": {…}}``."""

    @property
    def id(self) -> str:
        """The incident that it is."""
        return incident_id(
            self.kind,
            engine=self.engine,
            run=self.run,
            instance=self.instance,
            job=self.job,
            attempt=self.attempt,
            event=self.event,
        )

    @property
    def asked(self) -> str:
        """The task whose rules are asked; empty for a run."""
        return "" if self.kind.of_run else self.task or self.instance


def incident_raised(raised: ExceptionEvent, external: Mapping[str, object]) -> Incident:
    """The incident: everything that it is decided by, so that it can be decided again by the same. `external`: what external sources told."""
    moment = datetime.fromtimestamp(raised.at / 1000, UTC)
    context: dict[str, Any] = dict(raised.context)
    context["exception"] = {**_group(context, "exception"), "type": raised.kind.value, "task": raised.asked}
    context["run"] = {**_group(context, "run"), "id": raised.run, "flow": raised.flow_name, "version": raised.flow}
    context["external"] = {**external, **_group(context, "external")}
    context["now"] = {"hour": moment.hour, "weekday": moment.isoweekday()}
    if raised.kind is ExceptionType.TIMEOUT:
        context["exception"].setdefault("task_id", raised.instance)
    if raised.instance:
        context["task"] = {"name": raised.instance, "round": raised.round} | _group(context, "task")
    incident = Incident(
        id=raised.id,
        tenant=raised.tenant,
        owner=raised.owner,
        kind=raised.kind,
        at=raised.at,
        engine=raised.engine,
        run=raised.run,
        instance=raised.instance,
        job=raised.job,
        attempt=raised.attempt,
        event=raised.event,
        cause=raised.cause,
        flow=raised.flow,
        parent=raised.parent,
        round=raised.round,
        context=fitting(context),
    )
    return with_fingerprint(incident) if FINDING in context else incident


def _group(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = facts.get(name)
    return dict(inner) if isinstance(inner, Mapping) else {}


def fitting(facts: dict[str, Any]) -> dict[str, Any]:
    """As much of it as an incident has room for. A rule that asks for what was left out errs, and a person is asked: nothing acts by half of the data."""
    if _size(facts) <= ROOM:
        return facts
    facts = orjson.loads(orjson.dumps(facts, default=str))
    left_out: list[str] = []
    for where in _DATA:
        inner: Any = facts
        for name in where:
            inner = inner.get(name, {}) if isinstance(inner, dict) else {}
        if not isinstance(inner, dict):
            continue
        for name in sorted(inner, key=lambda value: -_size(inner[value])):
            if _size(facts) <= ROOM:
                break
            del inner[name]
            left_out.append(".".join((*where, name))[:100])
        if _size(facts) <= ROOM:
            break
    facts["left_out"] = left_out[:50]
    return facts


def _size(value: object) -> int:
    return len(orjson.dumps(value, default=str))
