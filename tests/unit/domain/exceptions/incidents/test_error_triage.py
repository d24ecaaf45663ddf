"""What people say of an error, and what becomes of it with time and with new failures."""

from __future__ import annotations

from forestay.domain.exceptions.incidents.error_triage import ErrorState, ErrorTriage, TriageAct


def _after(triage: ErrorTriage, act: TriageAct, at: int = 1000, assignee: str = "", until: int = 0) -> ErrorTriage:
    return triage.after(act, by="olga", at=at, why="because", assignee=assignee, until=until)


def test_an_error_that_was_fixed_and_happens_again_has_regressed() -> None:
    triage = _after(ErrorTriage(), TriageAct.RESOLVE)
    assert triage.state_at(5000, last_seen=1000) is ErrorState.RESOLVED
    assert triage.state_at(5000, last_seen=1001) is ErrorState.REGRESSED
    again = _after(triage, TriageAct.RESOLVE, at=2000)
    assert again.state_at(5000, last_seen=1001) is ErrorState.RESOLVED


def test_a_snoozed_error_comes_back_as_one_that_was_seen() -> None:
    triage = _after(ErrorTriage(), TriageAct.SNOOZE, until=3000)
    assert triage.state_at(2999, last_seen=2500) is ErrorState.SNOOZED
    assert triage.state_at(3000, last_seen=2500) is ErrorState.ACKNOWLEDGED
    assert _after(triage, TriageAct.REOPEN).state_at(2999, last_seen=0) is ErrorState.NEW


def test_who_takes_a_new_error_has_seen_it_and_taking_another_changes_nothing_else() -> None:
    taken = _after(ErrorTriage(), TriageAct.ASSIGN, assignee="ben")
    assert (taken.state, taken.assignee, taken.by, taken.why) == (ErrorState.ACKNOWLEDGED, "ben", "olga", "because")
    fixed = _after(taken, TriageAct.RESOLVE, at=2000)
    moved = _after(fixed, TriageAct.ASSIGN, at=9000, assignee="cai")
    assert (moved.assignee, moved.at) == ("cai", 2000)
    assert moved.state_at(9000, last_seen=2001) is ErrorState.REGRESSED, "it is measured from when it was fixed"
    assert _after(moved, TriageAct.ASSIGN).assignee == ""


def test_nobody_who_leaves_a_new_error_has_seen_it() -> None:
    assert _after(ErrorTriage(), TriageAct.ASSIGN).state is ErrorState.NEW
