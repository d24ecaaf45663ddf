"""Decides what is done about the fault of a job: by a rule, or where none concludes by the house's policy. Nothing is done here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.domain.exlets.exlet import Exlet
from holdfast.domain.exlets.exlet_plain import exlet_as_plain, version_of
from holdfast.domain.faults.cause import Finding
from holdfast.domain.faults.evidence import Evidence
from holdfast.domain.faults.exception_type import ExceptionType
from holdfast.domain.faults.house_policy import FREE_TRIES, Course, HouseAnswer, house_answer
from holdfast.domain.faults.incident import Decision, Incident
from holdfast.domain.jobs.job_document import JobDocument
from holdfast.domain.rules.condition import Verdict
from holdfast.domain.rules.fault_context import fault_context
from holdfast.domain.rules.rule_set import Ruling
from holdfast.ports.errors import NotFound
from holdfast.services.keep_exlets import KeepExlets, concluded_in_place
from holdfast.services.keep_flows import KeepFlows
from holdfast.services.rule_cache import RuleCache

HOUSE = "house policy"
EXLET = "exlet"
"""The verdict of a decision that has an exlet; the house's are those of `Course`."""
FRESH = 0.5
"""Seconds that the copy of the rules may be old."""


@dataclass(slots=True)
class DecideFaults:
    """The service."""

    flows: KeepFlows
    rules: RuleCache | None = None
    exlets: KeepExlets | None = None
    """Those that rules conclude by their names."""
    free_tries: Sequence[int] = FREE_TRIES

    async def get_ready(self) -> None:
        """Look at the rules, unless that was just done. `Transient` if the store does not answer: nobody decides by half of them."""
        if self.rules is not None and self.rules.age > FRESH:
            await self.rules.refresh()

    @property
    def rules_seen(self) -> int:
        """Grows when there are new rules."""
        return self.rules.taken_over if self.rules is not None else 0

    async def decide(
        self, document: JobDocument, evidence: Evidence, finding: Finding, incident: Incident, now: int
    ) -> Decision:
        """The first decision on an incident."""
        house = house_answer(document, finding, self.free_tries)
        if self.rules is None:
            return _of_house(incident, house, now)
        flow, task = await self._flow(document), incident.item
        context = fault_context(document, finding, evidence, flow=flow, task=task, now=now)
        active, shadow = self.rules.decide(document.tenant, flow, ExceptionType.ABORT, task, context)
        seen = {"shadow": _shadow(shadow)} if shadow is not None else {}
        if active.verdict is Verdict.FALSE:
            return _of_house(incident, house, now, **seen)
        if self.exlets is None:
            exlet = concluded_in_place(active.conclusion, ExceptionType.ABORT)
        else:
            exlet = await self.exlets.concluded(document.tenant, active.conclusion, ExceptionType.ABORT)
        return _of_rule(incident, active, exlet, now, **seen)

    async def _flow(self, document: JobDocument) -> str:
        """The name of the job's flow: rule sets are of all its versions."""
        if document.tie is None:
            return ""
        try:
            return (await self.flows.plan(document.tenant, document.tie.flow)).flow.name
        except NotFound:
            return ""


def _of_house(incident: Incident, answer: HouseAnswer, now: int, **more: Any) -> Decision:
    detail = {"words": answer.words, "wait": answer.wait, "charged": answer.charged} | more
    return Decision(incident.id, 1, incident.tenant, now, answer.course.value, HOUSE, detail=detail)


def _of_rule(incident: Incident, ruling: Ruling, exlet: Exlet | str, now: int, **more: Any) -> Decision:
    by = ruling.by
    assert by is not None  # noqa: S101 - it concluded or erred
    path = [{"rule": one.rule, "verdict": one.verdict.value, "message": one.message} for one in by.walk.path]
    detail = {"rule_set": str(by.rule_set), "version": by.version, "tree": str(by.key), "path": path} | more
    if ruling.verdict is Verdict.ERROR:
        said = f"rule {ruling.flagged} of {by.rule_set} erred ({by.walk.path[-1].message}); nothing acts before someone has looked"
        return _held(incident, f"{by.rule_set}#{ruling.flagged}", said, detail, now)
    name = f"{by.rule_set}#{ruling.rule}"
    if isinstance(exlet, str):
        return _held(incident, name, exlet, detail, now)
    detail |= {"words": f"rule {name}"}
    if ruling.conclusion is not None and ruling.conclusion.exlet:
        detail |= {"exlet": exlet.name, "exlet_version": version_of(exlet)}
    return Decision(incident.id, 1, incident.tenant, now, EXLET, name, exlet=exlet_as_plain(exlet), detail=detail)


def _held(incident: Incident, by: str, words: str, detail: dict[str, Any], now: int) -> Decision:
    detail |= {"words": words, "wait": 0, "charged": True}
    return Decision(incident.id, 1, incident.tenant, now, Course.HOLD.value, by, detail=detail)


def _shadow(ruling: Ruling) -> dict[str, Any]:
    """What the rules would have said with those that do not act yet."""
    by = ruling.by
    if by is None:
        return {"verdict": ruling.verdict.value}
    steps = [dict(one) for one in ruling.conclusion.steps] if ruling.conclusion is not None else []
    rule = ruling.flagged if ruling.verdict is Verdict.ERROR else ruling.rule
    return {
        "verdict": ruling.verdict.value,
        "rule": f"{by.rule_set}#{rule}",
        "steps": steps,
        "exlet": ruling.conclusion.exlet if ruling.conclusion is not None else "",
    }
