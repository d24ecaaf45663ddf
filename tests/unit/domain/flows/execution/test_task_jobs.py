"""A work order becomes jobs without anything else being known."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.domain.flows.world import World

from forestay.domain.flows.commands import StartRun, SubmitJobs
from forestay.domain.flows.definition.flow import Compensation, Flow, Task
from forestay.domain.flows.definition.flow_pattern import (
    Dimension,
    FilesOf,
    JobPattern,
    ListOf,
    RangeOf,
    SubflowPattern,
)
from forestay.domain.flows.events import Verb, VerbKind
from forestay.domain.flows.execution.task_jobs import parameters, run_params, task_jobs
from forestay.domain.jobs.resources import Resources


def member(listing: str, place: int) -> object:
    return f"{listing}/{place}"


def files(output: Mapping[str, object], several: bool) -> object:
    name = f"{output['work']}.{output['output']}"
    return [f"{name}.{number}" for number in range(int(str(output["count"])))] if several else name


def orders(world: World) -> dict[str, SubmitJobs]:
    return {command.order.work: command for command in world.commands if isinstance(command, SubmitJobs)}


SCATTER = (Dimension("s", ListOf("${params.samples}")), Dimension("k", RangeOf(10, 30, 10)))
ALIGN = Task(
    "align",
    JobPattern(
        ("bwa", "${params.ref}", "${s}.fq", "-k${k}", "part-${index}", "awk '{print}'"),
        environment={"REF": "${params.ref}"},
        resources=Resources(cpus=2),
        outputs={"bam": "${s}.${k}.bam"},
        result="r.json",
    ),
    scatter=SCATTER,
    compensation=Compensation(JobPattern(("rm", "${s}.${k}.bam", "${params.ref}"))),
)
CALL = Task(
    "call", JobPattern(("call", "--", "${tasks.align.outputs.bam}"), inputs={"all": "${tasks.align.outputs.bam}"})
)
FLOW = Flow("f", (ALIGN, CALL, Task("bad", JobPattern(("false",)), after=("call",))))
PARAMS = {"samples": ["a", "b", "c"], "ref": "hg38"}


@pytest.fixture
def world() -> World:
    return World(FLOW, params=PARAMS, fate=lambda task, index, undo: task != "bad").run_out()


def test_the_elements_own_variables_stay_and_the_rest_is_filled_in(world: World) -> None:
    jobs = task_jobs(world.plan, orders(world)["align@1"].order, tenant="lab", files=files)
    spec = jobs.specification
    assert spec.command == ("bwa", "hg38", "{s}.fq", "-k{k}", "part-{index}", "awk '{print}'")
    assert spec.environment == {"REF": "hg38"}
    assert spec.outputs == ("*.*.bam", "r.json")
    assert spec.named_outputs == {"bam": "{s}.{k}.bam"}
    assert (spec.tenant, spec.name, spec.resources.cpus) == ("lab", "align", 2)


def test_each_job_has_its_element_the_last_variable_running_fastest(world: World) -> None:
    order = orders(world)["align@1"].order
    found_parameters = list(parameters(world.plan, order, range(6), member=member))
    assert found_parameters == [{"s": s, "k": k} for s in "abc" for k in (10, 20)]
    assert list(parameters(world.plan, order, range(3, 5), member=member)) == found_parameters[3:5]


def test_the_image_of_a_task_is_filled_in_and_changed() -> None:
    task = Task("t", JobPattern(("true",), container="registry/tool:${params.version}"))
    world = World(Flow("f", (task,)), params={"version": 3}, repeats=False)
    world.send(Verb(1, "v1", VerbKind.REPLACE, instance="t", by="ann", changes={"container": "debian:12"}))
    world.run_out()
    images = [
        task_jobs(world.plan, orders(world)[work].order, tenant="lab", files=files).specification.container
        for work in ("t@1", "t@2")
    ]
    assert images == ["registry/tool:3", "debian:12"]


def test_a_word_that_is_a_list_becomes_many_words(world: World) -> None:
    jobs = task_jobs(world.plan, orders(world)["call@1"].order, tenant="lab", files=files)
    places = [f"align@1.bam.{number}" for number in range(6)]
    assert jobs.specification.command == ("call", "--", *places)
    assert [(job_input.name, job_input.source) for job_input in jobs.specification.inputs] == [
        (f"all/{place}-{other_place}", other_place) for place, other_place in enumerate(places)
    ]


def test_a_compensation_has_the_elements_of_what_it_undoes(world: World) -> None:
    order = orders(world)["align@1!1.1"].order
    jobs = task_jobs(world.plan, order, tenant="lab", files=files)
    assert jobs.specification.command == ("rm", "{s}.{k}.bam", "hg38")
    assert next(iter(parameters(world.plan, order, range(5, 6), member=member))) == {"s": "c", "k": 20}


def test_listed_elements_are_looked_up() -> None:
    task = Task("t", JobPattern(("cat", "${file}")), scatter=(Dimension("file", FilesOf("*")),))
    world = World(Flow("f", (task,)), files=4).run_out()
    order = orders(world)["t@1"].order
    assert list(parameters(world.plan, order, range(2, 4), member=member)) == [
        {"file": "list-t@1/2"},
        {"file": "list-t@1/3"},
    ]


def test_a_scattered_sub_flow_gets_its_element() -> None:
    inner = Flow("inner", (Task("x", JobPattern(("true",))),))
    task = Task(
        "t", SubflowPattern("inner", {"name": "${s}", "n": "${index}", "ref": "${params.ref}"}), scatter=SCATTER
    )
    world = World(Flow("f", (task,), flows={"inner": inner}), params=PARAMS).run_out()
    starts = [command for command in world.commands if isinstance(command, StartRun)]
    assert run_params(world.plan, starts[4], member=member, files=files) == {"name": "c", "n": 4, "ref": "hg38"}


def test_changes_replace_fields_of_the_job() -> None:
    world = World(Flow("f", (Task("t", JobPattern(("true",))),)), repeats=False)
    changes = {"resources": {"memory": 5}, "command": ["x"]}
    world.send(Verb(1, "v1", VerbKind.REPLACE, instance="t", by="ann", changes=changes))
    world.run_out()
    jobs = task_jobs(world.plan, orders(world)["t@2"].order, tenant="lab", files=files)
    assert jobs.specification.command == ("x",)
    assert jobs.specification.resources == Resources(memory=5)
    wrong = Verb(1, "v2", VerbKind.REPLACE, instance="t", by="ann", changes={"colour": "red"})
    world = World(Flow("f", (Task("t", JobPattern(("true",))),)), repeats=False)
    world.send(wrong)
    assert not world.answers["v2"].accepted


def test_an_element_that_is_a_record_can_be_looked_into() -> None:
    rows = ListOf(({"name": "a", "lane": 1}, {"name": "b", "lane": 2}))
    task = Task("t", JobPattern(("x", "${row.name}", "${row.lane}")), scatter=(Dimension("row", rows),))
    world = World(Flow("f", (task,))).run_out()
    order = orders(world)["t@1"].order
    assert task_jobs(world.plan, order, tenant="lab", files=files).specification.command == (
        "x",
        "{row.name}",
        "{row.lane}",
    )
    (fields,) = parameters(world.plan, order, range(1, 2), member=member)
    assert (fields["row.name"], fields["row.lane"]) == ("b", 2)
