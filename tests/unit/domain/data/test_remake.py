"""Who may make lost outputs again, and what becomes of the jobs concerned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forestay.domain.data.remake import (
    REMAKE,
    committed_since,
    holder_of_remake,
    is_lost,
    note_remake,
    remade_by,
    remake_depth,
    remake_id,
    remake_submission,
    wait_for_remake,
    was_made,
    why_not_remade,
)
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.jobs.claim import Applied, claim, claimable, end, leave_failure
from forestay.domain.jobs.inputs import JobInput
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, Manifest, State
from forestay.domain.jobs.lifecycle import TransitionRefused, words
from forestay.domain.jobs.specification import Effects, RunnerKind, Specification
from forestay.domain.jobs.steering import MAX_HOLDERS, let_go
from forestay.domain.jobs.submission import Submission, new_job, new_jobs
from forestay.domain.playbooks.action import Remake, Restage, Restaging
from forestay.domain.playbooks.default_restaging import FileFailure, default_steps
from forestay.domain.playbooks.playbook import PlaybookStep

SPEC = Specification("s", "lab", "align", ("align",), outputs=("out/{sample}.bam", "logs"))
READER = Specification("r", "lab", "merge", ("merge",), inputs=(JobInput("x", "job:made/out/s1.bam"),))
FLOW = FlowRef("run", "align@1", "flow", 0, 4, 9, prompt=True)
MANIFEST = Manifest("/out/manifest.json", "0" * 64, 1, 1)


def _job(name: str, spec: Specification, at: int = 1, **more: Any) -> JobDocument:
    return new_job(Submission(spec, owner="ann", parameters={"sample": "s1"}, **more), job=name, now=at, by="ann")


def _end(document: JobDocument, at: int, **facts: Any) -> JobDocument:
    claimed = claim(document, claim_id=f"c{at}", pilot="p", host="h", now=at)
    assert isinstance(claimed, JobDocument)
    known: dict[str, Any] = {"outcome": AttemptOutcome.OK, "manifest": MANIFEST} | facts
    verdict = end(claimed, AttemptResult(claimed.token, f"c{at}", **known), now=at + 1, by="p", answer=leave_failure)
    assert isinstance(verdict, Applied)
    return verdict.document


def _made(**more: Any) -> JobDocument:
    return _end(_job("made", SPEC, flow_ref=FLOW, **more), 10)


def _failed() -> JobDocument:
    return _end(_job("reads", READER, priority=7), 20, outcome=AttemptOutcome.FAILURE, reason="data-missing")


def _document(answer: JobDocument | TransitionRefused) -> JobDocument:
    assert isinstance(answer, JobDocument), answer
    return answer


def _remake(producer: JobDocument, consumer: JobDocument, at: int = 30) -> JobDocument:
    submission, element = remake_submission(producer, SPEC, consumer, "i1")
    (remake,) = new_jobs(submission, [element], now=at, by="playbook:i1:1:0")
    return remake


@pytest.mark.parametrize(
    ("path", "made"),
    [("out/s1.bam", True), ("logs/a/b.txt", True), ("logs", True), ("out/s2.bam", False), ("out", False)],
)
def test_only_a_declared_output_can_have_been_made(path: str, made: bool) -> None:
    assert was_made(_made(), SPEC, path) is made
    assert not was_made(_job("new", SPEC), SPEC, path)
    anywhere = replace(SPEC, outputs=("**/*.txt",))
    assert was_made(_made(), anywhere, "a.txt")


def test_what_a_person_must_decide() -> None:
    made = _made()
    assert why_not_remade(made, SPEC, owner="ann") == ""
    for effects in (Effects.EXTERNAL, Effects.RESUMABLE):
        assert "external effects" in why_not_remade(made, replace(SPEC, effects=effects), owner="ann")
    assert "keeps its state" in why_not_remade(made, replace(SPEC, runner=RunnerKind.WARM), owner="ann")
    assert "belongs to ann" in why_not_remade(made, SPEC, owner="eve")
    assert "is forced_complete" in why_not_remade(made.having(state=State.FORCED_COMPLETE), SPEC, owner="ann")


def test_a_transfer_that_broke_off_is_no_loss() -> None:
    assert is_lost(_failed().last)
    assert not is_lost(_end(_job("reads", READER), 20, outcome=AttemptOutcome.FAILURE, reason="transfer").last)
    assert not is_lost(None)


def test_a_remake_is_all_that_its_producer_was() -> None:
    made, failed = _made(), _failed()
    remake = _remake(made, failed)
    assert remake.id == remake_id(made) == remake_id(made.having(rev=99)), "whoever asks second finds the first one's"
    assert (remake.specification, remake.parameters, remake.owner) == ("s", {"sample": "s1"}, "ann")
    assert remake.priority == 7, "of the two the higher"
    assert remake.flow_ref == FLOW._replace(of=0, prompt=False), "of its run, where nobody waits for its end"
    assert remake.extra[REMAKE] == {"of": "made", "for": "reads", "depth": 1}
    assert words(remake.history[0]).endswith("It makes the lost outputs of job made again for job reads; incident i1")
    assert [remake_depth(job) for job in (made, failed, remake, _remake(made, remake))] == [0, 0, 1, 2]


def test_a_producer_notes_its_remake_and_stays_as_it_is() -> None:
    made = _made(callback="https://example.org/")
    delivered = made.having(delivery=replace(made.delivery, done=True, due=None) if made.delivery else None)
    noted = _document(note_remake(delivered, "again", now=30, by="playbook:i1:1:0"))
    assert (remade_by(noted), noted.state, noted.winner) == ("again", State.COMPLETED, made.winner)
    assert noted.delivery == delivered.delivery, "nobody is told a second time that it ended"
    assert words(noted.history[-1]) == "Its outputs were lost; job again makes them again (playbook:i1:1:0)."
    assert note_remake(noted, "again", now=31, by="x") is noted
    assert isinstance(note_remake(_failed(), "again", now=30, by="x"), TransitionRefused)


def test_the_failed_job_waits_and_does_not_pay() -> None:
    failed = _failed()
    assert failed.failures == 1
    holder = holder_of_remake("again")
    waiting = _document(wait_for_remake(failed, holder, now=30, by="playbook:i1:1:0", reason="waits for job again"))
    assert (waiting.state, waiting.failures, waiting.holders) == (State.AVAILABLE, 0, ("remake:again",))
    assert not claimable(waiting, 40)
    freed = _document(let_go(waiting, holder=holder, now=50, by="reconciler", reason="job again has committed it"))
    assert claimable(freed, 50)
    assert words(freed.history[-1]) == "reconciler continued it (job again has committed it)."
    at_once = _document(wait_for_remake(failed, "", now=30, by="x", reason="made again already"))
    assert claimable(at_once, 30)
    full = failed.having(holders=tuple(map(str, range(MAX_HOLDERS))))
    for refused in (wait_for_remake(full, holder, now=30, by="x", reason=""), wait_for_remake(freed, holder, now=60, by="x", reason="")):  # fmt: skip
        assert isinstance(refused, TransitionRefused)


def test_what_was_committed_after_the_claim_was_not_tried() -> None:
    assert not committed_since(_made(), _failed())
    assert committed_since(_end(_remake(_made(), _failed()), 40), _failed())
    assert not committed_since(_remake(_made(), _failed()), _failed())


def _default(**more: Any) -> tuple[PlaybookStep, ...]:
    known: dict[str, Any] = {
        "stage": "staging-in",
        "cause": Cause.DATA_MISSING,
        "error": "ENOENT",
        "other_replica": False,
    }
    return default_steps(more.pop("document", _failed()), FileFailure(**known | {"lost_output": True} | more))


def test_the_default_policy_asks_another_host_first_and_then_for_a_remake() -> None:
    remake = (PlaybookStep(Remake()),)
    assert _default() == remake
    assert _default(several_hosts=True) == (PlaybookStep(Restage(Restaging.OTHER_TARGET)),)
    assert _default(several_hosts=True, document=_failed().having(extra={"restaged": 1})) == remake
    assert _default(several_hosts=True, cause=Cause.DATA_CORRUPT) == remake
    assert _default(other_replica=True) == (PlaybookStep(Restage(Restaging.OTHER_REPLICA)),)
    assert _default(lost_output=False) == _default(stage="staging-out") == _default(cause=Cause.TRANSFER) == ()
