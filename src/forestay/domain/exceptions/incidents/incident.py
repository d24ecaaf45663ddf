"""An incident: an exception with the whole context of its decision as it was then, and with the decision and its actions.

An incident, a decision and a step are written once and never changed: a repetition finds what was written first, and follows it. What
does change about an incident, its status and when it is due, is a small document of its own, which is version-checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID, uuid5

from forestay.domain.exceptions.causes.fingerprint import Fingerprint, deciding_line, fingerprint
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.jobs.job_document import JobDocument, State, instance_of, task_of

_SPACE = UUID("3d0a52fb-63ce-5b0c-9d55-4ba1a2f7a1c0")
MAX_DOCUMENT = 65_536
"""Bytes of an incident, a decision or a step as JSON."""
OWN_ENGINE = "forestay"
"""The engine of our own flows and jobs."""
DEFAULT_POLICY = "default policy"
"""The decider where no rule concluded."""
PLAYBOOK = "playbook"
"""The verdict of a decision that has a playbook; the default policy's verdicts are its actions."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One exception. Times are milliseconds since 1970."""

    id: str
    tenant: str
    owner: str
    kind: ExceptionType
    at: int
    engine: str = OWN_ENGINE
    run: str = ""
    instance: str = ""
    job: str = ""
    attempt: int = 0
    event: str = ""
    """The reporter's own id of the event."""
    cause: str = "unknown"
    flow: str = ""
    """The version of the run's flow."""
    parent: str = ""
    """The incident whose playbook started the run as a worklet."""
    round: int = 0
    """The round of the task in which it happened: an answer does not apply to a later one. 0: any round."""
    context: Mapping[str, object] = field(default_factory=dict)
    """Everything else that rules may use: evidence, run data, the status of every task."""


def incident_id(
    kind: ExceptionType,
    *,
    engine: str = OWN_ENGINE,
    run: str = "",
    instance: str = "",
    job: str = "",
    attempt: int = 0,
    event: str = "",
) -> str:
    """The id of an incident; the same exception, reported twice, has the same id."""
    parts = (engine, run, instance, job, str(attempt), kind.value, event)
    # Lengths first, so that no two incidents are equal.
    return str(uuid5(_SPACE, "".join(f"{len(part)}:{part}" for part in parts)))


class IncidentState(StrEnum):
    """The state of an incident."""

    OPEN = "open"
    """Nothing is decided; it is examined when it is due."""
    ACTING = "acting"
    """A playbook is being carried out."""
    WAITING = "waiting"
    """An action was taken, and its outcome is pending: a retry policy's wait, a canary."""
    HELD = "held"
    """A person is asked."""
    COMPLETE = "complete"
    IGNORED = "ignored"
    """No rule answers, and the default policy takes no action."""
    FAILED = "failed"
    """It was given up."""


CLOSED = frozenset({IncidentState.COMPLETE, IncidentState.IGNORED, IncidentState.FAILED})
"""States that need no further action."""
HELD_FOR_A_PERSON = "held for a person"
"""How the reason of an incident that waits for a person ends."""


@dataclass(frozen=True, slots=True)
class IncidentStatus:
    """The state of an incident, with some of the incident's own fields for searches."""

    id: str
    tenant: str
    owner: str
    kind: ExceptionType
    at: int
    state: IncidentState = IncidentState.OPEN
    due: int | None = None
    """When it is to be examined; ``None``: not by itself."""
    cause: str = "unknown"
    flow: str = ""
    run: str = ""
    instance: str = ""
    job: str = ""
    group: str = ""
    """The storm that it is part of; empty: none."""
    n: int = 0
    """The number of its last decision."""
    core_seconds: int = 0
    """The cost of another attempt of its job, as known when it happened. 0: unknown, or it has no job."""
    changed: int = 0
    note: str = ""
    """The reason for its state, for people."""
    fingerprint: str = ""
    """The id of its fingerprint, computed when the incident was recorded. Empty: recorded before there were fingerprints."""
    title: str = ""
    """The error in one line, with placeholders for what varies between failures of one fingerprint."""
    host: str = ""
    """The host on which it happened. Empty: unknown, or recorded before hosts were."""
    site: str = ""
    """The site of the attempt's pilot."""
    exit_code: str = ""
    """How the job's program ended: its exit code, or ``signal 9``."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Small notes of its handlers: a retry policy's ledger, a canary's position."""

    def moved(self, state: IncidentState, *, now: int, due: int | None = None, **changes: object) -> IncidentStatus:
        """The status after a change to the incident."""
        return replace(self, state=state, due=due, changed=now, **changes)  # type: ignore[arg-type]


def fingerprint_of(incident: Incident) -> Fingerprint:
    """The fingerprint of its error. An exception without evidence is identified by its type and by who raised it."""
    finding, evidence, exception, job = (
        context_part(incident, name) for name in ("finding", "evidence", "exception", "job")
    )
    line = deciding_line(finding, evidence)
    if not line:
        line = ": ".join(part for part in (incident.kind.value, str(exception.get("trigger") or "")) if part)
    task = str(exception.get("task") or "") or task_of(incident.instance) or str(job.get("name") or "")
    return fingerprint(line, task, incident.cause)


def with_fingerprint(incident: Incident) -> Incident:
    """The incident with the id of its error in the context that rules may use."""
    return _named(incident, fingerprint_of(incident).id)


def _named(incident: Incident, fingerprint: str) -> Incident:
    exception = {**context_part(incident, "exception"), "fingerprint": fingerprint}
    return replace(incident, context={**incident.context, "exception": exception})


def deciding_pattern(incident: Incident) -> str:
    """The name of the pattern that found its cause; empty: none did."""
    return str(context_part(incident, FINDING).get("pattern") or "")


def context_part(incident: Incident, name: str) -> Mapping[str, object]:
    """A part of its context, such as its evidence; empty if it has none."""
    part = incident.context.get(name)
    return part if isinstance(part, Mapping) else {}


def status_of(incident: Incident, *, due: int | None = None, group: str = "", core_seconds: int = 0) -> IncidentStatus:
    """The status of a new incident: open, and due."""
    error = fingerprint_of(incident)
    return IncidentStatus(
        id=incident.id, tenant=incident.tenant, owner=incident.owner, kind=incident.kind, at=incident.at,
        due=incident.at if due is None else due, cause=incident.cause, flow=incident.flow, run=incident.run,
        instance=incident.instance, job=incident.job, group=group, core_seconds=core_seconds,
        changed=incident.at, fingerprint=error.id, title=error.title, exit_code=_exit_code(incident),
        host=str(context_part(incident, "host").get("name") or ""), site=str(context_part(incident, "site").get("name") or ""),
    )  # fmt: skip


FINDING = "finding"
"""The key in an incident's context, and in its status if it was judged again."""


def judged_again(status: IncidentStatus, incident: Incident) -> IncidentStatus:
    """The status of an incident whose cause was changed; `incident` is as it would be recorded now. The stored one stays as it is."""
    error = fingerprint_of(incident)
    extra = {**status.extra, FINDING: incident.context.get(FINDING)}
    return replace(status, cause=incident.cause, fingerprint=error.id, title=error.title, extra=extra)


def as_judged(incident: Incident, status: IncidentStatus) -> Incident:
    """The incident with its latest cause, and with its error, which those of an earlier release did not keep."""
    finding = status.extra.get(FINDING)
    if isinstance(finding, Mapping):
        incident = replace(incident, cause=status.cause, context={**incident.context, FINDING: finding})
    return _named(incident, status.fingerprint) if FINDING in incident.context and status.fingerprint else incident


def _exit_code(incident: Incident) -> str:
    evidence = context_part(incident, "evidence")
    signal, code = evidence.get("signal"), evidence.get("exit_code")
    if signal:
        return f"signal {signal}"
    return "" if code is None else str(code)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on an incident, the first time or later: by a rule, by the default policy, or by a person."""

    incident: str
    n: int
    """From 1."""
    tenant: str
    at: int
    verdict: str
    by: str
    """The rule, ``default policy``, or the person."""
    playbook: Mapping[str, object] | None = None
    """Its plain form, as it was then."""
    shadow: bool = False
    """The decision was only recorded, not acted on."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """The path through the rules, the safeguards' answers, and the like."""

    @property
    def id(self) -> str:
        return decision_id(self.incident, self.n)

    @property
    def by_person(self) -> bool:
        """Rules are named with their set: ``domain/site#RULE``."""
        return self.by != DEFAULT_POLICY and "#" not in self.by


def decision_id(incident: str, n: int) -> str:
    return f"{incident}:{n}"


class StepMark(StrEnum):
    """Of each step two documents are written: before it acts, and after."""

    BEGUN = "begun"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A record that a step of a playbook has begun, or has ended, and how. A handler that finds it begun repeats it as recorded; one that finds it ended does nothing."""

    incident: str
    n: int
    step: int
    mark: StepMark
    tenant: str
    at: int
    action: str
    detail: Mapping[str, object] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return step_record_id(self.incident, self.n, self.step, self.mark)


def step_id(incident: str, n: int, step: int) -> str:
    """The id under which a step of a playbook is carried out once."""
    return f"{incident}:{n}:{step}"


def step_record_id(incident: str, n: int, step: int, mark: StepMark) -> str:
    return f"{incident}:{n}:{step}:{mark.value}"


def failure_incident_id(document: JobDocument) -> str:
    """The id of the incident for the last attempt of a faulted job, whether it was recorded or not."""
    flow_ref, event = document.flow_ref, failure_event(document)
    run = flow_ref.run if flow_ref is not None else ""
    instance, _ = instance_of(flow_ref.work) if flow_ref is not None else ("", 0)
    return incident_id(
        ExceptionType.ABORT, run=run, instance=instance, job=document.id, attempt=document.attempt, event=event
    )


def is_about(incident: Incident, document: JobDocument) -> bool:
    """Whether the job is still faulted by the failure of an incident."""
    same = (document.attempt, failure_event(document)) == (incident.attempt, incident.event)
    return document.state is State.FAULTED and same


def failure_event(document: JobDocument) -> str:
    """The event id of a failure: the claim that it ended; for a job lost with its pilots, how often it was lost."""
    return document.last.claim if document.last is not None else f"lost-{document.releases}"
