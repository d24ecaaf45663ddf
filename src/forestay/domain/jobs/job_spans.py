"""Trace spans of a job's history, for display beside the user's own traces.

Spans are derived from the job's document, and their ids are digests: a span made again is the same, so that nothing has to be
stored and nothing is reported twice. The trace is the submitter's, if one came with the job; else its id is derived from the run or the job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from forestay.domain.jobs.job_document import FINAL, TRACE, JobDocument, State, Transition
from forestay.domain.jobs.lifecycle import Event

PILOT = "pilot"
_PARENT = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$")
_FINAL = frozenset(state.value for state in FINAL)
_ENDS = frozenset({Event.COMPLETE, Event.FAILURE, Event.RELEASE, Event.QUARANTINE, Event.ADOPT, Event.KEEP_COMPLETION})
_DECISIONS = frozenset({Event.RETRY, Event.GIVE_UP})
_WELL = frozenset({State.COMPLETED, State.FORCED_COMPLETE})


class TraceContext(NamedTuple):
    """Which trace something belongs to."""

    trace: str
    parent: str
    """The span above it; empty: none."""
    sampled: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time. Times are milliseconds since 1970."""

    process: str
    """The process that did it: `server`, `reconciler`, `orchestrator`, `pilot`; empty: the reporting one."""
    name: str
    trace: str
    id: str
    parent: str
    begin: int
    end: int
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    error: str | None = None
    """Why it failed."""


def read_traceparent(text: str) -> TraceContext | None:
    """The trace context in a W3C `traceparent` header; None for anything else, which is to be ignored."""
    match = _PARENT.match(text)
    if match is None or text.startswith("ff") or (text.startswith("00") and match[4]):
        return None
    trace, parent, flags = match[1], match[2], match[3]
    if not int(trace, 16) or not int(parent, 16):
        return None
    return TraceContext(trace, parent, bool(int(flags, 16) & 1))


def context_of(document: JobDocument) -> TraceContext:
    """The trace of a job."""
    kept = document.extra.get(TRACE) if document.extra else None
    context = read_traceparent(kept) if isinstance(kept, str) else None
    if context is not None:
        return context
    return TraceContext(
        _digest("run", document.flow_ref.run)[:32] if document.flow_ref else _digest("job", document.id)[:32], ""
    )


def job_span(job: str) -> str:
    """The id of the span of a whole job."""
    return _digest("job-span", job)[:16]


def incident_span(incident: str) -> str:
    return _digest("incident-span", incident)[:16]


def submit_span(document: JobDocument, *, until: int) -> Span:
    """From the request's document to the store's acknowledgement."""
    return _SpanBuilder(document).span("submit", "submit", document.created, until)


def spans_of(document: JobDocument) -> tuple[Span, ...]:
    """The spans that ended by the last write of a document."""
    history = document.history
    first = len(history)
    # All changes of one write have the same time.
    while first > 0 and history[first - 1].at == history[-1].at:
        first -= 1
    telling = _SpanBuilder(document)
    return tuple(span for place in range(first, len(history)) for span in telling.ended_by(place))


class _SpanBuilder:
    """Makes the spans of one document."""

    def __init__(self, document: JobDocument) -> None:
        self.document = document
        self.context = context_of(document)
        self.root = job_span(document.id)

    def ended_by(self, place: int) -> Iterator[Span]:
        line = self.document.history[place]
        event = line.event
        if event == Event.CLAIM:
            before = self._before(place, lambda transition: transition.state == State.AVAILABLE.value)
            yield self.span(
                f"queued {line.attempt}",
                "queued",
                before.at if before else line.at,
                line.at,
                {"forestay.attempt": line.attempt},
            )
        elif event in _ENDS:
            yield from self._attempt(place, line)
        elif event in _DECISIONS:
            before = self._before(place, lambda transition: transition.event == Event.FAILURE)
            more: dict[str, str | int | float] = {"forestay.attempt": line.attempt, "forestay.by": line.by}
            more["forestay.note"] = line.note
            name = "retry" if event == Event.RETRY else "give up"
            yield self.span(
                f"decide {line.attempt}", f"decide: {name}", before.at if before else line.at, line.at, more
            )
        if line.state in _FINAL and event != Event.NOTIFY:
            yield self._whole(line)

    def _attempt(self, place: int, line: Transition) -> Iterator[Span]:
        claim = self._before(
            place, lambda transition: transition.event == Event.CLAIM and transition.attempt == line.attempt
        )
        begin = claim.at if claim else line.at
        last = self.document.last
        more: dict[str, str | int | float] = {"forestay.attempt": line.attempt, "forestay.end": line.event}
        if claim is not None:
            more["forestay.pilot"] = claim.by
        result = last if last is not None and last.token.attempt == line.attempt else None
        if result is not None:
            if result.host:
                more["host.name"] = result.host
            if result.exit_code is not None:
                more["process.exit.code"] = result.exit_code
            if result.signal is not None:
                more["forestay.signal"] = result.signal
        error = None if line.event in (Event.COMPLETE, Event.ADOPT) else (line.note or line.event)
        attempt = self.span(f"attempt {line.attempt}", f"attempt {line.attempt}", begin, line.at, more, error=error)
        yield attempt
        begun = self._before(
            place, lambda transition: transition.event == Event.BEGIN and transition.attempt == line.attempt
        )
        if begun is not None:
            yield self.span(f"stage-in {line.attempt}", "stage in", begin, begun.at, process=PILOT, parent=attempt.id)
        if result is not None and result.started is not None and result.wall is not None:
            # The pilot's clock is not the server's: a command is shown within its attempt, with the pilot's own times beside it.
            since = min(max(result.started, begin), line.at)
            until = min(max(since + round(1000 * result.wall), since), line.at)
            fields: dict[str, str | int | float] = {"forestay.started": result.started, "forestay.wall": result.wall}
            yield self.span(
                f"run {line.attempt}", "run", since, until, more | fields, error=error, process=PILOT, parent=attempt.id
            )

    def _whole(self, line: Transition) -> Span:
        document = self.document
        more: dict[str, str | int | float] = {
            "forestay.job": document.id,
            "forestay.tenant": document.tenant,
            "forestay.owner": document.owner,
            "forestay.state": line.state,
            "forestay.attempts": document.attempt,
        }
        if document.flow_ref is not None:
            more |= {"forestay.run": document.flow_ref.run, "forestay.task": document.flow_ref.work}
        error = None if line.state in _WELL else (line.note or line.state)
        return Span("", f"job {document.name}", self.context.trace, self.root, self.context.parent, document.created,
                    line.at, more, error)  # fmt: skip

    def _before(self, place: int, fits: Callable[[Transition], bool]) -> Transition | None:
        history = self.document.history
        return next((history[number] for number in range(place - 1, -1, -1) if fits(history[number])), None)

    def span(
        self,
        key: str,
        name: str,
        begin: int,
        end: int,
        attributes: Mapping[str, str | int | float] | None = None,
        *,
        error: str | None = None,
        process: str = "",
        parent: str = "",
    ) -> Span:
        document = self.document
        made = _digest(document.id, str(document.generation), key)[:16]
        more = {"forestay.job": document.id, **(attributes or {})}
        return Span(process, name, self.context.trace, made, parent or self.root, begin, max(begin, end), more, error)


def _digest(*parts: str) -> str:
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()
