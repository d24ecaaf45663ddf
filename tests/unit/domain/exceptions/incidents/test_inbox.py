"""The inbox: an error is one group, also in a storm, and what is dear comes first."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.inbox import WaitsFor, group_key_of, grouped, inbox_tally_of
from forestay.domain.exceptions.incidents.incident import IncidentState, IncidentStatus


def _held(number: int, **changed: object) -> IncidentStatus:
    status = IncidentStatus(
        f"i{number}",
        "lab",
        "ada",
        ExceptionType.ABORT,
        1000 + number,
        IncidentState.HELD,
        cause="code",
        job=f"j{number}",
    )
    return replace(status, **changed)  # type: ignore[arg-type]


def test_an_error_is_one_group_whoever_owns_its_failures_and_other_errors_are_others() -> None:
    waiting = [
        _held(1, fingerprint="1-a", owner="ada"),
        _held(2, fingerprint="1-a", owner="ben", core_seconds=60),
        _held(3, fingerprint="1-b", owner="ada"),
        _held(4, fingerprint="1-a", note="this needs an approval"),
        _held(5),
    ]
    groups = grouped(map(inbox_tally_of, waiting))
    assert [(group.place.fingerprint, group.place.owner, group.count, group.place.waits) for group in groups] == [
        ("1-a", "", 2, WaitsFor.PERSON),
        ("", "ada", 1, WaitsFor.PERSON),
        ("1-a", "ada", 1, WaitsFor.APPROVAL),
        ("1-b", "ada", 1, WaitsFor.PERSON),
    ]
    assert groups[0].owner_names == {"ada", "ben"}
    assert group_key_of(waiting[0]) == group_key_of(waiting[1])


def test_unlike_failures_of_a_storm_stay_apart_under_its_name() -> None:
    storm = [
        _held(n, state=IncidentState.WAITING, group="site:north@1", cause="node", fingerprint=f"1-{'ab'[n % 2]}")
        for n in range(5)
    ]
    groups = grouped(map(inbox_tally_of, [*storm, replace(storm[0], id="i9", state=IncidentState.HELD)]))
    assert [(group.place.group, group.place.fingerprint, group.count, group.place.waits) for group in groups] == [
        ("site:north@1", "1-a", 4, WaitsFor.GROUP),
        ("site:north@1", "1-b", 2, WaitsFor.CANARY),
    ]


def test_an_error_of_a_storm_is_one_group_whatever_its_failures_wait_for_and_whoever_owns_them() -> None:
    storm = [
        _held(n, state=IncidentState.WAITING, group="cause:node@1", cause="node", owner=f"o{n % 3}") for n in range(5)
    ]
    (group,) = grouped(inbox_tally_of(replace(status, core_seconds=3600)) for status in storm)
    assert (group.count, group.core_seconds, group.owners, group.place.owner) == (5, 5 * 3600, 3, "")
    assert group.place.waits is WaitsFor.CANARY
    (tried,) = grouped(map(inbox_tally_of, [*storm, _held(9, group="cause:node@1", cause="node")]))
    assert (tried.count, tried.place.waits) == (6, WaitsFor.GROUP)
    assert tried.next_step(None).startswith("forestay safeguards try 'cause:node@1'")


def test_what_has_no_fingerprint_is_grouped_by_cause_and_owner_the_dearest_first() -> None:
    waiting = [
        _held(1, core_seconds=10),
        _held(2),
        _held(3, owner="ben", core_seconds=7200),
        _held(4, note="force-complete of this job needs an approval: nobody has approved it yet"),
        _held(5, state=IncidentState.WAITING),
        _held(6, state=IncidentState.COMPLETE),
    ]
    groups = grouped(map(inbox_tally_of, waiting))
    assert [(group.place.owner, group.count, group.place.waits) for group in groups] == [
        ("ben", 1, WaitsFor.PERSON),
        ("ada", 2, WaitsFor.PERSON),
        ("ada", 1, WaitsFor.APPROVAL),
    ]
    assert (groups[1].oldest, groups[1].at) == ("i1", 1001)
    assert groups[1].next_step(waiting[0]) == "forestay explain j1"
    of_another_engine = replace(waiting[0], job="", run="c1")
    assert groups[1].next_step(of_another_engine) == f"forestay explain {waiting[0].id[:8]}"
    assert groups[2].next_step(waiting[3]) == "forestay approvals"


def test_what_is_recovered_and_what_is_over_is_grouped_only_when_asked_for() -> None:
    statuses = [
        _held(1, fingerprint="1-a", state=IncidentState.ACTING),
        _held(2, fingerprint="1-a", state=IncidentState.WAITING),
        _held(3, fingerprint="1-a", state=IncidentState.COMPLETE),
    ]
    assert grouped(map(inbox_tally_of, statuses)) == []
    (group,) = grouped(map(inbox_tally_of, statuses), frozenset({WaitsFor.RECOVERY}))
    assert (group.count, group.place.waits, group.newest) == (2, WaitsFor.RECOVERY, 1002)


def test_a_group_names_the_host_that_all_have() -> None:
    here = [_held(n, fingerprint="1-a", host="n17") for n in range(3)]
    assert grouped(map(inbox_tally_of, here))[0].host == "n17"
    assert grouped(map(inbox_tally_of, [*here, _held(9, fingerprint="1-a", host="n2")]))[0].host == ""
