"""Proposes rules: from what recovered recorded failures, and from what people did by hand. Each proposal is replayed over all incidents before it is shown, and none ever acts by itself.

Two passes over the incidents: the first counts what helped (`domain.rules.proposal`), the second replays the proposals, each as if it alone answered what its condition is true of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.rules.answer import answer_of_conclusion
from forestay.domain.rules.context import read_context, told_by
from forestay.domain.rules.proposal import Proposal, Proposals, worth
from forestay.domain.rules.replay import Replay
from forestay.domain.rules.rule_set import RuleSet, decide
from forestay.domain.rules.rule_tree import Conclusion
from forestay.services.rules.rule_editor import check_conclusion
from forestay.services.rules.rule_replay import Progress, ReplayedIncident, ReplayRequest, RuleReplay, acting

MOST = 20
"""Proposals that are replayed and shown; those with the most support."""


class Proposed(NamedTuple):
    """A proposal, and what its replay came to."""

    proposal: Proposal
    report: Replay


@dataclass(frozen=True, slots=True)
class FoundProposals:
    """What is proposed, and over how many incidents it was looked for."""

    question: ReplayRequest
    proposals: tuple[Proposed, ...]
    incidents: int
    whole: bool


@dataclass(slots=True)
class RuleProposals:
    """The service."""

    replaying: RuleReplay

    async def propose(self, question: ReplayRequest, progress: Progress = lambda _: None) -> FoundProposals:
        """Rules that may be added to a set."""
        return await self.replaying.alone(lambda: self._propose(question, progress))

    async def _propose(self, question: ReplayRequest, progress: Progress) -> FoundProposals:
        seen, looked = Proposals(), 0

        async def count(replayed_incident: ReplayedIncident) -> None:
            nonlocal looked
            looked += 1
            seen.take(
                replayed_incident.incident.id,
                replayed_incident.incident.kind,
                replayed_incident.facts,
                replayed_incident.attempt,
                replayed_incident.outcome,
            )

        whole = await self.replaying.look(question, count, lambda many: progress(many // 2))
        rule_set = acting(await self.replaying.rules.load(question.rule_set))
        wanted = [proposal for proposal in seen.made() if await self._is_new(rule_set, proposal)][:MOST]
        reports = [Replay(self.replaying.policy, shown=0) for _ in wanted]
        if wanted:
            await self.replaying.look(
                question,
                lambda incident: self._try(wanted, reports, incident),
                lambda many: progress((looked + many) // 2),
            )
        done = [Proposed(proposal, report.finish()) for proposal, report in zip(wanted, reports, strict=True)]
        kept = tuple(
            proposed
            for proposed in done
            if worth(answered=proposed.report.incidents, differs=proposed.report.differs, wrong=proposed.report.wrongs)
        )
        return FoundProposals(question, kept, looked, whole)

    async def _is_new(self, rule_set: RuleSet, proposal: Proposal) -> bool:
        """Whether the set does not say so already, its shadows included; and the condition stands the test of any text from outside."""
        conclusion = Conclusion(steps=proposal.steps)
        if check_conclusion(conclusion, proposal.type):
            return False
        incidents = await self.replaying.incidents.get_incidents([proposal.reference_incident])
        incident = incidents.get(proposal.reference_incident)
        if incident is None:
            return False
        context, _ = read_context(told_by(incident))
        trial = await self.replaying.trying.try_out(proposal.condition, [context])
        if trial.problems or trial.answers != (True,):
            return False
        ruling = decide(
            [rule_set], incident.kind, str(context["exception.task"]), self.replaying.conditions.over(context)
        )
        if ruling.conclusion is None:
            return True
        return not answer_of_conclusion(ruling.conclusion, "").same_as(answer_of_conclusion(conclusion, ""))

    async def _try(
        self, proposals: Sequence[Proposal], reports: Sequence[Replay], replayed_incident: ReplayedIncident
    ) -> None:
        context, _ = read_context(replayed_incident.facts)
        evaluate = self.replaying.conditions.over(context)
        for proposal, report in zip(proposals, reports, strict=True):
            if proposal.type is not replayed_incident.incident.kind:
                continue
            if evaluate(proposal.condition) is True:
                report.take(
                    replayed_incident.incident.id, at=replayed_incident.incident.at, job=replayed_incident.incident.job, attempt=replayed_incident.attempt,
                    then=replayed_incident.then, now=proposal.answer, outcome=replayed_incident.outcome,
                )  # fmt: skip
