"""An exception on its way through the pipeline: as it was raised by our flows, a reconciler or another engine; the incident made from it; and, with its status and decision, the request to the safeguards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from forestay.domain.exceptions.incidents.default_policy import DefaultAction
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    FINDING,
    MAX_DOCUMENT,
    OWN_ENGINE,
    PLAYBOOK,
    Decision,
    Incident,
    IncidentStatus,
    incident_id,
    with_fingerprint,
)
from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE
from forestay.domain.exceptions.safeguards.safeguards import ActionRequest, Chain, cost_of
from forestay.domain.exceptions.safeguards.storm import FailureSignature, sign_of
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.playbooks.playbook import Playbook, playbook_from_plain

ROOM = MAX_DOCUMENT * 3 // 4
"""The most bytes of an incident's context; the rest of the document needs space too."""
_DATA = (("run", "data"), ("task", "data"), ("evidence", "more"), ("external",), ("job", "parameters"), ("tasks",))
"""The groups that may be large, in the order in which they are left out when there is too much."""


@dataclass(frozen=True, slots=True)
class ExceptionEvent:
    """An exception to be answered."""

    kind: ExceptionType
    tenant: str
    owner: str
    event: str
    """The source's own id of the event: the same event, raised again, is the same incident."""
    at: int
    """Milliseconds since 1970."""
    engine: str = OWN_ENGINE
    run: str = ""
    instance: str = ""
    task: str = ""
    """The task of the flow, whose tree is asked; empty: the name of the instance."""
    job: str = ""
    attempt: int = 0
    round: int = 0
    flow: str = ""
    """The version of the run's flow."""
    flow_name: str = ""
    """The flow's name: rule sets apply to all versions."""
    cause: str = "unknown"
    parent: str = ""
    """The incident whose playbook started the run."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """The data that the rules see, in groups as conditions name them: ``{"run": {"data": {…}}, "task": {…}, "tasks": {…}}``."""

    @property
    def id(self) -> str:
        """The id of its incident."""
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
        """The task whose rules are evaluated; empty for a run."""
        return "" if self.kind.of_run else self.task or self.instance


def incident_raised(raised: ExceptionEvent, external: Mapping[str, object]) -> Incident:
    """The incident, with everything that the decision depends on, so that it can be repeated. `external`: the values of external sources."""
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
    """As many of the facts as fit into an incident. A rule that uses omitted data errs, and a person is asked: nothing acts on partial data."""
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


@dataclass(frozen=True, slots=True)
class PendingException:
    """An exception with its decision."""

    incident: Incident
    status: IncidentStatus
    decision: Decision
    job: JobDocument | None = None
    """The failed job, where the exception is the failure of one of our jobs."""
    site: str = ""
    """The site of the failed attempt's pilot."""
    core_seconds: int = 0
    """The cost of the actions, if they run a job again."""
    by_person: bool = False
    """A person decided: the safeguards are not checked."""
    playbook: Playbook | None = field(init=False)
    """The playbook of the decision; None: at most one write on the job."""
    sign: FailureSignature = field(init=False)
    """The signature that it shares with similar failures."""
    id: str = field(init=False)
    """The id of its incident."""

    def __post_init__(self) -> None:
        plain, job = self.decision.playbook, self.job
        object.__setattr__(self, "playbook", None if plain is None else playbook_from_plain(plain))
        host = job.last.host if job is not None and job.last is not None else ""
        sign = (
            signature_of(self.incident)
            if job is None
            else sign_of(self.status.cause, owner=job.owner, site=self.site, host=host)
        )
        object.__setattr__(self, "sign", sign)
        object.__setattr__(self, "id", self.incident.id)

    @property
    def needs_permit(self) -> bool:
        """Whether it causes load that no person requested."""
        return not self.by_person and (self.playbook is not None or self._is_retry)

    @property
    def by_rule(self) -> bool:
        return self.decision.verdict == PLAYBOOK

    def request(self, chain: Chain) -> ActionRequest:
        """The request to the safeguards."""
        incident, job = self.incident, self.job
        steps = self.playbook.steps if self.playbook is not None else ()
        actions = [(step.do.action.value, str(getattr(step.do, "target", ""))) for step in steps]
        (action, target), *also = actions or [("retry", "job")]
        return ActionRequest(
            tenant=incident.tenant,
            owner=incident.owner,
            job=incident.job or incident.id,
            attempt=incident.attempt,
            sign=self.sign,
            action=action,
            target=target,
            rule=self.decision.by if self.playbook is not None else "",
            rule_owner=str(self.decision.detail.get("rule_owner", "")),
            core_seconds=self.core_seconds if job is None else cost_of(job),
            charged=job is None or self.status.cause not in INFRASTRUCTURE,
            chain=chain,
            also=tuple(also),
            fingerprint=self.status.fingerprint,
            decision=self.decision.id,
        )

    @property
    def _is_retry(self) -> bool:
        return self.job is not None and self.decision.verdict == DefaultAction.RETRY


def is_job_failure(status: IncidentStatus) -> bool:
    """Whether it is the failure of one of our jobs: the status of another engine's failure has no job."""
    return status.kind is ExceptionType.ABORT and bool(status.job)


def is_foreign_failure(incident: Incident) -> bool:
    """Whether a task of another engine failed."""
    return incident.engine != OWN_ENGINE and incident.kind is ExceptionType.ABORT and bool(incident.instance)


def signature_of(incident: Incident) -> FailureSignature:
    """The signature by which exceptions are grouped: failures by their cause, others by their type."""
    if is_foreign_failure(incident):
        return sign_of(incident.cause, owner=incident.owner)
    return FailureSignature(incident.kind.value)
