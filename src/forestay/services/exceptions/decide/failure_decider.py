"""Decides what is done about the failure of a job: by a rule, or where none concludes by the default policy. Nothing is done here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.default_policy import (
    FREE_TRIES,
    DefaultAction,
    DefaultAnswer,
    default_answer,
    is_lost,
)
from forestay.domain.exceptions.incidents.dispatcher import Dispatcher, FailureRoute, can_roll_back
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Decision, Incident
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.playbooks.action import RetryByPolicy, Rollback
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep, actions_of
from forestay.domain.playbooks.playbook_plain import playbook_as_plain
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.failure_context import failure_context
from forestay.services.flows.flow_store import FlowStore
from forestay.services.rules.playbook_store import PlaybookStore, concluded_in_place
from forestay.services.rules.rule_cache import RuleCache
from forestay.services.rules.rule_decision import DEFAULT_POLICY, PLAYBOOK, decision_by_rule, shadow_said

__all__ = ["DEFAULT_POLICY", "FRESH", "PLAYBOOK", "FailureDecider"]
FRESH = 0.5
"""Seconds that the copy of the rules may be old."""


class FilePolicy(Protocol):
    """What the default policy does about a failure that is about files."""

    async def answer(self, document: JobDocument, evidence: Evidence, finding: CauseFinding) -> Playbook | None: ...


@dataclass(slots=True)
class FailureDecider:
    """The service."""

    flows: FlowStore
    rules: RuleCache | None = None
    playbooks: PlaybookStore | None = None
    """Those that rules conclude by their names."""
    free_tries: Sequence[int] = FREE_TRIES
    dispatcher: Dispatcher = field(default_factory=Dispatcher)
    """Where a failure goes for which no rule concludes."""
    files: FilePolicy | None = None
    """Answers failures that are about files, before the job's own policy does; None: nobody."""

    async def get_ready(self) -> None:
        """Look at the rules, unless that was just done. `Transient` if the store does not answer: nobody decides by half of them."""
        if self.rules is not None and self.rules.age > FRESH:
            await self.rules.refresh()

    @property
    def rules_seen(self) -> int:
        """Grows when there are new rules."""
        return self.rules.taken_over if self.rules is not None else 0

    async def decide(
        self, document: JobDocument, evidence: Evidence, finding: CauseFinding, incident: Incident, now: int
    ) -> Decision:
        """The first decision on an incident."""
        if self.rules is None:
            return await self._by_default_policy(document, evidence, finding, incident, now)
        # By its name: rule sets are of all versions of a flow.
        flow, task = await self.flows.name_of(document), incident.instance
        context = failure_context(document, finding, evidence, flow=flow, task=task, now=now)
        active, shadow = self.rules.decide(document.tenant, flow, ExceptionType.ABORT, task, context)
        seen = {"shadow": shadow_said(shadow)} if shadow is not None else {}
        if active.verdict is ConditionVerdict.FALSE:
            return await self._by_default_policy(document, evidence, finding, incident, now, **seen)
        if self.playbooks is None:
            playbook = concluded_in_place(active.conclusion, ExceptionType.ABORT)
        else:
            playbook = await self.playbooks.concluded(document.tenant, active.conclusion, ExceptionType.ABORT)
        return decision_by_rule(incident, active, playbook, now, seen=seen)

    async def _by_default_policy(
        self,
        document: JobDocument,
        evidence: Evidence,
        finding: CauseFinding,
        incident: Incident,
        now: int,
        **more: Any,
    ) -> Decision:
        own = default_answer(document, finding, self.free_tries)
        sent = self.dispatcher.send(finding)
        way = sent.way
        if way is FailureRoute.OWN and self.files is not None and not is_lost(document):
            playbook = await self.files.answer(document, evidence, finding)
            if playbook is not None:
                acts = ", ".join(actions_of(playbook.steps))
                detail = {"words": f"{finding.cause} failure of files: {acts}", **more}
                plain = playbook_as_plain(playbook)
                return Decision(
                    incident.id, 1, incident.tenant, now, PLAYBOOK, DEFAULT_POLICY, playbook=plain, detail=detail
                )
        if way is FailureRoute.OWN or is_lost(document):
            return _answered(incident, own, now, **more)
        if way is FailureRoute.RETRY or (way is FailureRoute.ROLLBACK and can_roll_back(document)):
            do = RetryByPolicy(sent.retry_policy) if way is FailureRoute.RETRY else Rollback()
            climbing = playbook_as_plain(Playbook("default", (PlaybookStep(do),)))
            detail = {"words": sent.words, **more}
            return Decision(
                incident.id, 1, incident.tenant, now, PLAYBOOK, DEFAULT_POLICY, playbook=climbing, detail=detail
            )
        course = DefaultAction.HOLD if way is FailureRoute.HOLD else DefaultAction.FAIL
        return _answered(incident, DefaultAnswer(course, sent.words), now, **more)


def _answered(incident: Incident, answer: DefaultAnswer, now: int, **more: Any) -> Decision:
    detail = {"words": answer.words, "wait": answer.wait, "charged": answer.charged} | more
    return Decision(incident.id, 1, incident.tenant, now, answer.course.value, DEFAULT_POLICY, detail=detail)
