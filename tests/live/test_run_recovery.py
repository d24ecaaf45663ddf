"""Runs whose runs end early, whose orchestrator is killed, whose signals are lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.live.test_runs import CHAIN, LOOP, SCATTER, named
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.run_names import job_of, shard_of
from forestay.ports.jobs.job_store import JobStore

pytestmark = [pytest.mark.live]


async def test_a_long_history_goes_on_in_a_new_run(tmp_path: Path) -> None:
    async with run_site("sqlite", tmp_path, history_limit=20) as site:
        run = await site.start(LOOP)
        began = (await site.engine.describe(run)).started
        ended = await site.ended(run)
        assert (ended.state, ended.started) == ("completed", began), "a new run is not a new beginning"
        assert site.ran == ["fit", "fit", "fit"]
        scattered = await site.start(SCATTER, n=900)
        assert (await site.result(scattered))["outputs"] == {"well": 900}
        assert len(site.ran) == len(set(site.ran)) + 2 == 3 + 901

        async def several() -> bool:
            return await site.runs(run) > 1

        await until(several, "the runs of the run to be listed")


async def test_what_nobody_told_is_looked_for(tmp_path: Path) -> None:
    """The relay is silent: after a while the run looks itself how its jobs stand."""
    async with run_site("sqlite", tmp_path, look_after=1.0, relay_every=3600) as site:
        _silence(site)
        run = await site.start(CHAIN)
        assert (await site.ended(run)).state == "completed"
        assert site.ran == ["first", "second"]


async def test_a_job_that_the_store_lost_is_made_again(tmp_path: Path) -> None:
    async with run_site("sqlite", tmp_path, pilots=0, look_after=1.0) as site:
        run = await site.start(CHAIN)
        store = site.server.services.components.store
        job = job_of(run, "first@1", 0)
        await until(_there(store, job), "the first job")
        await _lose(store, job)
        again = await until(_there(store, job), "the job to be made again")
        assert again.document.generation == 1


@pytest.mark.pair
async def test_an_orchestrator_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    async with run_site("postgresql", tmp_path, orchestrator=False, relay_patience=0.3) as site:
        known = site.domain.settings()
        settings: dict[str, Any] = {
            name: getattr(known, name) for name in ("temporal", "temporal_namespace", "task_queue", "history_limit")
        }
        async with processes(site.domain, tmp_path, **settings) as running:
            orchestrator = running._start("orchestrator")
            site.hold_back = named("first")
            chain = await site.start(CHAIN)
            many = await site.start(SCATTER, n=1500)

            async def begun() -> bool:
                return bool(site.kept) and len(site.ran) > 200

            await until(begun, "both runs to be under way", 120)  # a new process on a busy machine takes its time
            orchestrator.kill()
            site.hold_back = lambda _claim: False
            await site.let_go()
            running._start("orchestrator")
            assert (await site.ended(chain, 120)).state == "completed"
            assert (await site.ended(many, 120)).state == "completed"
            assert sorted(site.ran) == sorted({*(f"many[{n}]" for n in range(1500)), "last", "second"})


async def test_ends_that_come_for_a_closed_run_are_given_up(tmp_path: Path) -> None:
    async with run_site("sqlite", tmp_path) as site:
        site.hold_back = named("first")
        run = await site.start(CHAIN)

        async def running() -> bool:
            return bool(site.kept)

        await until(running, "the first job to run")
        client = await site.engine.client()
        await client.get_workflow_handle(run).terminate()
        await site.let_go()
        relay = site.server.services.components.relay
        assert relay is not None
        documents = site.server.services.components.documents
        name = f"delivery:{shard_of(run, 'first@1', -1)}"

        async def given_up() -> bool:
            stored_documents = await documents.get([name])
            return name in stored_documents and bool(stored_documents[name].document.body.get("closed"))

        await until(given_up, "the end to be given up")
        person = site.server.person("viewer", tenant=TENANT)
        jobs = (await person.get("/v1/jobs", params={"run": run})).json()["jobs"]
        assert [job["state"] for job in jobs] == ["completed"]


def _silence(site: RunSite) -> None:
    """The server's own hints stop; the window is set to never."""
    relay = site.server.services.components.relay
    assert relay is not None
    listeners = site.server.services.components.writer.listeners
    listeners.remove(relay)


def _there(store: JobStore, job: str) -> Any:
    async def there() -> Any:
        return (await store.get([job])).get(job)

    return there


async def _lose(store: Any, job: str) -> None:
    from sqlalchemy import delete

    from forestay.adapters.sql.tables import jobs

    await store.database.run(delete(jobs).where(jobs.c.id == job))
    assert not await store.get([job])
    await asyncio.sleep(0)
