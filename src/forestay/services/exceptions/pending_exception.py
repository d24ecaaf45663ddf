"""An exception on its way through the pipeline: its incident and status, the decision, and the request to the safeguards."""

from __future__ import annotations

from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.default_policy import DefaultAction
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE, PLAYBOOK, Decision, Incident, IncidentStatus
from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE
from forestay.domain.exceptions.safeguards.safeguards import ActionRequest, Chain, cost_of
from forestay.domain.exceptions.safeguards.storm import FailureSignature, sign_of
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.playbooks.playbook import Playbook, playbook_from_plain


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
