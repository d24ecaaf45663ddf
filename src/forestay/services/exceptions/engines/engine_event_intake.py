"""Receives events from other engines: stores them, applies them to the engines' runs, and raises exceptions for the pipeline.

All calls may be repeated: events are create-only documents under the reporter's own ids, applying the same event twice to a run has no further effect, and the same exception
raised again is the same incident. So an engine that got no answer sends its events again, and nothing is lost between the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from forestay.domain.exceptions.evidence.redaction import redacted_value
from forestay.domain.exceptions.incidents.engine_run import (
    OCCASIONS,
    EngineEvent,
    EngineRun,
    EventKind,
    UnansweredAction,
    begun_run,
    engine_run_id,
    taken,
)
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED, HELD_FOR_A_PERSON, IncidentState, IncidentStatus
from forestay.domain.exceptions.incidents.retry_policy import with_verdict
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json, read_evidence
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent
from forestay.ports.exceptions.classifiers import CauseClassifiers
from forestay.ports.exceptions.incident_store import IncidentStore, StoredIncidentStatus
from forestay.ports.jobs.job_store import JobStore, Record, Written
from forestay.services.exceptions.detect.failure_detector import LOG_KEPT
from forestay.services.exceptions.engines.engine_commands import EngineCommands, EngineReporter
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.exceptions.pipeline import ExceptionPipeline

EVENT = "engine-event"
MAX_VALUE = 16_384
"""The most bytes of a run's data, or of a result, as JSON."""


class EngineReply(StrEnum):
    """The immediate reply to an engine."""

    ON = "go-on"
    """Continue as without Forestay."""
    WAIT = "wait"
    """An incident is being handled: wait with this task or run for orders, until the incident is closed."""


class EngineEventAnswer(NamedTuple):
    """The answer to one event."""

    event: str
    run: str
    """The run's id in Forestay."""
    answer: EngineReply
    incident: str | None = None
    words: str = ""


class ReportedElsewhere(Permanent):
    """The run is reported by another engine."""


@dataclass(slots=True)
class EngineEventIntake:
    """The service."""

    store: JobStore
    incidents: IncidentStore
    engines: EngineCommands
    pipeline: ExceptionPipeline
    classifiers: CauseClassifiers
    clock: Clock

    async def take(self, who: EngineReporter, events: Sequence[EngineEvent]) -> Sequence[EngineEventAnswer]:
        """Receive a batch; returns one answer for each event, in order. `ReportedElsewhere`: nothing of the batch was stored."""
        events = [_clean(event) for event in events]
        runs = await self._runs(who, events)
        now = self.clock.now()
        await self.store.add_records(
            [
                Record(
                    f"{EVENT}:{engine_run_id(who.tenant, who.engine, event.run)}:{event.id}",
                    who.tenant,
                    EVENT,
                    engine_run_id(who.tenant, who.engine, event.run),
                    now,
                    event_plain(event),
                )
                for event in events
            ]
        )
        raised: list[ExceptionEvent | None] = []
        for event in events:
            kind = OCCASIONS.get(event.kind)
            run = runs[engine_run_id(who.tenant, who.engine, event.run)]
            raised.append(None if kind is None else await self._raised(event, kind, run, now))
        asked = [event for event in raised if event is not None]
        if asked:
            await self.pipeline.handle(asked)
        statuses = await self.incidents.get_statuses([event.id for event in asked]) if asked else {}
        answers: list[EngineEventAnswer] = []
        for event, exception_event in zip(events, raised, strict=True):
            run_id = engine_run_id(who.tenant, who.engine, event.run)
            stored = statuses.get(exception_event.id) if exception_event is not None else None
            if stored is None:
                answers.append(EngineEventAnswer(event.id, run_id, EngineReply.ON))
                continue
            status = stored.status
            waits = status.state not in CLOSED
            if waits and _left_alone(event, status.state):
                closed = await self._close(stored)
                waits, status = closed is None, closed or status
            answers.append(
                EngineEventAnswer(
                    event.id, run_id, EngineReply.WAIT if waits else EngineReply.ON, status.id, status.note
                )
            )
        return answers

    async def _close(self, stored: StoredIncidentStatus) -> IncidentStatus | None:
        """Close an incident whose answer nobody waits for any more; None if it is being answered at this moment."""
        reason = stored.status.note.removesuffix(HELD_FOR_A_PERSON).rstrip("; ")
        words = "; ".join(filter(None, [reason, "its engine does not wait for a person"]))
        moved = stored.status.moved(IncidentState.FAILED, now=self.clock.now(), note=words)
        (result,) = await self.incidents.put_statuses([(moved, stored.version)])
        return moved if isinstance(result, Written) else None

    async def _runs(self, who: EngineReporter, events: Sequence[EngineEvent]) -> Mapping[str, EngineRun]:
        """The runs of a batch after its events. All are checked before any is written."""
        mine: dict[str, list[EngineEvent]] = {}
        for event in events:
            mine.setdefault(engine_run_id(who.tenant, who.engine, event.run), []).append(event)
        for run in mine:
            await self._own(who, run)
        runs: dict[str, EngineRun] = {}
        for run, some in mine.items():

            def fold(before: EngineRun | None, some: Sequence[EngineEvent] = some) -> EngineRun:
                after = before or begun_run(some[0], tenant=who.tenant, engine=who.engine, reporter=who.subject)
                if after.reporter != who.subject:
                    raise ReportedElsewhere(f"the run {after.key} is reported by another")
                for event in some:
                    after = taken(after, event)
                return replace(after, data=_bounded(after.data), results=_bounded(after.results))

            runs[run] = await self.engines.change(run, fold)
        return runs

    async def _own(self, who: EngineReporter, run: str) -> None:
        known = await self.engines.known(run)
        if known is not None and known.reporter != who.subject:
            raise ReportedElsewhere(f"the run {known.key} is reported by another")

    async def _raised(self, event: EngineEvent, kind: ExceptionType, run: EngineRun, now: int) -> ExceptionEvent:
        status = run.instances.get(event.instance, "")
        tries = sum(1 for _, instance, _ in run.ledger if instance == event.instance)
        context: dict[str, Any] = {
            "run": {"data": dict(run.data), "age": max(0.0, (now - run.started) / 1000)},
            "tasks": dict(run.instances),
            "exception": {"trigger": event.trigger, "level": tries},
            "engine": run.engine,
            "key": run.key,
        }
        if event.instance:
            result = {"result": event.result} if event.result is not None else {}
            context["task"] = {"status": status, "data": {**dict(event.data), **result}}
            context["job"] = {
                "name": event.instance,
                "labels": dict(event.labels),
                "attempt": event.attempt,
                "failures": tries,
            }
        cause = "unknown"
        if kind is ExceptionType.ABORT or event.evidence:
            evidence = read_evidence(event.evidence)
            finding = with_verdict((await self.classifiers.classifier(run.tenant)).classify(evidence), evidence)
            log_tails = evidence_to_json(evidence)
            if "log_tail" in log_tails:
                log_tails["log_tail"] = log_tails["log_tail"][-LOG_KEPT:]
            log_tails["more"] = redacted_value(dict(evidence.more))
            context |= {"evidence": log_tails, "finding": finding_to_json(finding)}
            cause = str(finding.cause)
        return ExceptionEvent(
            kind,
            tenant=run.tenant,
            owner=run.owner,
            event=event.id,
            at=now,
            engine=run.engine,
            run=run.id,
            instance=event.instance,
            task=event.instance.partition(":")[0],
            attempt=event.attempt,
            flow=run.version,
            flow_name=run.flow,
            cause=cause,
            context=context,
        )


def _left_alone(event: EngineEvent, state: IncidentState) -> bool:
    """Whether neither rules nor the default policy answer the event, and its engine prefers to handle it itself to waiting for a person."""
    return (
        event.kind is EventKind.TASK_ABORTED
        and event.otherwise is UnansweredAction.GO_ON
        and state is IncidentState.HELD
    )


def _clean(event: EngineEvent) -> EngineEvent:
    """The event without secrets."""
    data, result = redacted_value(dict(event.data)), redacted_value(event.result, "result")
    evidence = redacted_value(dict(event.evidence))
    assert isinstance(data, dict)  # noqa: S101 - what is redacted keeps its shape
    assert isinstance(evidence, dict)  # noqa: S101
    return replace(event, data=data, result=result, evidence=evidence)


def _bounded(data: Mapping[str, object]) -> Mapping[str, object]:
    """As much of the data as a run may keep: the newest values are kept, single values that are too large are left out."""
    kept: dict[str, object] = {}
    left = MAX_VALUE
    for name, value in reversed(list(data.items())):
        left -= len(orjson.dumps({name: value}, default=str))
        if left < 0:
            break
        kept[name] = value
    return dict(reversed(list(kept.items()))) if len(kept) < len(data) else data


def event_plain(event: EngineEvent) -> dict[str, Any]:
    """The stored form of an event."""
    plain: dict[str, Any] = {"id": event.id, "kind": event.kind.value, "at": event.at}
    more: dict[str, Any] = {
        "task": event.instance, "attempt": event.attempt, "flow": event.flow, "owner": event.owner, "parent": event.parent, "data": dict(event.data),
        "result": event.result, "evidence": dict(event.evidence), "trigger": event.trigger,
    }  # fmt: skip
    return plain | {name: value for name, value in more.items() if value}
