"""Rules are replayed over recorded incidents on every store."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from tests.contract.room import Stores
from tests.unit.services.recorded import HOUR, Story, record

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.error_triage import TriageAct
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import status_of
from forestay.domain.jobs.job_document import State
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.rules.answer import AnswerKind
from forestay.domain.rules.incident_outcome import OutcomeKind
from forestay.domain.rules.replay import DecisionError
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.errors import NotFound
from forestay.services.exceptions.inbox.error_triages import ErrorTriages
from forestay.services.flows.flow_store import FlowStore
from forestay.services.rules import rule_replay
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_promotion import NotPromoted, RulePromotion
from forestay.services.rules.rule_proposals import RuleProposals
from forestay.services.rules.rule_replay import NotReplayed, Replayed, ReplayRequest, RuleReplay
from forestay.services.rules.rule_store import RuleCache, RuleStore

DEFAULT_POLICY = RuleSetId("lab", RuleSetLevel.DOMAIN, "site")
HOLD = {"action": "hold"}
RETRY = {"action": "retry"}
MORE = {"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 2.0, "at_most": 1 << 40}}}
STORIES = [
    Story("n1", ["node"]),
    Story("n2", ["node", "node"]),
    Story("c1", ["code", "code"], end=State.FAILED, decisions=["retry", "fail"]),
    Story("c2", ["code"], end=State.FAILED, decisions=["fail"]),
    Story("m1", [{"cause": "memory", "by": "ann"}], decisions=["hold"], memory=1 << 31),
    Story("x1", ["node"], tenant="other"),
]


class Desk:
    def __init__(self, stores: Stores, sandbox: CelSandbox) -> None:
        numbers = count(1)
        clock, conditions, rules = SystemClock(), CelConditions(), RuleStore(stores.documents)
        self.stores = stores
        self.edit = RuleEditor(rules, conditions, sandbox, clock, lambda: f"r{next(numbers)}")
        self.replaying = RuleReplay(
            stores.incidents, stores.jobs, FlowStore(stores.jobs, clock), rules,
            RuleCache(RuleStore(stores.documents), conditions), conditions, sandbox, clock,
        )  # fmt: skip
        self.promoting = RulePromotion(self.edit, self.replaying)
        self.proposing = RuleProposals(self.replaying, stores.documents, ErrorTriages(stores.documents, clock).quiet)

    def draft(self, condition: str, context: dict[str, Any], *steps: dict[str, Any]) -> RuleDraft:
        return RuleDraft(
            DEFAULT_POLICY,
            ExceptionType.ABORT,
            "",
            condition,
            Conclusion(steps=steps),
            f"i-{context['cause']}",
            context,
        )

    async def add(self, condition: str, context: dict[str, Any], *steps: dict[str, Any]) -> str:
        done = await self.edit.add(self.draft(condition, context, *steps), by="ann", confirmed=True)
        assert isinstance(done, Edited), done
        return done.rule

    async def replay(self, **question: Any) -> Replayed:
        done = await self.replaying.replay(ReplayRequest(DEFAULT_POLICY, **question))
        assert isinstance(done, Replayed), done
        return done


@pytest.fixture(scope="module")
def sandbox() -> Any:
    sandbox = CelSandbox()
    yield sandbox
    sandbox.end()


@pytest.fixture
async def desk(stores: Stores, sandbox: CelSandbox) -> Desk:
    return Desk(stores, sandbox)


@pytest.mark.ledger("P1-34")
async def test_what_would_differ_what_would_be_wrong_and_what_it_costs(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_replay, "PAGE", 3)
    monkeypatch.setattr(rule_replay, "BUNCH", 2)
    names = await record(desk.stores.jobs, desk.stores.incidents, *STORIES)
    before = (await desk.replay()).report
    assert (before.incidents, before.same, before.differs, before.by_rule) == (7, 7, 0, 0)
    await desk.add('cause == "node"', {"cause": "node"}, HOLD)
    await desk.add('cause == "code"', {"cause": "code"}, HOLD)
    await desk.add('cause == "memory"', {"cause": "memory"}, MORE)
    acting = (await desk.replay(acting=True)).report
    assert (acting.differs, acting.by_rule) == (0, 0), "shadows do not act"
    seen: list[int] = []
    done = await desk.replaying.replay(ReplayRequest(DEFAULT_POLICY), seen.append)
    assert isinstance(done, Replayed)
    report = done.report
    assert seen[-1] == 7
    assert (report.incidents, report.by_rule, report.differs, report.same) == (7, 7, 7, 0)
    assert report.came == {
        OutcomeKind.RECOVERED: 3,
        OutcomeKind.AGAIN: 1,
        OutcomeKind.GIVEN_UP: 2,
        OutcomeKind.BY_HAND: 1,
    }
    assert report.wrong == {DecisionError.STOPS: 3}, "a node that was lost was made up for by a further try"
    node, code, memory = (report.rules[f"domain/site#r{place}"] for place in (1, 2, 3))
    assert (node.answered, sum(node.wrong.values()), code.answered, sum(code.wrong.values())) == (3, 3, 3, 0)
    assert (memory.right, memory.spent) == (1, 0), "more memory is what the person's try had"
    assert node.examples
    assert set(node.examples) <= {*names["n1"], *names["n2"]}
    # The second try of c1 ran for 600 s on two cores, and would not have been made.
    assert (code.saved, report.saved, report.spent) == (1200, 1200, 0)
    ways = {(key.cause, key.then, key.now): group.count for key, group in report.groups.items()}
    assert ways[("code", AnswerKind.RETRY, AnswerKind.HOLD)] == 1
    assert ways[("code", AnswerKind.FAIL, AnswerKind.HOLD)] == 2
    assert ways[("memory", AnswerKind.HOLD, AnswerKind.CHANGED)] == 1


@pytest.mark.ledger("P1-34")
async def test_drafts_versions_and_times(desk: Desk) -> None:
    at = STORIES[0].at
    late = Story("late", ["code"], end=State.FAILED, decisions=["fail"], at=at + 100 * HOUR)
    await record(desk.stores.jobs, desk.stores.incidents, *STORIES, late)
    draft = desk.draft('cause == "code"', {"cause": "code"}, RETRY)
    done = await desk.replay(drafts=[draft])
    (name,) = done.drafts
    assert done.version == 0
    tally = done.report.rules[name]
    assert (tally.answered, tally.differs, tally.wrong) == (4, 3, {DecisionError.IN_VAIN: 1})
    assert tally.spent == 3 * 1200, "three further tries, each as long as the one that failed"
    assert (await desk.replay(since=at + 50 * HOUR)).report.incidents == 1
    until = await desk.replay(until=at + 2 * HOUR)
    assert until.report.incidents == 5, "the first of each job"
    assert until.report.came[OutcomeKind.AGAIN] == 1, "what came after the time still tells what came of it"
    newest = await desk.replay(most=3)
    assert (newest.report.incidents, newest.whole) == (3, False)
    wrong = await desk.replaying.replay(
        ReplayRequest(DEFAULT_POLICY, drafts=[desk.draft("nope", {"cause": "code"}, RETRY)])
    )
    assert isinstance(wrong, NotReplayed)
    assert wrong.problems
    untrue = await desk.replaying.replay(
        ReplayRequest(DEFAULT_POLICY, drafts=[desk.draft('cause == "x"', {"cause": "y"}, RETRY)])
    )
    assert isinstance(untrue, NotReplayed)
    with pytest.raises(NotFound):
        await desk.replay(version=9)


@pytest.mark.ledger("P1-34")
async def test_an_error_on_the_path_is_told(desk: Desk) -> None:
    names = await record(desk.stores.jobs, desk.stores.incidents, Story("n1", ["node"]))
    await desk.add('job.labels["queue"] == "long"', {"cause": "x", "job.labels": {"queue": "long"}}, HOLD)
    report = (await desk.replay()).report
    assert (report.errors, report.wrongs) == (1, 0)
    assert [message.incident for message in report.messages] == names["n1"]
    assert report.messages[0].message


@pytest.mark.ledger("P1-34")
async def test_no_rule_acts_before_it_was_replayed(desk: Desk) -> None:
    names = await record(desk.stores.jobs, desk.stores.incidents, *STORIES)
    good = await desk.add('cause == "memory"', {"cause": "memory"}, MORE)
    bad = await desk.add('cause == "node"', {"cause": "node"}, HOLD)
    noted: list[Any] = []

    async def note(summary: Any) -> None:
        noted.append(summary)

    done = await desk.promoting.promote(DEFAULT_POLICY, good, by="ben", about_to=note)
    assert isinstance(done, Edited), done
    assert done.version.replayed is not None
    kept = (await desk.replaying.rules.versions(DEFAULT_POLICY, done.version.number, done.version.number))[0].replayed
    assert kept == done.version.replayed == noted[0]
    assert (kept["incidents"], kept["all"]) == (7, True)
    refused = await desk.promoting.promote(DEFAULT_POLICY, bad, by="ben", about_to=note)
    assert isinstance(refused, NotPromoted)
    assert "would stop a job" in refused.reasons[0]
    assert set(refused.examples) <= {*names["n1"], *names["n2"]}
    without = await desk.promoting.promote(DEFAULT_POLICY, bad, by="ben", confirmed=True, about_to=note)
    assert isinstance(without, NotPromoted), "it wants a reason"
    assert len(noted) == 1
    sure = await desk.promoting.promote(
        DEFAULT_POLICY, bad, by="ben", confirmed=True, reason="nodes are sick", about_to=note
    )
    assert isinstance(sure, Edited)
    assert noted[1]["reason"] == "nodes are sick"
    assert noted[1]["rule"]["wrong"] == 3


@pytest.mark.ledger("P0-30")
async def test_what_helped_again_and_again_is_proposed(desk: Desk) -> None:
    stories = [
        *(Story(f"n{place}", [{"cause": "node", "host": f"h{place}"}], host="other") for place in range(5)),
        Story("n9", [{"cause": "node", "host": "h1"}, {"cause": "node", "host": "h1"}]),
        *(Story(f"c{place}", ["code", "code"], end=State.FAILED, decisions=["retry", "fail"]) for place in range(4)),
        *(Story(f"d{place}", ["disk"], decisions=["hold"]) for place in range(2)),
        *(Story(f"x{place}", [{"cause": "time", "by": "ann", "event": Event.CANCEL}], end=State.CANCELLED, decisions=["hold"]) for place in range(3)),
    ]  # fmt: skip
    await record(desk.stores.jobs, desk.stores.incidents, *stories)
    found_proposals = await desk.proposing.propose(ReplayRequest(DEFAULT_POLICY))
    assert found_proposals.incidents == 5 + 2 + 8 + 2 + 3
    by_cause = {dict(proposed.proposal.facts)["cause"]: proposed for proposed in found_proposals.proposals}
    assert set(by_cause) == {"node", "code", "time"}, "two times are too few"
    node, code, time = by_cause["node"], by_cause["code"], by_cause["time"]
    assert [step["action"] for step in node.proposal.steps] == ["avoid-host", "resubmit"]
    assert (node.proposal.helped, node.proposal.tried, node.report.wrongs) == (6, 6, 0)
    assert (node.report.incidents, node.report.differs) == (7, 7)
    assert code.proposal.steps == ({"action": "hold"},)
    assert (code.proposal.helped, code.report.saved) == (4, 4 * 1200)
    assert time.proposal.steps == ({"action": "force-fail"},)
    assert time.proposal.by_hand == 3
    rules = await desk.replaying.rules.newest(DEFAULT_POLICY)
    assert rules == 0, "nothing is added"


async def test_what_a_person_does_to_one_error_is_offered_until_it_is_dismissed(desk: Desk) -> None:
    def demonstrated(place: int) -> Story:
        failure = {"cause": "unknown", "by": "ann", "log": (f"frob {place} failed in bay",), "exit_code": place}
        return Story(f"f{place}", [failure], decisions=["hold"], memory=1 << 31)

    stories = [demonstrated(place) for place in range(1, 5)]
    await record(desk.stores.jobs, desk.stores.incidents, *stories)
    error = status_of(stories[0].made()[1][0][0]).fingerprint
    request = ReplayRequest(DEFAULT_POLICY)

    async def offered() -> dict[str, Any]:
        proposals = (await desk.proposing.propose(request)).proposals
        return {proposed.proposal.fingerprint: proposed for proposed in proposals if proposed.proposal.fingerprint}

    proposed = (await offered())[error]
    assert proposed.proposal.condition == f'cause == "unknown" && exception.fingerprint == "{error}"'
    needs = {"memory": {"factor": 2.0, "at_most": 1 << 31}}
    assert proposed.proposal.steps == ({"action": "resubmit", "how": "changed", "needs": needs},)
    assert (proposed.proposal.helped, proposed.proposal.by_hand) == (4, 4)
    assert (proposed.report.incidents, proposed.report.differs, proposed.report.wrongs) == (4, 4, 0)
    triages = ErrorTriages(desk.stores.documents, desk.replaying.clock)
    for act, quiet in ((TriageAct.SNOOZE, True), (TriageAct.REOPEN, False), (TriageAct.RESOLVE, True)):
        until = desk.replaying.clock.now() + HOUR if act is TriageAct.SNOOZE else 0
        await triages.say("lab", error, act, by="olga", why="", until=until)
        assert (error not in await offered()) is quiet, act
    # It came back: a regression.
    later = Story("late", stories[0].failures, decisions=["hold"], memory=1 << 31, at=desk.replaying.clock.now() + HOUR)
    await record(desk.stores.jobs, desk.stores.incidents, later)
    again = (await offered())[error]
    assert again.proposal.id == proposed.proposal.id
    await desk.proposing.dismiss(DEFAULT_POLICY, proposed.proposal.id, by="ann", why="it leaks")
    assert error not in await offered()
    other = RuleSetId("lab", RuleSetLevel.DOMAIN, "elsewhere")
    assert (await desk.proposing.dismissed(DEFAULT_POLICY), await desk.proposing.dismissed(other)) == (
        frozenset({proposed.proposal.id}),
        frozenset(),
    )
