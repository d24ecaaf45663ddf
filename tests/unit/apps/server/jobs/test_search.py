"""Searches, sorting, paging and counts through the interface."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import read, steer, submit
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

pytestmark = pytest.mark.every_store

JOBS: dict[str, dict[str, Any]] = {
    "a": {"name": "align", "owner": "ada", "team": "genomics", "priority": 10, "expected_runtime": 60,
          "labels": {"run": "1", "site": "x"}, "resources": {"cpus": 1, "memory": 1 << 20}},
    "b": {"name": "align", "owner": "bob", "team": "genomics", "priority": -5, "expected_runtime": 3600,
          "labels": {"run": "1"}, "resources": {"cpus": 8, "memory": 1 << 33, "gpus": 2}},
    "c": {"name": "call", "owner": "ada", "team": "physics", "priority": 0, "hold": True,
          "labels": {"run": "2", "site": "x"}, "resources": {"cpus": 4, "disk": 1 << 30}},
    "d": {"name": "call", "owner": "bob", "index": 7, "priority": 10, "expected_runtime": 60},
}  # fmt: skip

FOUND: list[tuple[dict[str, Any], str]] = [
    ({}, "abcd"),
    ({"state": "available"}, "abcd"),
    ({"state": ["running", "completed"]}, ""),
    ({"owner": "ada"}, "ac"),
    ({"owner": ["ada", "bob"], "name": "call"}, "cd"),
    ({"team": "genomics"}, "ab"),
    ({"name": "align"}, "ab"),
    ({"label": "run=1"}, "ab"),
    ({"label": ["run=1", "site=x"]}, "a"),
    ({"label": "site=y"}, ""),
    ({"held": "true"}, "c"),
    ({"held": "false"}, "abd"),
    ({"min_priority": 0}, "acd"),
    ({"min_priority": -10, "max_priority": 0}, "bc"),
    ({"min_expected_runtime": 61}, "b"),
    ({"max_expected_runtime": 60}, "ad"),
    ({"min_cpus": 4}, "bc"),
    ({"min_cpus": 2, "max_cpus": 4}, "c"),
    ({"min_memory": 1 << 30}, "b"),
    ({"min_disk": 1}, "c"),
    ({"min_gpus": 1}, "b"),
    ({"min_index": 7, "max_index": 7}, "d"),
    ({"created_after": "2020-01-01T00:00:00Z"}, "abcd"),
    ({"created_before": "2020-01-01T00:00:00Z"}, ""),
    ({"created_after": "2020-01-01"}, "abcd"),
    ({"changed_after": "2999-01-01T00:00:00Z"}, ""),
    ({"min_retries": 1}, ""),
    ({"min_attempt": 0, "max_attempt": 0}, "abcd"),
]


async def _submitted(server: RunningServer, tenant: str) -> dict[str, str]:
    operator = server.person("operator", tenant=tenant)
    jobs = await submit(operator, *JOBS.values())
    await server.refresh()
    return dict(zip(JOBS, jobs, strict=True))


async def test_every_filter_finds_what_it_says(server: RunningServer, tenant: str) -> None:
    names = {job: name for name, job in (await _submitted(server, tenant)).items()}
    viewer = server.person("viewer", tenant=tenant)
    for filters, wanted in FOUND:
        answer = await viewer.get("/v1/jobs", params=filters)
        assert answer.status_code == 200, answer.text
        text = "".join(sorted(names[job["id"]] for job in answer.json()["jobs"]))
        assert text == wanted, filters
        counted = (await viewer.get("/v1/jobs/counts", params=filters)).json()["counts"]
        assert sum(counted.values()) == len(wanted), filters


async def test_a_page_shows_jobs_as_they_are_read_one_by_one(server: RunningServer, tenant: str) -> None:
    await _submitted(server, tenant)
    viewer = server.person("viewer", tenant=tenant)
    for job in (await viewer.get("/v1/jobs")).json()["jobs"]:
        assert job == await read(viewer, job["id"])


SORTED: list[tuple[str, list[str]]] = [
    ("priority", ["b", "c", "ad"]),
    ("-priority", ["ad", "c", "b"]),
    ("expected_runtime", ["ad", "b", "c"]),
    ("-expected_runtime", ["b", "ad", "c"]),
    ("name", ["ab", "cd"]),
    ("-name", ["cd", "ab"]),
    ("owner", ["ac", "bd"]),
    ("cpus", ["ad", "c", "b"]),
    ("memory", ["cd", "a", "b"]),
    ("created", ["abcd"]),
    ("-changed", ["abcd"]),
    ("retries", ["abcd"]),
]


async def test_every_order_and_paging_through_it(server: RunningServer, tenant: str) -> None:
    names = {job: name for name, job in (await _submitted(server, tenant)).items()}
    viewer = server.person("viewer", tenant=tenant)
    for sort, groups in SORTED:
        whole = [names[job["id"]] for job in (await viewer.get("/v1/jobs", params={"sort": sort})).json()["jobs"]]
        rest = list(whole)
        for group in groups:
            assert sorted(rest[: len(group)]) == sorted(group), (sort, whole)
            rest = rest[len(group) :]
        paged: list[str] = []
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"sort": sort, "limit": 1} | ({"cursor": cursor} if cursor else {})
            page = (await viewer.get("/v1/jobs", params=params)).json()
            paged += [names[job["id"]] for job in page["jobs"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert paged == whole, sort


async def test_pages_stay_whole_while_jobs_come_and_go(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    jobs = await submit(ada, *({"index": place} for place in range(50)))
    await server.refresh()
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params: dict[str, Any] = {"sort": "created", "limit": 7} | ({"cursor": cursor} if cursor else {})
        page = (await ada.get("/v1/jobs", params=params)).json()
        seen += [job["id"] for job in page["jobs"]]
        await steer(ada, seen[-1], "cancel")
        await submit(ada)
        await server.refresh()
        cursor = page["cursor"]
        if cursor is None or len(seen) > 200:
            break
    assert len(seen) == len(set(seen))
    assert set(jobs) <= set(seen)


async def test_a_cursor_is_good_at_another_server_and_for_its_own_order_only(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    await _submitted(server, tenant)
    here, there = (running_server.person("viewer", tenant=tenant) for running_server in (server, other))
    first = (await here.get("/v1/jobs", params={"sort": "priority", "limit": 2})).json()
    second = (await there.get("/v1/jobs", params={"sort": "priority", "cursor": first["cursor"]})).json()
    assert len(first["jobs"]) == len(second["jobs"]) == 2
    assert not {job["id"] for job in first["jobs"]} & {job["id"] for job in second["jobs"]}
    assert (await here.get("/v1/jobs", params={"sort": "-priority", "cursor": first["cursor"]})).status_code == 400
    # A cursor of one tenant shows another nothing.
    eve = server.person("viewer", tenant=f"{tenant}-eve")
    assert (await eve.get("/v1/jobs", params={"sort": "priority", "cursor": first["cursor"]})).json()["jobs"] == []


COUNTED: list[tuple[str, dict[str, int]]] = [
    ("state", {"available": 4}),
    ("owner", {"ada": 2, "bob": 2}),
    ("team", {"genomics": 2, "physics": 1}),
    ("name", {"align": 2, "call": 2}),
    ("priority", {"10": 2, "0": 1, "-5": 1}),
    ("retries", {"0": 4}),
    ("held", {"true": 1, "false": 3}),
    ("host", {}),
    ("pilot", {}),
]


async def test_counts_by_each_field(server: RunningServer, tenant: str) -> None:
    await _submitted(server, tenant)
    viewer = server.person("viewer", tenant=tenant)
    for by, wanted in COUNTED:
        counted = (await viewer.get("/v1/jobs/counts", params={"by": by})).json()["counts"]
        assert counted == wanted, by
    for by in ("resource_class", "specification"):
        assert sum((await viewer.get("/v1/jobs/counts", params={"by": by})).json()["counts"].values()) == 4


@pytest.mark.parametrize("outcome", ["ok", "failure"])
async def test_what_became_of_a_job_is_found(server: RunningServer, tenant: str, outcome: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    (job,) = await submit(ada, {"expected_runtime": 5}, max_attempts=2)
    pilot = await ScriptedPilot.register(server, tenant, host="node7")
    first = await pilot.claim_one()
    await server.refresh()
    for filters in ({"pilot": pilot.name}, {"host": "node7"}, {"state": "running", "phase": "executing"}):
        assert [other_job["id"] for other_job in (await ada.get("/v1/jobs", params=filters)).json()["jobs"]] == [job]
    await pilot.end(first, outcome="failure", exit_code=9, host="node7")
    second = await pilot.claim_one()
    await pilot.end(second, outcome=outcome, exit_code=0 if outcome == "ok" else 9, host="node7")
    await server.refresh()
    state = "completed" if outcome == "ok" else "failed"
    failures = 1 if outcome == "ok" else 2
    for filters in (
        {"state": state, "min_retries": "1"},
        {"min_attempt": "2", "host": "node7"},
        {"min_failures": str(failures), "max_failures": str(failures)},
        {"min_exit_code": "0" if outcome == "ok" else "9"},
    ):
        assert [other_job["id"] for other_job in (await ada.get("/v1/jobs", params=filters)).json()["jobs"]] == [job], (
            filters
        )
    assert (await ada.get("/v1/jobs", params={"pilot": pilot.name})).json()["jobs"] == []
    assert (await ada.get("/v1/jobs/counts", params={"by": "retries"})).json()["counts"] == {"1": 1}
