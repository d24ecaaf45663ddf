"""Questions to people in a run: who comes first, what a deadline does, what becomes of those that nobody needs any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import AskPerson, CloseQuestion, Command, QuestionOutcome, RunOutcome
from forestay.domain.flows.definition.flow import Deadline, DeadlineAction, Flow, Task, WhenFailed
from forestay.domain.flows.definition.flow_check import check_flow
from forestay.domain.flows.definition.flow_pattern import AskPattern, JobPattern, MergePattern
from forestay.domain.flows.definition.flow_version import flow_as_plain, flow_from_plain, version_of
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.messages import as_plain, command_from_plain
from forestay.domain.flows.execution.run_waits import WaitsOn, waits_for

FORM = {"properties": {"good": {"type": "boolean"}, "note": {"type": "string", "default": "-"}}, "required": ["good"]}
ASK = AskPattern("Is ${params.sample} good?", "It has ${params.reads} reads.", FORM, ("user:${params.who}", "owner"))
PARAMS = {"sample": "s1", "reads": 7, "who": "ben"}
FLOW = Flow(
    "f",
    (
        Task("check", ASK),
        Task("go", JobPattern(("go", "${tasks.check.outputs.note}")), when="tasks.check.outputs.good"),
        Task("told", MergePattern({"by": "${tasks.check.result.by}"})),
    ),
    params=PARAMS,
)


class Watched(World):
    """Remembers the commands about questions, each carried as text; nobody answers but the test."""

    answering = False

    def perform(self, commands: tuple[Command, ...]) -> None:
        if not hasattr(self, "questions"):
            self.questions: list[AskPerson | CloseQuestion] = []
        for command in commands:
            if isinstance(command, AskPerson | CloseQuestion):
                read = command_from_plain(as_plain(command))
                assert read == command
                self.questions.append(command)
        super().perform(commands)

    def answer(self, by: str, task: str = "check", key: str = "", **answer: Any) -> str:
        verb = Verb(self.now, key or f"{by}:{len(self.sent)}", VerbKind.ANSWER, instance=task, by=by, changes=answer)
        self.send(verb)
        known = self.answers[verb.id]
        return "" if known.accepted else known.detail

    def closed(self) -> QuestionOutcome:
        last = self.questions[-1]
        assert isinstance(last, CloseQuestion)
        return last.outcome


def late(
    ask: AskPattern, then: DeadlineAction = DeadlineAction.FAIL, when_failed: WhenFailed = WhenFailed.FAIL
) -> Flow:
    return Flow("f", (Task("check", ask, deadline=Deadline(60, then), when_failed=when_failed),), params=PARAMS)


def test_the_flow_is_right_and_keeps_its_version_through_its_plain_form() -> None:
    assert check_flow(FLOW) == []
    assert flow_from_plain(flow_as_plain(FLOW)) == FLOW
    assert version_of(flow_from_plain(flow_as_plain(FLOW))) == version_of(FLOW)
    whole = late(replace(ASK, default={"good": False}))
    assert flow_from_plain(flow_as_plain(whole)) == whole


def test_a_person_is_asked_with_the_references_filled_in_and_the_answer_is_used_by_later_tasks() -> None:
    world = Watched(FLOW)
    (asked,) = world.questions
    assert isinstance(asked, AskPerson)
    assert (asked.work, asked.instance, asked.round) == ("check@1", "check", 1)
    assert (asked.title, asked.text) == ("Is s1 good?", "It has 7 reads.")
    assert (asked.who, asked.until) == (("user:ben", "owner"), None)
    (wait,) = waits_for(world.run)
    assert (wait.what, wait.instance) == (WaitsOn.ANSWER, "check")
    assert world.answer("ben", good=True) == ""
    world.run_out()
    assert world.finished is not None
    assert world.finished.outcome is RunOutcome.COMPLETED
    assert world.run.instances["check"].outputs == {"good": True, "note": "-"}
    assert world.run.instances["go"].state == "completed"
    assert world.run.instances["told"].outputs == {"by": "ben"}
    assert world.closed() is QuestionOutcome.ANSWERED


def test_the_first_answer_wins_the_second_is_told_who_it_was_and_a_repeat_changes_nothing() -> None:
    world = Watched(FLOW)
    assert world.answer("ben", key="a", good=True) == ""
    assert world.answer("ada", key="b", good=False) == "ben has already answered"
    assert world.answer("ben", key="a", good=True) == ""
    assert len(world.questions) == 2
    assert world.run.instances["go"].state == "running"


def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays_open() -> None:
    world = Watched(FLOW)
    assert world.answer("ben", good="perhaps") == "good: expected true or false"
    assert world.answer("ben", key="long", good=True, note="x" * 4001) == "note: at most 4000 characters are possible"
    assert world.answer("ben", task="go", good=True) == "the task asks no question"
    assert world.run.instances["check"].state == "asking"
    assert world.answer("ben", good=True) == ""


def test_an_answer_larger_than_a_result_may_be_is_refused() -> None:
    form = {"properties": {f"f{n}": {"type": "string"} for n in range(10)}}
    world = Watched(Flow("f", (Task("check", AskPattern("?", form=form)),)))
    assert "larger than" in world.answer("ben", **{f"f{n}": "x" * 4000 for n in range(10)})
    assert world.run.instances["check"].state == "asking"


def test_the_default_is_the_answer_at_the_deadline_and_nothing_is_reported_late() -> None:
    world = Watched(late(replace(ASK, default={"good": False})))
    (asked,) = world.questions
    assert isinstance(asked, AskPerson)
    assert asked.until == world.run.started + 60_000
    world.fire("check@1")
    assert world.finished is not None
    assert world.finished.outcome is RunOutcome.COMPLETED
    assert world.run.instances["check"].outputs == {"good": False, "note": "-"}
    assert world.run.instances["check"].result == {"by": "", "outcome": "default"}
    assert world.closed() is QuestionOutcome.DEFAULT
    assert world.reports == []


@pytest.mark.parametrize("when_failed", [WhenFailed.FAIL, WhenFailed.HOLD])
def test_without_a_default_the_deadline_fails_the_task_and_the_question_expires(when_failed: WhenFailed) -> None:
    world = Watched(late(ASK, when_failed=when_failed))
    world.fire("check@1")
    assert world.closed() is QuestionOutcome.EXPIRED
    assert world.run.instances["check"].state == ("failed" if when_failed is WhenFailed.FAIL else "faulted")
    assert world.answer("ben", good=True) in ("the question is closed: the task is faulted", "the run has ended")


def test_a_deadline_that_only_reports_leaves_the_question_open() -> None:
    world = Watched(late(ASK, DeadlineAction.REPORT))
    world.fire("check@1")
    assert [report.kind for report in world.reports] == ["task-late"]
    assert world.run.instances["check"].state == "asking"
    assert world.answer("ben", good=True) == ""


@pytest.mark.parametrize(
    ("verb", "task", "state"),
    [
        (VerbKind.SKIP, "check", "skipped"),
        (VerbKind.FORCE_COMPLETE, "check", "forced_complete"),
        (VerbKind.REMOVE, "check", "cancelled"),
        (VerbKind.FORCE_FAIL, "", "cancelled"),
        (VerbKind.REMOVE, "", "cancelled"),
    ],
)
def test_a_question_whose_task_is_ended_by_hand_is_withdrawn(verb: VerbKind, task: str, state: str) -> None:
    world = Watched(FLOW)
    world.send(Verb(world.now, "v", verb, instance=task, by="olga"))
    assert world.run.instances["check"].state == state
    assert world.closed() is QuestionOutcome.WITHDRAWN


def test_a_question_that_is_redone_is_withdrawn_and_asked_again_in_a_round_of_its_own() -> None:
    world = Watched(FLOW)
    world.send(Verb(world.now, "v", VerbKind.REDO, instance="check", by="olga"))
    first, closed, second = world.questions
    assert isinstance(closed, CloseQuestion)
    assert (first.work, closed.work, second.work) == ("check@1", "check@1", "check@2")
    old = Verb(world.now, "late", VerbKind.ANSWER, instance="check", by="ben", changes={"good": True}, round=1)
    world.send(old)
    assert world.answers["late"].detail == "the task is in round 2"
    assert world.answer("ben", good=True) == ""


def test_an_answer_is_for_a_task_and_a_suspended_run_takes_it() -> None:
    world = Watched(FLOW)
    assert world.answer("ben", task="", good=True) == "answer applies to tasks only"
    world.send(Verb(world.now, "s", VerbKind.SUSPEND, by="olga"))
    assert world.answer("ben", good=True) == ""
    assert world.run.instances["go"].state == "waiting"


@pytest.mark.parametrize(
    ("task", "where", "words"),
    [
        (Task("a", AskPattern("?", who=())), "tasks.a.ask.who", "name 1 to 50"),
        (Task("a", AskPattern("?", who=("ben",))), "tasks.a.ask.who[0]", "one of owner, role:NAME, user:NAME"),
        (Task("a", AskPattern("?", who=("user:",))), "tasks.a.ask.who[0]", "one of owner"),
        (Task("a", AskPattern("", who=("owner",))), "tasks.a.ask.title", "in one line"),
        (Task("a", AskPattern("?", default={})), "tasks.a.ask.default", "give the task a deadline"),
        (Task("a", AskPattern("?", form={"properties": {"b": {}}})), "tasks.a.ask.form.properties.b", "has a type"),
        (Task("a", AskPattern("?", "${params.no}")), "tasks.a.ask.text", "no parameter 'no'"),
        (
            Task("a", AskPattern("?", form=FORM, default={}), deadline=Deadline(5)),
            "tasks.a.ask.default",
            "good: it is required",
        ),
        (
            Task("a", AskPattern("?", form={"properties": {"b": {"type": "string", "description": "x" * 9000}}})),
            "tasks.a.ask.form",
            "larger than",
        ),
    ],
)
def test_what_is_wrong_with_a_question_is_found_before_it_is_asked(task: Task, where: str, words: str) -> None:
    (problem,) = check_flow(Flow("f", (task,)))
    assert problem.where == where
    assert words in problem.message


def test_only_the_fields_of_the_form_are_outputs() -> None:
    wrong = Flow("f", (Task("a", AskPattern("?", form=FORM)), Task("b", MergePattern({"x": "${tasks.a.outputs.bad}"}))))
    (problem,) = check_flow(wrong)
    assert "has no output 'bad'" in problem.message
