"""DAGs on a real HTCondor with a real condor_dagman: what becomes of them with the POST script, and beside it without."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.system.insertion.condor_dag import Htcondor, RealDag
from tests.unit.apps.server.exceptions.test_engines import add_rule, incidents
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "tenant"]
pytestmark = pytest.mark.slow

HUNGRY = (
    "block = bytearray(200 << 20)\nfor at in range(0, len(block), 4096): block[at] = 1\nimport time; time.sleep(10)"
)
"""Uses 200 MiB for ten seconds; HTCondor looks every two."""
SMALL = ("request_memory = 100", "periodic_remove = JobStatus == 5")
MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 4.0, "at_most": 1 << 32}},
}
RETRIES = "RETRY ALL_NODES 2 UNLESS-EXIT 77"
SUSPECT = "import os, sys; sys.exit(0 if os.path.exists('repaired') else 3)"


@pytest.fixture
def dag(tmp_path: Path) -> RealDag:
    return RealDag(Htcondor(), tmp_path)


def hooked(dag: RealDag, local: RunningServer, tenant: str, *more: str) -> list[str]:
    token = dag.folder / "token"
    token.write_text(local.domain.token("engine", tenant=tenant, subject="dagman"))
    return dag.hook("--server", local.url, "--token-file", str(token), *more)


def chain(dag: RealDag, first: str, *lines: str) -> str:
    """A, then B."""
    dag.job("A", first, *lines)
    dag.job("B", "")
    return "PARENT A CHILD B"


def test_bare_a_node_over_its_memory_is_held_removed_and_retried_until_the_dag_fails(dag: RealDag) -> None:
    dag.write(chain(dag, HUNGRY, *SMALL), RETRIES)
    assert dag.go() == 1
    assert (dag.runs("A"), dag.runs("B")) == (3, 0)
    assert dag.rescues() == ["night.dag.rescue001"]


@pytest.mark.ledger("P1-29")
async def test_a_rule_gives_a_node_that_was_held_for_memory_more_of_it(
    dag: RealDag, local: RunningServer, tenant: str
) -> None:
    await add_rule(local, tenant, MORE)
    dag.write(chain(dag, HUNGRY, *SMALL), RETRIES, *hooked(dag, local, tenant))
    assert await asyncio.to_thread(dag.go) == 0, dag.output()[-4000:]
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (2, 1, [])
    ada = local.person("viewer", tenant=tenant)
    (found,) = await incidents(ada)
    whole = (await ada.get(f"/v1/incidents/{found['id']}")).json()
    evidence = whole["context"]["evidence"]
    assert (evidence["hold_code"], evidence["hold_subcode"]) == (21, 102)
    assert (found["cause"], found["task"], found["flow"]) == ("memory", "A", "dagman/night")
    asked = dag.condor.run(
        "condor_history",
        "-constraint",
        f'DAGNodeName == "A" && Iwd == "{dag.folder}"',
        "-limit",
        "1",
        "-af",
        "RequestMemory",
    )
    assert asked == "400"


async def test_a_node_that_was_held_for_its_input_is_explained_by_the_reason_of_the_hold(
    dag: RealDag, local: RunningServer, tenant: str
) -> None:
    """It never ran, so nothing else tells why. No rule answers: it comes out as without the script."""
    wants = ("should_transfer_files = YES", "transfer_input_files = nowhere.txt", "periodic_remove = JobStatus == 5")
    dag.write(chain(dag, "", *wants), "RETRY ALL_NODES 1 UNLESS-EXIT 77", *hooked(dag, local, tenant))
    assert await asyncio.to_thread(dag.go) == 1
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (0, 0, ["night.dag.rescue001"])
    ada = local.person("viewer", tenant=tenant)
    found = await until(lambda: incidents(ada), "the incidents")
    assert [value["task"] for value in found] == ["A"] * 2
    evidence = (await ada.get(f"/v1/incidents/{found[0]['id']}")).json()["context"]["evidence"]
    assert (found[0]["cause"], evidence["hold_code"]) == ("data-missing", 13)
    assert "nowhere.txt" in evidence["scheduler_reason"]


async def test_a_rescue_dag_is_written_and_taken_up_as_without_the_script(
    dag: RealDag, local: RunningServer, tenant: str
) -> None:
    dag.job("A", "")
    dag.job("B", SUSPECT)
    dag.write("PARENT A CHILD B", RETRIES, *hooked(dag, local, tenant))
    assert await asyncio.to_thread(dag.go) == 1
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (1, 3, ["night.dag.rescue001"])
    ada = local.person("viewer", tenant=tenant)
    found = await until(lambda: incidents(ada), "the incidents")
    assert [value["task"] for value in found] == ["B"] * 3
    (dag.folder / "repaired").touch()
    assert await asyncio.to_thread(dag.go) == 0, dag.output()[-4000:]
    assert (dag.runs("A"), dag.runs("B")) == (1, 4), "the rescue DAG runs only what is left"


def test_bare_a_rescue_dag_is_written_and_taken_up(dag: RealDag) -> None:
    dag.job("A", "")
    dag.job("B", SUSPECT)
    dag.write("PARENT A CHILD B", RETRIES)
    assert dag.go() == 1
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (1, 3, ["night.dag.rescue001"])
    (dag.folder / "repaired").touch()
    assert dag.go() == 0
    assert (dag.runs("A"), dag.runs("B")) == (1, 4)


async def test_a_node_waits_for_a_person_while_dagman_defers_its_script(
    dag: RealDag, local: RunningServer, tenant: str
) -> None:
    dag.write(chain(dag, SUSPECT), RETRIES, *hooked(dag, local, tenant, "--hold", "--seconds", "20"))
    running = asyncio.create_task(asyncio.to_thread(dag.go))
    olga = local.person("operator", tenant=tenant, subject="olga")
    (value,) = await until(lambda: incidents(olga, state="held"), "the incident to wait", patience=120)

    async def asked_again() -> bool:
        return dag.output().count("POST script") > 1 and "deferring" in dag.output().lower()

    await until(asked_again, "DAGMan to ask again", patience=180)
    answer = await olga.post(f"/v1/runs/{value['run']}/verbs", json={"verb": "force-complete", "task": "A"})
    assert answer.status_code == 200, answer.text
    assert await running == 0, dag.output()[-4000:]
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (1, 1, [])


async def test_what_a_rule_gives_up_on_is_not_retried(dag: RealDag, local: RunningServer, tenant: str) -> None:
    await add_rule(local, tenant, {"action": "force-fail", "target": "task"})  # a kill from outside: memory, most often
    dag.write(chain(dag, "import os; os.kill(os.getpid(), 9)"), RETRIES, *hooked(dag, local, tenant))
    assert await asyncio.to_thread(dag.go) == 1
    assert (dag.runs("A"), dag.rescues()) == (1, ["night.dag.rescue001"])


def test_with_forestay_away_a_dag_runs_as_without_the_script(dag: RealDag) -> None:
    (dag.folder / "token").write_text("x")
    dag.write(chain(dag, SUSPECT), RETRIES, *dag.hook("--server", "http://127.0.0.1:9", "--token-file", "token"))
    assert dag.go() == 1
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (3, 0, ["night.dag.rescue001"])


async def test_a_dag_that_is_removed_asks_for_nothing(dag: RealDag, local: RunningServer, tenant: str) -> None:
    await add_rule(local, tenant, MORE, condition="true")
    dag.write(chain(dag, "import time; time.sleep(600)"), RETRIES, *hooked(dag, local, tenant))
    await asyncio.to_thread(dag.start)

    async def runs() -> bool:
        return dag.runs("A") == 1

    await until(runs, "the node to run", patience=120)
    await asyncio.to_thread(dag.condor.run, "condor_rm", "-constraint", f'JobUniverse == 7 && Iwd == "{dag.folder}"')
    assert await asyncio.to_thread(dag.wait) != 0
    assert (dag.runs("A"), dag.runs("B"), dag.rescues()) == (1, 0, ["night.dag.rescue001"])
    assert await incidents(local.person("viewer", tenant=tenant)) == []
