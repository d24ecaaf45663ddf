"""Takes what other engines report: remembers it, folds it into their cases, and has exceptions answered.

Everything here may be repeated: events are create-only documents under the reporter's own ids, a case after the same event twice is the case after it once, and the same exception
raised again is the same incident. So an engine that got no answer sends its events again, and nothing is lost between the two.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import orjson

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.redaction import redacted_value
from forestay.domain.exceptions.incidents.engine_case import (
    OCCASIONS,
    EngineCase,
    EngineEvent,
    EventKind,
    UnansweredAction,
    begun_case,
    engine_case_id,
    taken,
)
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import CLOSED, IncidentState
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json, read_evidence
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent
from forestay.ports.exceptions.incident_store import IncidentStore, StoredIncidentStatus
from forestay.ports.jobs.job_store import JobStore, Record, Written
from forestay.services.exceptions.detect.exception_event import ExceptionEvent
from forestay.services.exceptions.detect.fault_incident import LOG_KEPT
from forestay.services.exceptions.engines.engine_commands import EngineCommands, EngineReporter

EVENT = "engine-event"
MAX_VALUE = 16_384
"""Bytes of a case's data, or of a result, as JSON."""


class EngineReply(StrEnum):
    """What an engine is told at once."""

    ON = "go-on"
    """Do as you would."""
    WAIT = "wait"
    """An incident is being handled: wait with this item or case for orders, until the incident is closed."""


class EngineEventAnswer(NamedTuple):
    """The answer to one event."""

    event: str
    case: str
    """Our id of the case."""
    answer: EngineReply
    incident: str | None = None
    words: str = ""


class ReportedElsewhere(Permanent):
    """The case is reported by another."""


class ExceptionAnswerer(Protocol):
    """Whoever answers exceptions: decides on each, and acts or has it acted on."""

    async def answer(self, raised: Sequence[ExceptionEvent]) -> object: ...


@dataclass(slots=True)
class EngineEventIntake:
    """The service."""

    store: JobStore
    incidents: IncidentStore
    engines: EngineCommands
    exceptions: ExceptionAnswerer
    classifier: Callable[[], Awaitable[Classifier]]
    clock: Clock

    async def take(self, who: EngineReporter, events: Sequence[EngineEvent]) -> Sequence[EngineEventAnswer]:
        """Take a batch in; one answer an event, in order. `ReportedElsewhere`, and then nothing of the batch was taken."""
        events = [_clean(event) for event in events]
        cases = await self._cases(who, events)
        now = self.clock.now()
        await self.store.add_records(
            [
                Record(
                    f"{EVENT}:{engine_case_id(who.tenant, who.engine, event.case)}:{event.id}",
                    who.tenant,
                    EVENT,
                    engine_case_id(who.tenant, who.engine, event.case),
                    now,
                    event_plain(event),
                )
                for event in events
            ]
        )
        raised: list[ExceptionEvent | None] = []
        for event in events:
            kind = OCCASIONS.get(event.kind)
            case = cases[engine_case_id(who.tenant, who.engine, event.case)]
            raised.append(None if kind is None else await self._raised(event, kind, case, now))
        asked = [one for one in raised if one is not None]
        if asked:
            await self.exceptions.answer(asked)
        standings = await self.incidents.get_standings([one.id for one in asked]) if asked else {}
        answers: list[EngineEventAnswer] = []
        for event, one in zip(events, raised, strict=True):
            case_id = engine_case_id(who.tenant, who.engine, event.case)
            stored = standings.get(one.id) if one is not None else None
            if stored is None:
                answers.append(EngineEventAnswer(event.id, case_id, EngineReply.ON))
                continue
            standing = stored.standing
            waits = standing.state not in CLOSED
            if waits and _left_alone(event, standing.state):
                waits = not await self._close(stored)
            answers.append(
                EngineEventAnswer(
                    event.id, case_id, EngineReply.WAIT if waits else EngineReply.ON, standing.id, standing.note
                )
            )
        return answers

    async def _close(self, stored: StoredIncidentStatus) -> bool:
        """Nobody waits for an answer any more; False if someone has one at this very moment."""
        words = f"{stored.standing.note}; handled by its engine" if stored.standing.note else "handled by its engine"
        moved = stored.standing.moved(IncidentState.FAILED, now=self.clock.now(), note=words)
        (result,) = await self.incidents.put_standings([(moved, stored.version)])
        return isinstance(result, Written)

    async def _cases(self, who: EngineReporter, events: Sequence[EngineEvent]) -> Mapping[str, EngineCase]:
        """The cases of a batch after it. All are looked at before one is written."""
        mine: dict[str, list[EngineEvent]] = {}
        for event in events:
            mine.setdefault(engine_case_id(who.tenant, who.engine, event.case), []).append(event)
        for case in mine:
            await self._own(who, case)
        found: dict[str, EngineCase] = {}
        for case, some in mine.items():

            def fold(before: EngineCase | None, some: Sequence[EngineEvent] = some) -> EngineCase:
                after = before or begun_case(some[0], tenant=who.tenant, engine=who.engine, reporter=who.subject)
                if after.reporter != who.subject:
                    raise ReportedElsewhere(f"the case {after.key} is reported by another")
                for event in some:
                    after = taken(after, event)
                return replace(after, data=_bounded(after.data), results=_bounded(after.results))

            found[case] = await self.engines.change(case, fold)
        return found

    async def _own(self, who: EngineReporter, case: str) -> None:
        known = await self.engines.known(case)
        if known is not None and known.reporter != who.subject:
            raise ReportedElsewhere(f"the case {known.key} is reported by another")

    async def _raised(self, event: EngineEvent, kind: ExceptionType, case: EngineCase, now: int) -> ExceptionEvent:
        status = case.items.get(event.item, "")
        tries = sum(1 for _, item, _ in case.ledger if item == event.item)
        context: dict[str, Any] = {
            "case": {"data": dict(case.data), "age": max(0.0, (now - case.started) / 1000)},
            "items": dict(case.items),
            "exception": {"trigger": event.trigger, "level": tries},
            "engine": case.engine,
            "key": case.key,
        }
        if event.item:
            result = {"result": event.result} if event.result is not None else {}
            context["item"] = {"status": status, "data": {**dict(event.data), **result}}
            context["job"] = {
                "name": event.item,
                "labels": dict(event.labels),
                "attempt": event.attempt,
                "faults": tries,
            }
        cause = "unknown"
        if kind is ExceptionType.ABORT or event.evidence:
            evidence = read_evidence(event.evidence)
            finding: CauseFinding = (await self.classifier()).classify(evidence)
            told = evidence_to_json(evidence)
            if "log_tail" in told:
                told["log_tail"] = told["log_tail"][-LOG_KEPT:]
            told["more"] = redacted_value(dict(evidence.more))
            context |= {"evidence": told, "finding": finding_to_json(finding)}
            cause = str(finding.cause)
        return ExceptionEvent(
            kind,
            tenant=case.tenant,
            owner=case.owner,
            event=event.id,
            at=now,
            engine=case.engine,
            case=case.id,
            item=event.item,
            task=event.item.partition(":")[0],
            attempt=event.attempt,
            flow=case.version,
            flow_name=case.flow,
            cause=cause,
            context=context,
        )


def _left_alone(event: EngineEvent, state: IncidentState) -> bool:
    """Whether nobody has anything in mind for it, and its engine would rather deal with it itself than have it wait for a person."""
    return (
        event.kind is EventKind.ITEM_ABORTED
        and event.otherwise is UnansweredAction.GO_ON
        and state is IncidentState.HELD
    )


def _clean(event: EngineEvent) -> EngineEvent:
    """Without what nobody may read."""
    data, result = redacted_value(dict(event.data)), redacted_value(event.result, "result")
    evidence = redacted_value(dict(event.evidence))
    assert isinstance(data, dict)  # noqa: S101 - what is redacted keeps its shape
    assert isinstance(evidence, dict)  # noqa: S101
    return replace(event, data=data, result=result, evidence=evidence)


def _bounded(data: Mapping[str, object]) -> Mapping[str, object]:
    """As much of it as a case may remember: the newest stays, and what alone is too large is left out."""
    kept: dict[str, object] = {}
    left = MAX_VALUE
    for name, value in reversed(list(data.items())):
        left -= len(orjson.dumps({name: value}, default=str))
        if left < 0:
            break
        kept[name] = value
    return dict(reversed(list(kept.items()))) if len(kept) < len(data) else data


def event_plain(event: EngineEvent) -> dict[str, Any]:
    """An event as it is remembered."""
    plain: dict[str, Any] = {"id": event.id, "kind": event.kind.value, "at": event.at}
    more: dict[str, Any] = {
        "item": event.item, "attempt": event.attempt, "flow": event.flow, "owner": event.owner, "parent": event.parent, "data": dict(event.data),
        "result": event.result, "evidence": dict(event.evidence), "trigger": event.trigger,
    }  # fmt: skip
    return plain | {name: value for name, value in more.items() if value}
