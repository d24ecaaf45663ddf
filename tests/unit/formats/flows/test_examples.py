"""Every example comes to its end in the simulated world, and has the shape it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.execution.flow_run import InstanceState
from forestay.formats.flows.yaml_flow import read_flow_text

EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str) -> Flow:
    flow = read_flow_text((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")).flow
    assert flow is not None
    return flow


def jobs(world: World) -> dict[str, int]:
    """How many jobs each task had."""
    jobs: dict[str, int] = {}
    for batch in world.batches.values():
        jobs[batch.task] = jobs.get(batch.task, 0) + len(batch.ends)
    return jobs


@pytest.mark.parametrize("seed", range(3))
def test_the_tier0_flow_has_172_jobs(seed: int) -> None:
    world = World(example("tier0"), seed=seed, files=80).run_out()
    assert world.run.outcome is RunOutcome.COMPLETED
    assert jobs(world) == {
        "repack": 80, "repack-merge": 4, "prompt-reco": 60, "reco-merge": 4, "alca-reco": 20, "alca-merge": 4,
    }  # fmt: skip
    assert sum(jobs(world).values()) == 172


def test_scatter_and_gather() -> None:
    world = World(example("scatter-gather"), files=7, results=lambda work: {"words": 70}).run_out()
    assert jobs(world) == {"count": 7, "total": 1}
    assert world.run.outputs == {"files": 7, "words": 70}


def test_the_sweep_tolerates_some_failures() -> None:
    results = {"loss": 0.1, "rate": 0.2}
    world = World(
        example("parameter-sweep"), fate=lambda task, index, undo: index % 25 != 3, results=lambda work: results
    )
    world.run_out()
    assert jobs(world) == {"try": 100, "best": 1}
    assert world.run.instances["try"].bad == 4
    assert world.run.outputs == {"best": 0.2}


def test_the_nightly_load_goes_through_and_is_undone_when_it_fails() -> None:
    flow = example("nightly-etl")
    well = World(flow, results=lambda work: {"rows": 3000}).run_out()
    assert well.run.outcome is RunOutcome.COMPLETED
    assert well.run.pushed == 2
    bad = World(flow, results=lambda work: {"rows": 3000}, fate=lambda task, index, undo: task != "publish").run_out()
    assert bad.run.outcome is RunOutcome.FAILED
    assert bad.undone == ["extract@1!1.1"]
    few = World(flow, results=lambda work: {"rows": 3}, fate=lambda task, index, undo: task != "alarm").run_out()
    assert few.run.instances["load@1/otherwise/alarm"].state is InstanceState.FAULTED


def test_the_loop_ends_when_it_has_converged() -> None:
    world = World(example("until-converged"), results=lambda work: {"error": 0.5 ** int((work + "/0/").split("/")[1])})
    world.run_out()
    assert world.run.outputs == {"rounds": 7}
