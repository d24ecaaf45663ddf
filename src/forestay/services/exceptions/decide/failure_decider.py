"""Decides what is done about the fault of a job: by a rule, or where none concludes by the house's policy. Nothing is done here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.domain.exceptions.incidents.dispatcher import Dispatcher, FailureRoute, can_roll_back
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.house_policy import (
    FREE_TRIES,
    DefaultAction,
    HouseAnswer,
    house_answer,
    is_lost,
)
from forestay.domain.exceptions.incidents.incident import Decision, Incident
from forestay.domain.exlets.exlet import Exlet, PlaybookStep, actions_of
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.exlets.primitive import ClimbLadder, Rollback
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.fault_context import fault_context
from forestay.services.flows.flow_store import FlowStore
from forestay.services.rules.playbook_store import PlaybookStore, concluded_in_place
from forestay.services.rules.rule_cache import RuleCache
from forestay.services.rules.rule_decision import EXLET, HOUSE, decision_by_rule, shadow_said

__all__ = ["EXLET", "FRESH", "HOUSE", "FailureDecider"]
FRESH = 0.5
"""Seconds that the copy of the rules may be old."""


class FilePolicy(Protocol):
    """What the house does about a fault that is about files."""

    async def answer(self, document: JobDocument, evidence: Evidence, finding: CauseFinding) -> Exlet | None: ...


@dataclass(slots=True)
class FailureDecider:
    """The service."""

    flows: FlowStore
    rules: RuleCache | None = None
    exlets: PlaybookStore | None = None
    """Those that rules conclude by their names."""
    free_tries: Sequence[int] = FREE_TRIES
    dispatcher: Dispatcher = field(default_factory=Dispatcher)
    """Where a fault goes for which no rule concludes."""
    files: FilePolicy | None = None
    """Answers faults that are about files, before the job's own policy does; None: nobody."""

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
            return await self._of_house(document, evidence, finding, incident, now)
        # By its name: rule sets are of all versions of a flow.
        flow, task = await self.flows.name_of(document), incident.item
        context = fault_context(document, finding, evidence, flow=flow, task=task, now=now)
        active, shadow = self.rules.decide(document.tenant, flow, ExceptionType.ABORT, task, context)
        seen = {"shadow": shadow_said(shadow)} if shadow is not None else {}
        if active.verdict is ConditionVerdict.FALSE:
            return await self._of_house(document, evidence, finding, incident, now, **seen)
        if self.exlets is None:
            exlet = concluded_in_place(active.conclusion, ExceptionType.ABORT)
        else:
            exlet = await self.exlets.concluded(document.tenant, active.conclusion, ExceptionType.ABORT)
        return decision_by_rule(incident, active, exlet, now, seen=seen)

    async def _of_house(
        self,
        document: JobDocument,
        evidence: Evidence,
        finding: CauseFinding,
        incident: Incident,
        now: int,
        **more: Any,
    ) -> Decision:
        own = house_answer(document, finding, self.free_tries)
        sent = self.dispatcher.send(finding)
        way = sent.way
        if way is FailureRoute.OWN and self.files is not None and not is_lost(document):
            exlet = await self.files.answer(document, evidence, finding)
            if exlet is not None:
                acts = ", ".join(actions_of(exlet.steps))
                detail = {"words": f"{finding.cause} failure of files: {acts}", **more}
                plain = exlet_as_plain(exlet)
                return Decision(incident.id, 1, incident.tenant, now, EXLET, HOUSE, exlet=plain, detail=detail)
        if way is FailureRoute.OWN or is_lost(document):
            return _answered(incident, own, now, **more)
        if way is FailureRoute.LADDER or (way is FailureRoute.ROLLBACK and can_roll_back(document)):
            do = ClimbLadder(sent.ladder) if way is FailureRoute.LADDER else Rollback()
            climbing = exlet_as_plain(Exlet("house", (PlaybookStep(do),)))
            detail = {"words": sent.words, **more}
            return Decision(incident.id, 1, incident.tenant, now, EXLET, HOUSE, exlet=climbing, detail=detail)
        course = DefaultAction.HOLD if way is FailureRoute.HOLD else DefaultAction.FAIL
        return _answered(incident, HouseAnswer(course, sent.words), now, **more)


def _answered(incident: Incident, answer: HouseAnswer, now: int, **more: Any) -> Decision:
    detail = {"words": answer.words, "wait": answer.wait, "charged": answer.charged} | more
    return Decision(incident.id, 1, incident.tenant, now, answer.course.value, HOUSE, detail=detail)
