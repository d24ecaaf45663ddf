"""Proposes rules: from what recovered past failures, and from what people did by hand. Each proposal is replayed over all incidents before it is shown,
and none acts by itself.

Two passes over the incidents: the first counts what helped (`domain.rules.proposal`), the second replays the proposals, each as if it alone answered the
incidents that match its condition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.rules.answer import answer_of_conclusion
from forestay.domain.rules.context import read_context, told_by
from forestay.domain.rules.proposal import FINGERPRINT, OF_ONE_ERROR, SPLITS, Proposal, Proposals, worth
from forestay.domain.rules.replay import Replay
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, decide
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.services.rules.rule_editor import check_conclusion
from forestay.services.rules.rule_replay import Progress, ReplayedIncident, ReplayRequest, RuleReplay, acting
from forestay.services.shared.document_update import update_document

KIND = "dismissed-proposals"
MOST_DISMISSED = 500
MOST = 20
"""The most proposals that are replayed and shown; those with the most support."""


def _name(rule_set: RuleSetId) -> str:
    return f"{KIND}:{rule_set.tenant}:{rule_set}"


class Proposed(NamedTuple):
    """A proposal, and the result of its replay."""

    proposal: Proposal
    report: Replay


@dataclass(frozen=True, slots=True)
class FoundProposals:
    """The proposals, and the number of incidents that were searched."""

    question: ReplayRequest
    proposals: tuple[Proposed, ...]
    incidents: int
    whole: bool


@dataclass(slots=True)
class RuleProposals:
    """The service."""

    replaying: RuleReplay
    documents: DocumentStore
    quiet: Callable[[str, Mapping[str, int]], Awaitable[frozenset[str]]]
    """The errors of a tenant, among those given with their last time, that are snoozed or resolved: nothing is proposed for them."""

    async def dismissed(self, rule_set: RuleSetId) -> frozenset[str]:
        """The dismissed proposals of a set."""
        name = _name(rule_set)
        stored = (await self.documents.get([name])).get(name)
        return frozenset(stored.document.body) if stored is not None else frozenset()

    async def dismiss(self, rule_set: RuleSetId, proposal: str, *, by: str, why: str) -> None:
        """Do not offer a proposal again. If there are very many, the oldest are forgotten."""
        name, at = _name(rule_set), self.replaying.clock.now()

        def changed(stored: StoredDocument | None) -> tuple[Document, None]:
            known = dict(stored.document.body) if stored is not None else {}
            known.pop(proposal, None)
            kept = dict([*known.items(), (proposal, {"by": by, "at": at, "why": why})][-MOST_DISMISSED:])
            return Document(name, rule_set.tenant, KIND, kept), None

        await update_document(self.documents, name, changed, unsure="it is not certain that this was recorded")

    async def propose(self, question: ReplayRequest, progress: Progress = lambda _: None) -> FoundProposals:
        """Rules that may be added to a set."""
        return await self.replaying.alone(lambda: self._propose(question, progress))

    async def _propose(self, question: ReplayRequest, progress: Progress) -> FoundProposals:
        seen, looked = Proposals(splits=OF_ONE_ERROR if question.fingerprint else SPLITS), 0
        last_seen: dict[str, int] = {}

        async def count(replayed_incident: ReplayedIncident) -> None:
            nonlocal looked
            looked += 1
            seen.take(
                replayed_incident.incident.id,
                replayed_incident.incident.kind,
                replayed_incident.facts,
                replayed_incident.attempt,
                replayed_incident.outcome,
                by_person=replayed_incident.decision is not None and replayed_incident.decision.by_person,
            )
            error = replayed_incident.facts.get(FINGERPRINT)
            if isinstance(error, str) and error:
                last_seen.setdefault(error, replayed_incident.incident.at)

        whole = await self.replaying.look(question, count, lambda many: progress(many // 2))
        rule_set = acting(await self.replaying.rules.load(question.rule_set))
        tenant, made = question.rule_set.tenant, seen.made()
        dismissed = await self.dismissed(question.rule_set)
        errors = {name: last_seen[name] for proposal in made if (name := proposal.fingerprint) in last_seen}
        quiet = await self.quiet(tenant, errors) if errors else frozenset[str]()
        wanted = [
            proposal
            for proposal in made
            if proposal.id not in dismissed
            and proposal.fingerprint not in quiet
            and await self._is_new(rule_set, proposal)
        ][:MOST]
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
        """Whether the set, including its shadow rules, does not have such a rule already, and the condition passes the sandbox."""
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
