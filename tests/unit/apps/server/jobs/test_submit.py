"""Submitting: once however often it is sent, and all or nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, story, submit, submit_one
from tests.unit.apps.server.line import line_to_store
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import PLENTY, ScriptedPilot
from tests.unit.apps.server.store_room import far

TWO = {"specification": {"command": ["true"]}, "jobs": [{"name": "one"}, {"name": "two"}]}


async def test_a_job_is_stored_as_it_was_asked_for(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    asked: dict[str, Any] = {
        "name": "align", "team": "genomics", "labels": {"run": "7", "a/b.c-d": "x = y"}, "priority": 7, "index": 3,
        "expected_runtime": 120, "parameters": {"sample": "naïve \u0000 ✓", "n": [1, 2.5, None, {"deep": True}]},
        "resources": {"cpus": 2, "memory": 1 << 30, "disk": 5, "gpus": 1, "wall": 60},
        "not_before": "2030-01-01T00:00:00+01:00", "hold": True,
    }  # fmt: skip
    spec = {"command": ["sh", "-c", "echo {sample}\n\ttab"], "environment": {"A_B": "c=d"}, "outputs": ["*.bam"]}
    job = await submit_one(ada, asked, **spec, max_attempts=3, retry_wait=5, effects="external", when_exhausted="hold")
    shown = await read(ada, job)
    for name in asked.keys() - {"hold", "not_before"}:
        assert shown[name] == asked[name], name
    assert shown["not_before"] == "2029-12-31T23:00:00.000Z"
    assert (shown["owner"], shown["tenant"], shown["holders"]) == ("ada", tenant, ["ada"])
    assert (shown["state"], shown["attempt"], shown["max_attempts"]) == ("available", 0, 3)
    kept = (await ada.get(f"/v1/jobs/{job}/specification")).json()
    for name, value in spec.items():
        assert kept[name] == value
    assert (kept["effects"], kept["retry_wait"], kept["when_exhausted"]) == ("external", 5, "hold")
    (line,) = await story(ada, job)
    assert (line["event"], line["by"], line["words"]) == ("create", "ada", "ada submitted the job.")


async def test_each_job_may_bring_its_own_specification(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    own = {"specification": {"command": ["false"], "name": "own"}}
    first, two = await submit(ada, {}, own)
    assert (await ada.get(f"/v1/jobs/{first}/specification")).json()["command"] == ["true"]
    assert (await ada.get(f"/v1/jobs/{two}/specification")).json()["command"] == ["false"]
    assert (await read(ada, two))["name"] == "own"


async def test_a_repeat_with_its_key_gives_the_same_jobs(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    first = await ada.post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "k"})
    again = await ada.post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "k"})
    assert [job["created"] for job in first.json()["jobs"]] == [True, True]
    assert [job["created"] for job in again.json()["jobs"]] == [False, False]
    assert [job["id"] for job in first.json()["jobs"]] == [job["id"] for job in again.json()["jobs"]]
    other = await ada.post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "another"})
    assert not {job["id"] for job in first.json()["jobs"]} & {job["id"] for job in other.json()["jobs"]}
    foreign = server.person("submitter", tenant=f"{tenant}-eve")
    theirs = await foreign.post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "k"})
    assert not {job["id"] for job in first.json()["jobs"]} & {job["id"] for job in theirs.json()["jobs"]}


async def test_a_key_used_for_another_body_is_refused_and_the_first_stays(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    jobs = await submit(ada, {"name": "one"}, key="k")
    for body in (
        TWO,
        {"specification": {"command": ["true"]}, "jobs": [{"name": "other"}]},
        {"specification": {"command": ["false"]}, "jobs": [{"name": "one"}]},
    ):
        problem(await ada.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}), 409)
    await server.refresh()
    found_jobs = (await ada.get("/v1/jobs")).json()["jobs"]
    assert [(job["id"], job["name"]) for job in found_jobs] == [(jobs[0], "one")]


@pytest.mark.finding("F-C8")
async def test_a_key_is_its_callers_own(server: RunningServer, tenant: str) -> None:
    """Another person of the tenant may use the same word, for the same request or another."""
    ada, bob = (server.person("submitter", tenant=tenant, subject=name) for name in ("ada", "bob"))
    first = await submit(ada, {"name": "one"}, key="k")
    assert await submit(bob, {"name": "one"}, key="k") != first
    assert await submit(bob, {"name": "one"}, key="k") != first
    assert await submit(ada, {"name": "one"}, key="k") == first


async def test_the_order_of_fields_does_not_make_another_body(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    names = await submit(ada, {"parameters": {"a": 1, "b": 2}, "labels": {"x": "1", "y": "2"}}, key="k")
    two = await submit(ada, {"labels": {"y": "2", "x": "1"}, "parameters": {"b": 2, "a": 1}}, key="k")
    assert names == two


async def test_the_same_request_many_times_at_once_makes_one_set_of_jobs(
    server: RunningServer, other: RunningServer, tenant: str, store_kind: str
) -> None:
    """At two servers at once; a client that was told 503 sends the same again."""
    repeats = 1000 if store_kind == "postgresql" else 300  # the others have one writer, and are slower for it
    people = [server.person("submitter", tenant=tenant), other.person("submitter", tenant=tenant)]
    at_once = asyncio.Semaphore(64)
    created: list[int] = []

    async def send(number: int) -> tuple[str, ...]:
        for _ in range(20):
            async with at_once:
                answer = await people[number % 2].post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "k"})
            if answer.status_code != 503:
                break
        assert answer.status_code == 201, answer.text
        created.append(sum(job["created"] for job in answer.json()["jobs"]))
        return tuple(job["id"] for job in answer.json()["jobs"])

    assert len(set(await asyncio.gather(*(send(number) for number in range(repeats))))) == 1
    await server.refresh()
    jobs = (await people[0].get("/v1/jobs")).json()["jobs"]
    assert sorted(job["name"] for job in jobs) == ["one", "two"]
    assert sum(created) <= 2


async def test_ten_thousand_jobs_in_one_request(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    jobs = await submit(ada, *({"index": place} for place in range(10_000)))
    assert len(set(jobs)) == 10_000
    await server.refresh()
    assert (await ada.get("/v1/jobs/counts")).json()["counts"] == {"available": 10_000}
    for place in (0, 4_999, 9_999):
        assert (await read(ada, jobs[place]))["index"] == place


async def test_one_job_more_than_ten_thousand_is_refused(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    body = {"specification": {"command": ["true"]}, "jobs": [{}] * 10_001}
    problem(await ada.post("/v1/jobs", json=body), 422)
    problem(await ada.post("/v1/jobs", json=body | {"jobs": []}), 422)
    assert (await ada.get("/v1/jobs")).json()["jobs"] == []


@far
async def test_a_store_that_does_not_answer_is_told_as_503(domain: Domain, tenant: str) -> None:
    """Nothing is accepted that the store has not acknowledged; the same request with its key goes through later."""
    async with line_to_store(domain) as (reached, line), reached.server() as alone:
        ada = alone.person("submitter", tenant=tenant)
        line.cut()
        for answer in (
            await ada.post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "k"}),
            await ada.post("/v1/jobs", json=TWO),
            await ada.get("/v1/jobs"),
            await ada.get("/v1/jobs/any"),
            await ada.get("/v1/status"),
        ):
            problem(answer, 503)
            assert answer.headers["retry-after"] == "1"
        line.recover()

        async def accepted() -> bool:
            return (await ada.post("/v1/jobs", json=TWO, headers={"Idempotency-Key": "k"})).status_code == 201

        await until(accepted, "the store to be reached again")
        await alone.refresh()
        assert (await ada.get("/v1/jobs/counts")).json()["counts"] == {"available": 2}


async def test_a_container_is_kept_and_given_to_the_pilot(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    await submit_one(ada, container="docker://debian:12")
    pilot = await ScriptedPilot.register(local, tenant)
    claim = await pilot.claim_one()
    assert claim["specification"]["container"] == "docker://debian:12"
    for wrong in ({"container": "--bind=/"}, {"container": "a b"}, {"container": "a.sif", "runner": "warm"}):
        body = {"specification": {"command": ["true"]} | wrong, "jobs": [{}]}
        problem(await ada.post("/v1/jobs", json=body), 422)


async def test_a_job_of_several_nodes_is_for_a_pilot_that_has_as_many(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    job = await submit_one(ada, resources={"cpus": 2, "nodes": 2})
    plain = await submit_one(ada)
    assert (await ada.get(f"/v1/jobs/{job}")).json()["resources"]["nodes"] == 2
    assert "nodes" not in (await ada.get(f"/v1/jobs/{plain}")).json()["resources"]
    wide = PLENTY | {"nodes": 2}
    several = await ScriptedPilot.register(local, tenant, slots=1, resources=wide)
    claim = await several.claim_one(resources=wide)
    assert (claim["job"], claim["resources"]["nodes"]) == (job, 2)
    alone = await ScriptedPilot.register(local, tenant)
    assert (await alone.claim_one())["job"] == plain


async def test_what_cannot_run_on_several_nodes_is_refused(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    wide = {"resources": {"nodes": 2}}
    for wrong in ({"container": "a.sif"}, {"secrets": {"TOKEN": "file:token"}}, {"runner": "warm"}):
        for specification, job in (({"command": ["true"]} | wide | wrong, {}), ({"command": ["true"]} | wrong, wide)):
            body = {"specification": specification, "jobs": [job]}
            (error,) = problem(await ada.post("/v1/jobs", json=body), 422)["errors"]
            assert error["at"] == "body.jobs.0.resources.nodes"


@pytest.mark.finding("F-C6")
async def test_an_output_outside_of_the_jobs_folder_is_refused(local: RunningServer, tenant: str) -> None:
    ada = local.person("submitter", tenant=tenant)
    for pattern in ("../x", "/etc/passwd", "a/../../x", "..", "a/.."):
        body = {"specification": {"command": ["true"], "outputs": ["ok.txt", pattern]}, "jobs": [{}]}
        (error,) = problem(await ada.post("/v1/jobs", json=body), 422)["errors"]
        assert error["at"] == "body.specification.outputs.1"
    good = {"specification": {"command": ["true"], "outputs": ["a..b", "a/*.txt", "**", "..a/x"]}, "jobs": [{}]}
    assert (await ada.post("/v1/jobs", json=good)).status_code == 201
