"""The contract of the job store: searches, sorting, cursors and counts.

What a search should find is worked out here from the documents themselves, field by field.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.examples import NOW, job, many_jobs
from tests.contract.room import Stores
from tests.sizes import examples

from forestay.domain.jobs.hash_slots import SLOTS
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.formats.jobs.job_json import job_to_json
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import (
    COUNT_FIELDS,
    MAX_PAGE,
    MAX_STEPS,
    NUMBER_FIELDS,
    SORT_FIELDS,
    TALLY_FIELDS,
    TALLY_TIMES,
    TEXT_FIELDS,
    DocumentChange,
    JobPage,
    JobQuery,
    JobStore,
    Written,
)

Filled = tuple[JobStore, dict[str, JobDocument]]
OpenAnother = Callable[[], Awaitable[Stores]]
FIELDS = {document.id: job_to_json(document) for document in many_jobs()}
VALUES = {
    name: sorted({data[name] for data in FIELDS.values() if name in data})
    for name in TEXT_FIELDS | NUMBER_FIELDS | COUNT_FIELDS
}


def matches(document: JobDocument, query: JobQuery) -> bool:
    """Whether a query means a job."""
    data = FIELDS[document.id]
    return (
        (query.tenant is None or document.tenant == query.tenant)
        and (not query.states or document.state in query.states)
        and all(data.get(name) in values for name, values in query.anyof.items())
        and all(name in data and data[name] >= bound for name, bound in query.at_least.items())
        and all(name in data and data[name] <= bound for name, bound in query.at_most.items())
        and query.labels.items() <= document.labels.items()
        and (query.held is None or bool(document.holders) == query.held)
        and (query.slots is None or data["slot"] in query.slots)
    )


def in_order(documents: list[JobDocument], sort: str) -> list[str]:
    """The ids of jobs as a search must sort them: by value, ties by id, those without a value last."""
    name, down = sort.removeprefix("-"), sort.startswith("-")
    having = [document.id for document in documents if name in FIELDS[document.id]]
    lacking = [document.id for document in documents if name not in FIELDS[document.id]]
    return sorted(having, key=lambda text: (FIELDS[text][name], text), reverse=down) + sorted(lacking, reverse=down)


async def all_pages(store: JobStore, query: JobQuery, *, sort: str = "created", limit: int = MAX_PAGE) -> list[str]:
    ids: list[str] = []
    cursor = None
    while True:
        page = await store.search(query, sort=sort, limit=limit, cursor=cursor)
        ids += [stored.document.id for stored in page.jobs]
        if page.cursor is None:
            return ids
        assert len(page.jobs) == limit
        cursor = page.cursor


async def check(filled: Filled, query: JobQuery) -> int:
    """The search finds exactly what the query means, whole and at its version; how many that is."""
    store, jobs = filled
    stored_jobs = (await store.search(query, limit=MAX_PAGE)).jobs
    assert {stored_job.document.id: stored_job.document for stored_job in stored_jobs} == {
        k: v for k, v in jobs.items() if matches(v, query)
    }
    assert len({stored_job.document.id for stored_job in stored_jobs}) == len(stored_jobs)
    return len(stored_jobs)


class TestFilters:
    @pytest.mark.ledger("P4-07")
    @pytest.mark.parametrize("name", sorted(TEXT_FIELDS))
    async def test_every_text_field(self, filled: Filled, name: str) -> None:
        values = VALUES[name]
        assert len(values) > 1
        for value in values[:12]:
            assert await check(filled, JobQuery(anyof={name: [value]})) > 0
        assert await check(filled, JobQuery(anyof={name: values[:2]})) > 1
        assert await check(filled, JobQuery(anyof={name: ["nobody has this"]})) == 0

    @pytest.mark.ledger("P4-07")
    @pytest.mark.parametrize("name", sorted(NUMBER_FIELDS))
    async def test_every_number_field(self, filled: Filled, name: str) -> None:
        values = VALUES[name]
        assert len(values) > 1
        for bound in (values[0], values[len(values) // 2], values[-1]):
            assert await check(filled, JobQuery(at_least={name: bound})) > 0
            assert await check(filled, JobQuery(at_most={name: bound})) > 0
            assert await check(filled, JobQuery(at_least={name: bound}, at_most={name: bound})) > 0
        assert await check(filled, JobQuery(at_least={name: values[-1] + 1})) == 0
        assert await check(filled, JobQuery(at_most={name: values[0] - 1})) == 0

    async def test_states(self, filled: Filled) -> None:
        for state in State:
            assert await check(filled, JobQuery(states=frozenset({state}))) > 0
        assert await check(filled, JobQuery(states=frozenset({State.RUNNING, State.FAULTED}))) > 1

    async def test_labels(self, filled: Filled) -> None:
        for labels in ({"run": "7"}, {"run": "7", "a=b": "c"}, {"a": "b=c"}, {"q": "'\"\\\0"}):
            assert await check(filled, JobQuery(labels=labels)) > 0
        for absent in ({"run": "8"}, {"a": "b"}, {"run": "7", "a": "b=c"}, {"7": "run"}):
            assert await check(filled, JobQuery(labels=absent)) == 0

    async def test_held(self, filled: Filled) -> None:
        for held in (True, False):
            assert await check(filled, JobQuery(held=held)) > 0

    async def test_slots(self, filled: Filled) -> None:
        evens = frozenset(range(0, SLOTS, 2))
        some = await check(filled, JobQuery(slots=evens))
        others = await check(filled, JobQuery(slots=frozenset(range(SLOTS)) - evens))
        assert some + others == await check(filled, JobQuery(slots=frozenset(range(SLOTS)))) == len(filled[1])
        assert await check(filled, JobQuery(slots=frozenset())) == 0

    async def test_tenants_are_separate(self, filled: Filled) -> None:
        store, jobs = filled
        for tenant in ("alpha", "beta", "gamma"):
            assert await check(filled, JobQuery(tenant=tenant)) > 0
            assert await check(filled, JobQuery(tenant=tenant, anyof={"id": list(jobs)})) > 0
        assert await check(filled, JobQuery(tenant="nobody")) == 0
        assert await store.count(JobQuery(tenant="nobody"), by="state") == {}

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    async def test_any_filters_together(self, filled: Filled, data: st.DataObject) -> None:
        def bounds() -> st.SearchStrategy[dict[str, int]]:
            pairs = st.sampled_from(sorted(NUMBER_FIELDS)).flatmap(
                lambda name: st.tuples(st.just(name), st.sampled_from(VALUES[name]))
            )
            return st.lists(pairs, max_size=2).map(dict)

        texts = st.sampled_from(sorted(TEXT_FIELDS)).flatmap(
            lambda name: st.tuples(st.just(name), st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=4))
        )
        query = data.draw(
            st.builds(
                JobQuery,
                tenant=st.sampled_from([None, None, "alpha", "beta"]),
                states=st.frozensets(st.sampled_from(State), max_size=4),
                anyof=st.lists(texts, max_size=2).map(dict),
                at_least=bounds(),
                at_most=bounds(),
                labels=st.sampled_from([{}, {}, {"run": "7"}]),
                held=st.sampled_from([None, None, True, False]),
                slots=st.sampled_from([None, frozenset(range(0, SLOTS, 3))]),
            )
        )
        await check(filled, query)


class TestOrder:
    @pytest.mark.ledger("P4-07")
    @pytest.mark.parametrize("sort", sorted(SORT_FIELDS) + [f"-{name}" for name in sorted(SORT_FIELDS)])
    async def test_every_sort_field_in_both_directions(self, filled: Filled, sort: str) -> None:
        store, jobs = filled
        expected = in_order(list(jobs.values()), sort)
        assert await all_pages(store, JobQuery(), sort=sort) == expected
        assert await all_pages(store, JobQuery(), sort=sort, limit=7) == expected
        query = JobQuery(tenant="alpha", held=False)
        assert await all_pages(store, query, sort=sort, limit=5) == in_order(
            [document for document in jobs.values() if matches(document, query)], sort
        )

    async def test_a_last_page_has_no_cursor_even_when_it_is_full(self, filled: Filled) -> None:
        store, jobs = filled
        page = await store.search(JobQuery(), limit=len(jobs))
        assert (len(page.jobs), page.cursor) == (len(jobs), None)
        assert await store.search(JobQuery(tenant="nobody")) == JobPage([], None)

    async def test_a_page_carries_versions_that_can_be_written_over(self, stores: Stores) -> None:
        await stores.jobs.write([DocumentChange(job(), None)])
        await stores.jobs.refresh()
        (stored,) = (await stores.jobs.search(JobQuery())).jobs
        (result,) = await stores.jobs.write([DocumentChange(replace(stored.document, priority=9), stored.version)])
        assert isinstance(result, Written)


class TestCursors:
    @pytest.mark.parametrize("sort", ["rank", "-created", "exit_code", "-exit_code", "name", "-id"])
    async def test_jobs_that_come_and_go_neither_repeat_nor_hide_others(
        self, stores: Stores, another: OpenAnother, sort: str
    ) -> None:
        """Between pages some jobs leave the result and others come in, before and behind the cursor."""
        query = JobQuery(tenant="alpha", anyof={"team": ["in"]})
        documents = [replace(document, tenant="alpha", team="in") for document in many_jobs(60)]
        await stores.jobs.write([DocumentChange(document, None) for document in documents])
        await stores.jobs.refresh()
        stay = {document.id for document in documents[::2]}
        leaving = [document.id for document in documents[1::2]]
        newcomers = [replace(document, tenant="alpha", team="in") for document in many_jobs(90)[60:]]
        ids: list[str] = []
        cursor = None
        while True:
            other = await another()
            page = await other.jobs.search(query, sort=sort, limit=7, cursor=cursor)
            ids += [stored.document.id for stored in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
            for name, stored in (await stores.jobs.get(leaving[:4])).items():
                await stores.jobs.write([DocumentChange(replace(stored.document, team="out"), stored.version)])
                leaving.remove(name)
            await stores.jobs.write([DocumentChange(newcomers.pop(), None) for _ in range(3) if newcomers])
            await stores.jobs.refresh()
        assert len(ids) == len(set(ids))
        assert stay <= set(ids)

    async def test_a_cursor_is_good_for_another_instance(self, stores: Stores, another: OpenAnother) -> None:
        await stores.jobs.write(
            [DocumentChange(job(f"job-{number}", created=NOW + number), None) for number in range(4)]
        )
        await stores.jobs.refresh()
        first = await stores.jobs.search(JobQuery(), limit=2)
        second = await (await another()).jobs.search(JobQuery(), limit=2, cursor=first.cursor)
        assert [stored.document.id for stored in [*first.jobs, *second.jobs]] == ["job-0", "job-1", "job-2", "job-3"]

    @pytest.mark.parametrize(
        "cursor",
        [
            "", "nonsense", "é", "AAAA", "%%%%", "null",
            *(
                urlsafe_b64encode(json.dumps(parts).encode()).decode()
                for parts in (
                    None, 7, [], ["created"], ["created", 1], ["created", "x", "job-1"], ["created", True, "job-1"],
                    ["created", 1.5, "job-1"], ["created", 2**63, "job-1"], ["created", 2**80, "job-1"],
                    ["created", [1], "job-1"], ["created", 1, None], ["-created", 1, "job-1"], ["name", "x", "job-1"],
                )
            ),
        ],
    )  # fmt: skip
    async def test_a_bad_cursor_is_refused_for_good(self, filled: Filled, cursor: str) -> None:
        with pytest.raises(Permanent):
            await filled[0].search(JobQuery(), cursor=cursor)

    async def test_a_cursor_of_another_order_is_refused(self, filled: Filled) -> None:
        store, _ = filled
        page = await store.search(JobQuery(), sort="name", limit=3)
        for sort in ("-name", "owner", "created"):
            with pytest.raises(Permanent):
                await store.search(JobQuery(), sort=sort, cursor=page.cursor)


class TestRefusals:
    @pytest.mark.parametrize("limit", [0, -1, MAX_PAGE + 1])
    async def test_sizes_of_pages(self, filled: Filled, limit: int) -> None:
        with pytest.raises(Permanent):
            await filled[0].search(JobQuery(), limit=limit)

    @pytest.mark.parametrize(
        "query",
        [
            JobQuery(anyof={"document": ["x"]}),
            JobQuery(anyof={"created": ["1"]}),
            JobQuery(at_least={"name": 1}),
            JobQuery(at_most={"version": 1}),
            JobQuery(at_most={"rev; DROP TABLE jobs": 1}),
            JobQuery(at_most={"memory": 2**63}),
            JobQuery(at_least={"created": -(2**70)}),
        ],
        ids=lambda query: str([*query.anyof.items(), *query.at_least.items(), *query.at_most.items()]),
    )
    async def test_unknown_fields_and_huge_bounds_in_filters(self, filled: Filled, query: JobQuery) -> None:
        store, _ = filled
        with pytest.raises(Permanent):
            await store.search(query)
        with pytest.raises(Permanent):
            await store.count(query, by="state")

    @pytest.mark.parametrize("field", ["document", "", "history", "--created", "labels"])
    async def test_unknown_fields_to_sort_and_count_by(self, filled: Filled, field: str) -> None:
        store, _ = filled
        with pytest.raises(Permanent):
            await store.search(JobQuery(), sort=field)
        with pytest.raises(Permanent):
            await store.count(JobQuery(), by=field)


class TestCounts:
    @pytest.mark.ledger("P4-07")
    @pytest.mark.parametrize("field", sorted(COUNT_FIELDS))
    async def test_every_count_field(self, filled: Filled, field: str) -> None:
        store, jobs = filled
        for query in (JobQuery(), JobQuery(tenant="beta", at_least={"cpus": 2})):
            meant = (FIELDS[name].get(field) for name, document in jobs.items() if matches(document, query))
            expected = Counter(_shown(value) for value in meant if value is not None)
            assert expected
            counts = await store.count(query, by=field)
            assert counts == expected
            assert list(counts.values()) == sorted(counts.values(), reverse=True)


class TestTallies:
    @pytest.mark.parametrize("over", sorted(TALLY_TIMES))
    @pytest.mark.parametrize("by", sorted(TALLY_FIELDS))
    async def test_every_step_and_value(self, filled: Filled, over: str, by: str) -> None:
        store, jobs = filled
        times = VALUES[over]
        least, step = times[0] + 1, max(1, (times[-1] - times[0]) // 7)
        for tenant in (None, "beta"):
            query = JobQuery(tenant=tenant, at_least={over: least}, at_most={over: times[-1] - 1})
            expected: list[Counter[str]] = [Counter() for _ in range((times[-1] - 1 - least) // step + 1)]
            for name, document in jobs.items():
                if matches(document, query):
                    expected[(FIELDS[name][over] - least) // step][_shown(FIELDS[name][by])] += 1
            assert sum(map(bool, expected)) > 1
            assert await store.tally(query, over=over, step=step, by=by) == expected

    async def test_what_cannot_be_tallied(self, filled: Filled) -> None:
        store, _ = filled
        both = JobQuery(at_least={"changed": 0}, at_most={"changed": 999})
        assert len(await store.tally(both, over="changed", step=2, by="state")) == MAX_STEPS
        for query, over, step, by in (
            (both, "created", 10, "state"),
            (both, "changed", 10, "owner"),
            (both, "changed", 0, "state"),
            (both, "changed", 1, "state"),
            (JobQuery(at_least={"changed": 0}), "changed", 10, "state"),
            (JobQuery(at_least={"changed": 5}, at_most={"changed": 4}), "changed", 10, "state"),
            (JobQuery(at_least={"slot": 0}, at_most={"slot": 9}), "slot", 10, "state"),
        ):
            with pytest.raises(Permanent):
                await store.tally(query, over=over, step=step, by=by)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
