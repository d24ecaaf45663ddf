"""A failure on its way: the job, where its incident stands, and what was decided; and what each of them comes to as a request, a sign or a write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.default_policy import DefaultAction, DefaultAnswer, carried_out
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentStatus
from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE, retries_told
from forestay.domain.exceptions.safeguards.approval_policy import Approval
from forestay.domain.exceptions.safeguards.job_cost import cost_of
from forestay.domain.exceptions.safeguards.safeguards import ActionRequest, Chain
from forestay.domain.exceptions.safeguards.storm import FailureSignature, sign_of
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import Event, TransitionRefused
from forestay.domain.playbooks.playbook import Playbook
from forestay.domain.playbooks.playbook_plain import playbook_from_plain
from forestay.services.exceptions.decide.failure_decider import PLAYBOOK
from forestay.services.shared.checked_writer import ProposedWrite


class PendingFailure(NamedTuple):
    """A failure on its way."""

    document: JobDocument
    status: IncidentStatus
    decision: Decision
    incident: Incident | None = None
    """None: it was recorded before, and is read when someone needs it."""
    site: str = ""

    @property
    def id(self) -> str:
        return self.status.id

    @property
    def by_rule(self) -> bool:
        return self.decision.verdict == PLAYBOOK

    @property
    def retried(self) -> bool:
        """Whether the default policy wants to try the job again."""
        return self.decision.verdict == DefaultAction.RETRY

    @property
    def acts(self) -> bool:
        """Whether it makes load that was not asked for, and so needs a permit."""
        return self.by_rule or self.retried

    @property
    def playbook(self) -> Playbook:
        assert self.decision.playbook is not None  # noqa: S101 - its verdict says so
        return playbook_from_plain(self.decision.playbook)

    @property
    def default_answer(self) -> DefaultAnswer:
        """The default answer as it was recorded."""
        detail: Mapping[str, Any] = self.decision.detail
        return DefaultAnswer(
            DefaultAction(self.decision.verdict), detail["words"], detail["wait"], charged=detail["charged"]
        )

    @property
    def told(self) -> Mapping[str, object]:
        """The evidence, where the incident is at hand."""
        evidence = self.incident.context.get("evidence") if self.incident is not None else None
        return evidence if isinstance(evidence, Mapping) else {}

    @property
    def sign(self) -> FailureSignature:
        last = self.document.last
        host = last.host if last is not None else ""
        return sign_of(self.status.cause, owner=self.document.owner, site=self.site, host=host)

    def stands_in(self, document: JobDocument) -> bool:
        """It is this very failure, and nobody has answered it."""
        before = self.document
        return document.state is State.FAULTED and document.attempt == before.attempt and document.last == before.last

    def request(self, chain: Chain, approval: Approval | None = None) -> ActionRequest:
        """What the safeguards are asked."""
        document = self.document
        steps = self.playbook.steps if self.by_rule else ()
        acts = [(step.action.value, str(getattr(step.do, "target", ""))) for step in steps]
        (action, target), *also = acts or [("retry", "job")]
        return ActionRequest(
            tenant=document.tenant,
            owner=document.owner,
            job=document.id,
            attempt=document.attempt,
            sign=self.sign,
            action=action,
            target=target,
            rule=self.decision.by if self.by_rule else "",
            rule_owner=str(self.decision.detail.get("rule_owner", "")),
            core_seconds=cost_of(document),
            charged=self.status.cause not in INFRASTRUCTURE,
            chain=chain,
            also=tuple(also),
            decision=self.decision.id,
            approval=approval,
        )

    def proposed_write(self, now: int) -> ProposedWrite:
        """The default answer as a write on the job."""

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if not self.stands_in(document):
                return TransitionRefused("the job has changed")
            retries = retries_told(self.told, document.labels)
            return carried_out(
                document, self.default_answer, now=now, by=self.decision.by, cause=self.status.cause, retries=retries
            )

        return ProposedWrite(self.document.id, decide, lambda document: not self.stands_in(document))

    def parked(self, until: int, now: int) -> ProposedWrite:
        """The failure is not due before then."""

        def decide(document: JobDocument) -> JobDocument | TransitionRefused:
            if not self.stands_in(document):
                return TransitionRefused("the job has changed")
            return document if document.not_before == until else document.having(not_before=until, changed=now)

        return ProposedWrite(self.document.id, decide, lambda document: not self.stands_in(document))


def pilot_of(document: JobDocument) -> str:
    """The pilot whose attempt it was, as the job's story has it; empty if nobody knows any more."""
    return next((line.by for line in reversed(document.history) if line.event == Event.CLAIM), "")
