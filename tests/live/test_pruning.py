"""Jobs of real runs are removed when nobody can ask for them any more, and not before."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.ports.flows.flow_engine import RunQuery
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.operations.job_pruner import JobPruner, Pruned

pytestmark = pytest.mark.live

NESTED = """
forestay: 1
name: nested
tasks:
  part: {flow: part}
  last: {command: [last], after: [part]}
flows:
  part:
    name: part
    tasks:
      inner: {command: [inner]}
"""


@pytest.fixture(params=["postgresql", "opensearch"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("pruning")) as running:
        yield running


async def names(site: RunSite) -> list[str]:
    await site.server.refresh()
    page = await site.server.services.components.store.search(JobQuery())
    return sorted(job.document.name for job in page.jobs)


async def test_jobs_of_runs_go_when_all_above_them_have_ended(site: RunSite) -> None:
    assert site.reconciler is not None
    parts = site.reconciler.components
    prune: JobPruner = site.reconciler.pruning

    async def pruned() -> Pruned:
        await site.server.refresh()
        return await prune.prune(parts.clock.now() + 1000)

    site.hold_back = lambda claim: claim["name"] == "last"
    run = await site.start(NESTED)
    await site.kept_some()

    async def inner_over() -> bool:
        page = await site.engine.find(RunQuery(TENANT), limit=10)
        return any(other_run.run != run and other_run.ended is not None for other_run in page.runs)

    await until(inner_over, "the sub-flow to be over")
    assert await pruned() == Pruned(0, 1), "its run has ended, and the one above it may still ask for what it made"
    assert await names(site) == ["inner", "last"]
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.ended(run)).state == "completed"
    assert await pruned() == Pruned(2, 0)
    assert await names(site) == []
    assert (await site.engine.describe(run)).state == "completed", "the run itself is still known"
    # The next run of the same flow finds nothing in its way.
    assert (await site.ended(await site.start(NESTED))).state == "completed"
    assert site.ran[-2:] == ["inner", "last"]
