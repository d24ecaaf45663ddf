"""The contract of the incident store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.examples import NOW, ODD_TEXTS
from tests.contract.room import Stores

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.inbox import InboxTally, WaitsFor, group_key_of, inbox_tally_of
from forestay.domain.exceptions.incidents.incident import (
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    StepMark,
    StepRecord,
    status_of,
    step_record_id,
)
from forestay.ports.errors import Permanent, Transient
from forestay.ports.exceptions.incident_store import TALLY_FIELDS, IncidentQuery
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, Written

OpenAnother = Callable[[], Awaitable[Stores]]


def incident(name: str = "i1", **changes: Any) -> Incident:
    made = Incident(
        id=name, tenant="alpha", owner="ada", kind=ExceptionType.ABORT, at=NOW, run="c1", instance="align", job="j1",
        attempt=2, cause="memory", flow="f" * 64, context={"evidence": {"exit_code": 137, "texts": list(ODD_TEXTS)}},
    )  # fmt: skip
    return replace(made, **changes)


def step(name: str = "i1", number: int = 0, mark: StepMark = StepMark.BEGUN, **changes: Any) -> StepRecord:
    made = StepRecord(name, 1, number, mark, "alpha", NOW, "suspend", {"target": "run"})
    return replace(made, **changes)


async def add(stores: Stores, *incidents: Incident) -> None:
    added = await stores.incidents.add_incidents([(incident, status_of(incident)) for incident in incidents])
    assert list(added) == [True] * len(incidents)


class TestIncidents:
    async def test_one_is_read_back_at_once_and_stands_open(self, stores: Stores) -> None:
        await add(stores, incident(), incident(ODD_TEXTS[1]))
        assert await stores.incidents.get_incidents(["i1", "i2"]) == {"i1": incident()}
        assert (await stores.incidents.get_incidents([ODD_TEXTS[1]]))[ODD_TEXTS[1]] == incident(ODD_TEXTS[1])
        status = (await stores.incidents.get_statuses(["i1", "none"]))["i1"].status
        assert status == status_of(incident())
        assert (status.state, status.due) == (IncidentState.OPEN, NOW)

    async def test_the_first_one_stays(self, stores: Stores) -> None:
        await add(stores, incident())
        other = incident(cause="disk")
        added = await stores.incidents.add_incidents(
            [(other, status_of(other)), (incident("i2"), status_of(incident("i2")))]
        )
        assert list(added) == [False, True]
        assert (await stores.incidents.get_incidents(["i1"]))["i1"].cause == "memory"
        assert (await stores.incidents.get_statuses(["i1"]))["i1"].status.cause == "memory"
        assert list(await stores.incidents.add_incidents([])) == []

    async def test_what_was_sent_again_does_not_open_it_again(self, stores: Stores) -> None:
        await add(stores, incident())
        stored = (await stores.incidents.get_statuses(["i1"]))["i1"]
        done = stored.status.moved(IncidentState.COMPLETE, now=NOW + 1)
        (result,) = await stores.incidents.put_statuses([(done, stored.version)])
        assert isinstance(result, Written)
        await stores.incidents.add_incidents([(incident(), status_of(incident()))])
        assert (await stores.incidents.get_statuses(["i1"]))["i1"].status == done

    async def test_exactly_one_of_many_writers_creates_it(self, stores: Stores, another: OpenAnother) -> None:
        writers = await asyncio.gather(*(another() for _ in range(8)))
        made = [incident(owner=f"o{place}") for place in range(8)]
        answers = await asyncio.gather(
            *(
                writer.incidents.add_incidents([(incident, status_of(incident))])
                for writer, incident in zip(writers, made, strict=True)
            )
        )
        winners = [place for place, (added,) in enumerate(answers) if added]
        assert len(winners) == 1
        assert (await stores.incidents.get_incidents(["i1"]))["i1"].owner == f"o{winners[0]}"

    async def test_a_document_that_is_too_large_is_refused(self, stores: Stores) -> None:
        large = incident(context={"log": "x" * 70_000})
        with pytest.raises(Permanent):
            await stores.incidents.add_incidents([(large, status_of(large))])
        with pytest.raises(Permanent):
            await stores.incidents.add_steps([step(detail={"log": "x" * 70_000})])


class TestStatuses:
    async def test_one_is_written_over_the_version_that_was_read(self, stores: Stores) -> None:
        await add(stores, incident())
        first = (await stores.incidents.get_statuses(["i1"]))["i1"]
        held = first.status.moved(IncidentState.HELD, now=NOW + 5, note="no rule answers")
        (result,) = await stores.incidents.put_statuses([(held, first.version)])
        assert isinstance(result, Written)
        (late,) = await stores.incidents.put_statuses([(replace(held, note="other"), first.version)])
        assert isinstance(late, Conflicted)
        again = (await stores.incidents.get_statuses(["i1"]))["i1"]
        assert again == (held, result.version)
        assert again.status.due is None

    async def test_exactly_one_of_many_writers_wins(self, stores: Stores, another: OpenAnother) -> None:
        await add(stores, incident())
        stored = (await stores.incidents.get_statuses(["i1"]))["i1"]
        writers = await asyncio.gather(*(another() for _ in range(8)))
        results = await asyncio.gather(
            *(
                writer.incidents.put_statuses([(replace(stored.status, note=str(place)), stored.version)])
                for place, writer in enumerate(writers)
            )
        )
        winners = [place for place, (result,) in enumerate(results) if isinstance(result, Written)]
        assert len(winners) == 1
        assert (await stores.incidents.get_statuses(["i1"]))["i1"].status.note == str(winners[0])

    async def test_nothing_to_write(self, stores: Stores) -> None:
        assert list(await stores.incidents.put_statuses([])) == []


MANY = [
    incident(
        f"i{place:03}", tenant=("alpha", "beta")[place % 2], owner=("ada", "bob", ODD_TEXTS[2])[place % 3],
        cause=("memory", "node", "unknown")[place // 2 % 3], flow=("f1", "f2")[place // 3 % 2], at=NOW + place // 4,
        kind=(ExceptionType.ABORT, ExceptionType.TIMEOUT)[place // 5 % 2], run=f"c{place % 4}", job=f"j{place}",
        context={"finding": {"pattern": "p", "lines": [f"error of kind {'abcd'[place % 4]} at line {place}"]}},
    )
    for place in range(60)
]  # fmt: skip


def stand(incident: Incident, place: int) -> IncidentStatus:
    state = list(IncidentState)[place % 7]
    due = None if place % 5 == 0 else NOW + 100 - place // 2
    return replace(status_of(incident, group=incident.cause), state=state, due=due, changed=NOW + place % 9)


class TestSearch:
    async def test_by_every_field_in_every_order_page_by_page(self, stores: Stores) -> None:
        statuses = [stand(incident, place) for place, incident in enumerate(MANY)]
        await stores.incidents.add_incidents(list(zip(MANY, statuses, strict=True)))
        await stores.jobs.refresh()
        states = frozenset({IncidentState.OPEN, IncidentState.HELD})
        queries: list[tuple[IncidentQuery, Callable[[IncidentStatus], bool]]] = [
            (IncidentQuery(), lambda status: True),
            (IncidentQuery(tenant="alpha"), lambda status: status.tenant == "alpha"),
            (IncidentQuery(owner=ODD_TEXTS[2]), lambda status: status.owner == ODD_TEXTS[2]),
            (IncidentQuery(kind="timeout"), lambda status: status.kind is ExceptionType.TIMEOUT),
            (IncidentQuery(states=states), lambda status: status.state in states),
            (IncidentQuery(cause="node", flow="f2"), lambda status: status.cause == "node" and status.flow == "f2"),
            (IncidentQuery(run="c1", instance="align"), lambda status: status.run == "c1"),
            (IncidentQuery(job="j7"), lambda status: status.job == "j7"),
            (
                IncidentQuery(fingerprint=statuses[3].fingerprint),
                lambda status: status.title == statuses[3].title and status.cause == statuses[3].cause,
            ),
            (IncidentQuery(group="memory"), lambda status: status.group == "memory"),
            (IncidentQuery(since=NOW + 3, until=NOW + 9), lambda status: NOW + 3 <= status.at < NOW + 9),
            (IncidentQuery(changed=NOW + 4), lambda status: status.changed >= NOW + 4),
            (IncidentQuery(due=NOW + 80), lambda status: status.due is not None and status.due <= NOW + 80),
            (IncidentQuery(tenant="gamma"), lambda status: False),
        ]
        for query, fits in queries:
            for sort in ("at", "-at", "due", "-due", "changed", "-changed"):
                field, down = sort.removeprefix("-"), sort.startswith("-")
                expected = sorted(filter(fits, statuses), key=lambda status: status.id, reverse=down)
                expected.sort(key=lambda status: getattr(status, field) or 0, reverse=down)
                expected.sort(key=lambda status: getattr(status, field) is None)
                found_statuses: list[IncidentStatus] = []
                cursor: str | None = None
                while True:
                    page = await stores.incidents.find(query, sort=sort, limit=7, cursor=cursor)
                    assert len(page.statuses) <= 7
                    found_statuses += [stored.status for stored in page.statuses]
                    cursor = page.cursor
                    if cursor is None:
                        break
                assert found_statuses == expected, (query, sort)

    async def test_what_was_found_can_be_written(self, stores: Stores) -> None:
        await add(stores, incident())
        await stores.jobs.refresh()
        (stored,) = (await stores.incidents.find(IncidentQuery(due=NOW), sort="due")).statuses
        (result,) = await stores.incidents.put_statuses(
            [(stored.status.moved(IncidentState.ACTING, now=NOW), stored.version)]
        )
        assert isinstance(result, Written)
        await stores.jobs.refresh()
        assert (await stores.incidents.find(IncidentQuery(due=NOW + 99))).statuses == []

    async def test_counts(self, stores: Stores) -> None:
        await add(stores, *MANY)
        await stores.jobs.refresh()
        assert await stores.incidents.count(IncidentQuery(), by="tenant") == {"alpha": 30, "beta": 30}
        owners = Counter(
            incident.owner for incident in MANY if (incident.kind, incident.flow) == (ExceptionType.TIMEOUT, "f2")
        )
        assert len(owners) == 3
        counts = await stores.incidents.count(IncidentQuery(kind="timeout", flow="f2"), by="owner")
        assert counts == owners
        assert list(counts.values()) == sorted(owners.values(), reverse=True)

    async def test_counts_by_fingerprint(self, stores: Stores) -> None:
        """Also of incidents that have none: those of a release before."""
        statuses = [status_of(incident) for incident in MANY]
        for place in range(10):
            statuses[place] = replace(statuses[place], fingerprint="", title="")
        await stores.incidents.add_incidents(list(zip(MANY, statuses, strict=True)))
        await stores.jobs.refresh()
        expected = Counter(status.fingerprint for status in statuses)
        assert expected[""] == 10
        assert len(expected) > 5
        assert await stores.incidents.count(IncidentQuery(), by="fingerprint") == expected
        error = max(expected)
        found = await stores.incidents.count(IncidentQuery(fingerprint=error), by="owner")
        assert found == Counter(status.owner for status in statuses if status.fingerprint == error)
        assert (await stores.incidents.get_statuses([statuses[0].id]))[statuses[0].id].status == statuses[0]

    async def test_counts_and_finds_by_host_site_and_exit_code(self, stores: Stores) -> None:
        """Also incidents that have none."""
        statuses = [
            replace(
                status_of(incident),
                host=f"n{place % 3}" if place % 5 else "",
                site=ODD_TEXTS[place % 2],
                exit_code="signal 9" if place % 4 else "137",
            )
            for place, incident in enumerate(MANY)
        ]
        await stores.incidents.add_incidents(list(zip(MANY, statuses, strict=True)))
        await stores.jobs.refresh()
        assert (await stores.incidents.get_statuses(["i003"]))["i003"].status == statuses[3]
        for tag in ("host", "site", "exit_code"):
            expected = Counter(getattr(status, tag) for status in statuses)
            assert await stores.incidents.count(IncidentQuery(), by=tag) == expected
            value = max(expected)
            query = IncidentQuery("alpha", **{tag: value})
            page = await stores.incidents.find(query, limit=100)
            wanted = {s.id for s in statuses if getattr(s, tag) == value and s.tenant == "alpha"}
            assert {stored.status.id for stored in page.statuses} == wanted

    async def test_piles(self, stores: Stores) -> None:
        statuses = [
            replace(
                stand(incident, place),
                core_seconds=place,
                group=incident.cause if place % 4 else "",
                note="it needs an approval" if place % 3 == 0 else ODD_TEXTS[1],
                host=f"n{place % 7}" if place % 5 else "",
            )
            for place, incident in enumerate(MANY)
        ]
        await stores.incidents.add_incidents(list(zip(MANY, statuses, strict=True)))
        await stores.jobs.refresh()
        states = frozenset({IncidentState.HELD, IncidentState.WAITING})
        for query in (IncidentQuery(), IncidentQuery("alpha", states=states), IncidentQuery("gamma")):
            expected: dict[tuple[object, ...], InboxTally] = {}
            hosts: dict[tuple[object, ...], set[str]] = {}
            for status in sorted(statuses, key=lambda incident_status: (incident_status.at, incident_status.id)):
                if query.tenant not in (None, status.tenant) or (query.states and status.state not in query.states):
                    continue
                pile = inbox_tally_of(status)
                before = expected.get(pile[:6])
                if before is not None:
                    cost = before.core_seconds + pile.core_seconds
                    pile = before._replace(many=before.many + 1, core_seconds=cost, newest=status.at)
                expected[pile[:6]] = pile
                hosts.setdefault(pile[:6], set()).add(status.host)
            counted = await stores.incidents.inbox_tallies(query)
            assert sorted(pile[:-1] for pile in counted) == sorted(pile[:-1] for pile in expected.values())
            for pile in counted:
                assert pile.hosts <= hosts[pile[:6]]
                assert len(pile.hosts) == min(2, len(hosts[pile[:6]]))
        (moved,) = (await stores.incidents.get_statuses(["i003"])).values()
        await stores.incidents.put_statuses(
            [(moved.status.moved(IncidentState.FAILED, now=NOW, note="given up"), moved.version)]
        )
        await stores.jobs.refresh()
        held = IncidentQuery(states=frozenset({IncidentState.HELD}))
        assert sum(inbox_tally.many for inbox_tally in await stores.incidents.inbox_tallies(held)) == sum(
            status.state is IncidentState.HELD for status in statuses if status.id != "i003"
        )

    async def test_counts_and_finds_by_what_incidents_wait_for_and_without_some_errors(self, stores: Stores) -> None:
        """As the inbox shows them; also incidents without a fingerprint."""
        statuses = [
            replace(
                stand(incident, place),
                group=incident.cause if place % 4 else "",
                note="it needs an approval" if place % 3 == 0 else ODD_TEXTS[1],
                host=f"n{place % 7}" if place % 5 else "",
            )
            for place, incident in enumerate(MANY)
        ]
        for place in range(0, 60, 6):
            statuses[place] = replace(statuses[place], fingerprint="", title="")
        await stores.incidents.add_incidents(list(zip(MANY, statuses, strict=True)))
        await stores.jobs.refresh()
        snoozed = frozenset({statuses[1].fingerprint, statuses[2].fingerprint})
        for waits in (frozenset({one}) for one in WaitsFor):
            for left_out in (frozenset[str](), snoozed):
                query = IncidentQuery("alpha", waits=waits, not_fingerprints=left_out)
                expected = [
                    status
                    for status in statuses
                    if status.tenant == "alpha"
                    and group_key_of(status).waits in waits
                    and status.fingerprint not in left_out
                ]
                found = (await stores.incidents.find(query, limit=100)).statuses
                assert sorted(stored.status.id for stored in found) == sorted(status.id for status in expected), query
                for by in ("cause", "owner", "host"):
                    counts = await stores.incidents.count(query, by=by)
                    assert counts == Counter(getattr(status, by) for status in expected), (query, by)
        everything = await stores.incidents.count(IncidentQuery(waits=frozenset(WaitsFor)), by="state")
        assert everything == Counter(status.state.value for status in statuses)

    async def test_tallies(self, stores: Stores) -> None:
        await add(stores, *MANY)
        await stores.jobs.refresh()
        first, last = min(incident.at for incident in MANY), max(incident.at for incident in MANY)
        step = max(1, (last - first) // 5)
        query = IncidentQuery("alpha", since=first + 1, until=last)
        for by in sorted(TALLY_FIELDS - {"fingerprint"}):
            expected: list[Counter[str]] = [Counter() for _ in range((last - 1 - first - 1) // step + 1)]
            for incident in MANY:
                if incident.tenant == "alpha" and first < incident.at < last:
                    value = "open" if by == "state" else str(getattr(incident, by))
                    expected[(incident.at - first - 1) // step][value] += 1
            assert sum(map(bool, expected)) > 1
            assert await stores.incidents.tally(query, step=step, by=by) == expected
        named = {status_of(incident).fingerprint for incident in MANY[:2]}
        expected = [Counter() for _ in expected]
        for incident in MANY:
            error = status_of(incident).fingerprint
            if incident.tenant == "alpha" and first < incident.at < last and error in named:
                expected[(incident.at - first - 1) // step][error] += 1
        assert sum(map(bool, expected)) > 1
        errors = replace(query, fingerprints=frozenset(named))
        assert await stores.incidents.tally(errors, step=step, by="fingerprint") == expected
        for wrong, by in ((IncidentQuery(since=1), "cause"), (query, "owner")):
            with pytest.raises(Permanent):
                await stores.incidents.tally(wrong, step=step, by=by)
        with pytest.raises(Permanent):
            await stores.incidents.tally(IncidentQuery(since=0, until=501), step=1, by="cause")

    async def test_what_cannot_be_asked(self, stores: Stores) -> None:
        find = stores.incidents.find
        for asked in (
            find(IncidentQuery(), sort="owner"),
            find(IncidentQuery(), limit=0),
            find(IncidentQuery(), limit=1001),
            find(IncidentQuery(), cursor="nonsense"),
        ):
            with pytest.raises(Permanent):
                await asked
        with pytest.raises(Permanent):
            await stores.incidents.count(IncidentQuery(), by="job")


class TestDecisionsAndSteps:
    async def test_a_decision_is_made_once(self, stores: Stores) -> None:
        first = Decision(
            "i1", 1, "alpha", NOW, "matched", "rule-7", {"name": "e", "steps": []}, detail={"path": [1, 4]}
        )
        second = replace(first, n=2, by="bob", playbook=None, shadow=True)
        assert list(await stores.incidents.add_decisions([first])) == [True]
        assert list(await stores.incidents.add_decisions([replace(first, by="other"), second])) == [False, True]
        assert await stores.incidents.get_decision("i1", 1) == first
        assert await stores.incidents.get_decision("i1", 3) is None
        await stores.jobs.refresh()
        assert list(await stores.incidents.decisions("i1")) == [first, second]
        assert list(await stores.incidents.decisions("i")) == []

    async def test_a_step_is_begun_once_and_over_once(self, stores: Stores) -> None:
        made = [step(number=10), step(number=2), step(number=2, mark=StepMark.OVER), step("i2")]
        assert list(await stores.incidents.add_steps([*made, made[0]])) == [True] * 4 + [False]
        assert list(await stores.incidents.add_steps([step(number=2, at=NOW + 9)])) == [False]
        name = step_record_id("i1", 1, 2, StepMark.BEGUN)
        assert await stores.incidents.get_steps([name, "none"]) == {name: step(number=2)}
        await stores.jobs.refresh()
        assert list(await stores.incidents.steps("i1")) == [made[1], made[2], made[0]]

    async def test_exactly_one_of_many_begins_a_step(self, stores: Stores, another: OpenAnother) -> None:
        crowd = await asyncio.gather(*(another() for _ in range(8)))
        answers = await asyncio.gather(
            *(other_stores.incidents.add_steps([step(at=NOW + place)]) for place, other_stores in enumerate(crowd))
        )
        winners = [place for place, (added,) in enumerate(answers) if added]
        assert len(winners) == 1
        (record,) = (await stores.incidents.get_steps([step().id])).values()
        assert record.at == NOW + winners[0]


async def test_a_store_that_does_not_answer(unreachable: Stores) -> None:
    with pytest.raises(Transient):
        await unreachable.incidents.get_statuses(["i1"])
    with pytest.raises(Transient):
        await unreachable.incidents.add_incidents([(incident(), status_of(incident()))])
    with pytest.raises(Transient):
        await unreachable.incidents.add_steps([step()])
    with pytest.raises(Transient):
        await unreachable.incidents.find(IncidentQuery())
    status = status_of(incident())
    (result,) = await unreachable.incidents.put_statuses([(status, Version(1, 1))])
    assert isinstance(result, Unknown)
