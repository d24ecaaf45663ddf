"""The inbox: a storm is one group, and what is dear comes first."""

from __future__ import annotations

from dataclasses import replace

from holdfast.domain.faults.exception_type import ExceptionType
from holdfast.domain.faults.inbox import WaitsFor, grouped
from holdfast.domain.faults.incident import IncidentState, Standing


def _held(number: int, **changed: object) -> Standing:
    one = Standing(
        f"i{number}",
        "lab",
        "ada",
        ExceptionType.ABORT,
        1000 + number,
        IncidentState.HELD,
        cause="code",
        job=f"j{number}",
    )
    return replace(one, **changed)  # type: ignore[arg-type]


def test_a_storm_is_one_group_whatever_its_faults_wait_for_and_whoever_owns_them() -> None:
    storm = [
        _held(n, state=IncidentState.WAITING, group="cause:node@1", cause="node", owner=f"o{n % 3}") for n in range(5)
    ]
    (group,) = grouped(storm, {f"j{n}": 3600 for n in range(5)})
    assert (group.count, group.core_seconds, group.owners, group.place.owner) == (5, 5 * 3600, 3, "")
    assert group.place.waits is WaitsFor.CANARY
    (tried,) = grouped([*storm, _held(9, group="cause:node@1", cause="node")], {})
    assert (tried.count, tried.place.waits) == (6, WaitsFor.GROUP)
    assert tried.next_step.startswith("holdfast brake try --group 'cause:node@1'")


def test_all_else_is_grouped_by_cause_owner_and_whom_it_waits_for_the_dearest_first() -> None:
    found = grouped(
        [
            _held(1),
            _held(2),
            _held(3, owner="ben"),
            _held(4, note="force-complete of this job needs a second person: nobody has agreed yet"),
            _held(5, state=IncidentState.WAITING),
            _held(6, state=IncidentState.COMPLETE),
        ],
        {"j3": 7200, "j1": 10},
    )
    assert [(one.place.owner, one.count, one.place.waits) for one in found] == [
        ("ben", 1, WaitsFor.PERSON),
        ("ada", 2, WaitsFor.PERSON),
        ("ada", 1, WaitsFor.SECOND_PERSON),
    ]
    assert found[1].oldest.id == "i1"
    assert (found[1].next_step, found[2].next_step) == ("holdfast explain j1", "holdfast approve list")
