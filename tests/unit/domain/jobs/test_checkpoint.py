"""Checkpoints: whose count, what an attempt that made progress costs, and that it ends some day."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.checkpoint import (
    MAX_CONTINUATIONS,
    checkpoint_as_plain,
    checkpoint_from_plain,
    wrong_checkpoint,
)
from forestay.domain.jobs.claim import (
    MAX_RELEASES,
    Applied,
    CheckpointReport,
    claim,
    end,
    pilot_deaths,
    release,
    save_checkpoint,
)
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, Manifest, State, Token
from forestay.domain.jobs.lifecycle import TransitionRefused, words
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import CheckpointPolicy, Effects, Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.domain.pilots.lifetime import ends_in_time

POLICY = CheckpointPolicy(("*.ckpt",), every=60, grace=30)


def _fresh(effects: Effects = Effects.INTERNAL) -> JobDocument:
    spec = Specification("s", "lab", "fit", ("true",), effects=effects, checkpoint=POLICY)
    return new_job(Submission(spec, owner="ann"), job="j", now=1, by="ann")


def _claimed(document: JobDocument, name: str = "") -> JobDocument:
    claimed = claim(document, claim_id=name or f"c{document.attempt + 1}", pilot="p1", host="h", now=2)
    assert isinstance(claimed, JobDocument), claimed
    return claimed


def _report(content: str, number: int = 1) -> CheckpointReport:
    return CheckpointReport(Manifest(f"/out/{content}/{number}", "0" * 64, 14, 2_100_000_000), content, number)


def _saved(document: JobDocument, content: str, number: int = 1) -> JobDocument:
    assert document.claim is not None
    changed = save_checkpoint(document, _report(content, number), claim_id=document.claim.id, now=3, by="p1")
    assert isinstance(changed, JobDocument), changed
    return changed


def _ended(document: JobDocument, reason: str, checkpoint: CheckpointReport | None = None) -> JobDocument:
    assert document.claim is not None
    ending = AttemptResult(document.token, document.claim.id, AttemptOutcome.FAILURE, reason=reason, host="h")
    verdict = end(document, ending, now=4, by="p1", checkpoint=checkpoint)
    assert isinstance(verdict, Applied), verdict
    return verdict.document


def _released(document: JobDocument, *, died: bool = True) -> JobDocument:
    assert document.claim is not None
    freed = release(
        document, claim_id=document.claim.id, now=4, by="s", reason="its pilot died", overlap_possible=False, died=died
    )
    assert isinstance(freed, JobDocument), freed
    return freed


def test_the_story_says_what_an_attempt_continues_from() -> None:
    again = _claimed(_ended(_claimed(_fresh()), "pilot-stopped", _report("a")), "f" * 32)
    assert words(again.history[-1]) == (
        "Pilot p1 claimed it for attempt 2 on h, from the checkpoint of attempt 1 (14 files, 2.1 GB, 0 s old)."
    )


def test_progress_at_the_time_limit_costs_no_attempt_and_without_it_the_limit_is_a_failure() -> None:
    first = _ended(_claimed(_fresh()), "wall-limit", _report("a"))
    assert (first.state, first.failures, first.retry.max_attempts) == (State.AVAILABLE, 0, 1)
    same = _ended(_claimed(first), "wall-limit", _report("a"))
    assert (same.state, same.failures) == (State.FAILED, 1)


def test_a_failure_of_the_job_itself_costs_an_attempt_whatever_it_saved() -> None:
    assert _ended(_saved(_claimed(_fresh()), "a"), "exit").state is State.FAILED


def test_the_reach_of_a_time_limit_with_external_effects_waits_for_a_person() -> None:
    document = _ended(_claimed(_fresh(Effects.EXTERNAL)), "wall-limit", _report("a"))
    assert document.state is State.FAULTED


def test_lost_claims_with_progress_are_not_held_against_a_job_and_those_without_are() -> None:
    document = _fresh()
    for content in range(3 * MAX_RELEASES):
        document = _released(_saved(_claimed(document), str(content)))
        assert (document.state, document.releases, pilot_deaths(document)) == (State.AVAILABLE, 0, 0)
    for _ in range(2):
        document = _released(_claimed(document))
    assert (document.releases, pilot_deaths(document)) == (2, 2)
    document = _released(_claimed(document))
    assert document.state is State.FAULTED


def test_a_job_whose_checkpoints_differ_for_ever_ends() -> None:
    document, attempts = _fresh(), 0
    while document.state is State.AVAILABLE:
        attempts += 1
        document = _ended(_claimed(document), "wall-limit", _report(str(attempts)))
    assert (document.state, attempts) == (State.FAILED, MAX_CONTINUATIONS + 1)


def test_only_the_holder_saves_and_nothing_older_replaces_a_newer_checkpoint() -> None:
    first = _claimed(_fresh())
    late = _report("late", 9)
    second = _claimed(_released(_saved(first, "a"), died=False))
    newer = _saved(second, "b", 2)
    assert isinstance(save_checkpoint(newer, late, claim_id="c1", now=5, by="p1"), TransitionRefused)
    assert isinstance(save_checkpoint(newer, late, claim_id="c2", now=5, by="p2"), TransitionRefused)
    assert _saved(newer, "c", 1) == newer
    ending = AttemptResult(Token(0, 1), "c1", AttemptOutcome.FAILURE, reason="pilot-stopped")
    assert not isinstance(end(newer, ending, now=5, by="p1", checkpoint=late), Applied)
    assert newer.checkpoint is not None
    assert (newer.checkpoint.content, newer.checkpoint.replaced) == ("b", _report("a").manifest)


@given(
    st.lists(st.tuples(st.sampled_from(["save", "release", "claim", "late", "stop"]), st.integers(1, 5)), max_size=30)
)
def test_the_checkpoint_never_goes_back_to_an_earlier_attempt(steps: list[tuple[str, int]]) -> None:
    document = _claimed(_fresh())
    newest = (Token(0, 0), 0)
    for place, (what, number) in enumerate(steps):
        if what == "claim" and document.state is State.AVAILABLE:
            document = _claimed(document)
        elif what == "save" and document.claim is not None:
            document = _saved(document, f"{place}", number)
        elif what == "release" and document.claim is not None:
            document = _released(document, died=False)
        elif what == "stop" and document.claim is not None:
            document = _ended(document, "pilot-stopped", _report(f"{place}", number))
        elif what == "late":
            other = save_checkpoint(document, _report(f"{place}", 9), claim_id="c0", now=5, by="p1")
            assert isinstance(other, TransitionRefused)
        if document.checkpoint is not None:
            seen = (document.checkpoint.token, document.checkpoint.number)
            assert seen >= newest
            newest = seen


def test_a_pilot_needs_time_for_one_checkpoint_and_not_for_the_whole_job() -> None:
    document = _fresh().having(resources=Resources(wall=86_400))
    assert ends_in_time(document, 120)
    assert not ends_in_time(document, 119)
    assert not ends_in_time(document.having(extra={}), 120)


def test_defaults_of_a_policy_are_left_out_and_none_is_nothing() -> None:
    assert checkpoint_as_plain(None) == {}
    assert checkpoint_as_plain(CheckpointPolicy(("a",))) == {"checkpoint": {"files": ["a"]}}
    whole = CheckpointPolicy(("a", "b/*"), "USR1", 60, 30)
    assert checkpoint_from_plain(checkpoint_as_plain(whole)["checkpoint"]) == whole
    assert checkpoint_from_plain(None) is None


def test_every_error_of_a_policy_is_told_with_its_place() -> None:
    wrong = CheckpointPolicy(("../a", "/etc/passwd", "", "good"), "KILL", -1, 0)
    assert {at for at, _ in wrong_checkpoint(wrong)} == {
        ("files", 0), ("files", 1), ("files", 2), ("signal",), ("every",), ("grace",),
    }  # fmt: skip
    assert [at for at, _ in wrong_checkpoint(CheckpointPolicy(()))] == [("files",)]
    assert list(wrong_checkpoint(POLICY)) == []
