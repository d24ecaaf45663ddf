"""A DAG of a real Airflow by our provider: the task is deferred to the triggerer, its job loses its node and is recovered by Forestay, and the task succeeds without a retry."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.system.insertion.airflow_site import AirflowSite, airflow_site
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.pair]
TENANT = "air"
FLOWS = """
import pendulum
from airflow.sdk import DAG
from airflow.providers.standard.operators.python import PythonOperator
from airflow_provider_forestay.operator import ForestaySubmitOperator

def hungry():
    raise MemoryError("Unable to allocate 12.0 GiB for an array")

def dag(name):
    return DAG(name, schedule=None, start_date=pendulum.datetime(2026, 1, 1), is_paused_upon_creation=False, default_args={{"retries": 0}})

with dag("recovered"):
    ForestaySubmitOperator(
        task_id="work",
        job={{"command": ["sh", "-c", "echo $$ >> {folder}/pids; [ -e {folder}/again ] && exit 0; sleep 600"], "max_attempts": 1}},
        deferrable=True, every=1,
    )
with dag("stopped"):
    ForestaySubmitOperator(task_id="work", job={{"command": ["sleep", "600"]}}, deferrable=True, every=1)
with dag("foreign"):
    PythonOperator(task_id="hungry", python_callable=hungry)
"""


@pytest.fixture(scope="module")
async def scenario(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    folder = tmp_path_factory.mktemp("site")
    async with store_room("sqlite", folder) as url, processes(Domain(url, folder), folder, lease=2) as running:
        await running.server()
        running.reconciler()
        yield running


def _server(scenario: Processes) -> Started:
    return next(started for started in scenario.started if started.url)


@pytest.fixture(scope="module")
async def site(scenario: Processes, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AirflowSite]:
    token = scenario.domain.token("submitter", tenant=TENANT, subject="airflow", seconds=6 * 3600)
    connection = {"conn_type": "forestay", "host": _server(scenario).url, "password": token}
    settings = {
        "AIRFLOW_CONN_FORESTAY_DEFAULT": json.dumps(connection),
        "AIRFLOW__FORESTAY__LISTENER_CONN_ID": "forestay_default",
    }
    flows = FLOWS.format(folder=scenario.logs)
    async with airflow_site(tmp_path_factory.mktemp("airflow"), flows, **settings) as running:
        yield running


async def _job(scenario: Processes, dag: str) -> dict[str, Any]:
    person = scenario.client(_server(scenario), "viewer", tenant=TENANT)

    async def there() -> Any:
        jobs = (await person.get("/v1/jobs", params={"label": f"airflow-dag={dag}"})).json()["jobs"]
        return jobs[0] if jobs else None

    job: dict[str, Any] = await until(there, f"the job of {dag}", 120)
    return job


async def test_a_deferred_task_succeeds_without_retries_though_its_node_is_lost(
    scenario: Processes, site: AirflowSite
) -> None:
    doomed = scenario.pilot(TENANT, _server(scenario), host="doomed")
    await asyncio.to_thread(site.trigger, "recovered")
    await site.until(lambda: site.state("recovered", "work") == "deferred", "the task to be deferred")
    # A triggerer has taken it: the wait holds no worker.
    await site.until(lambda: site.rows("SELECT id FROM trigger WHERE triggerer_id IS NOT NULL"), "the triggerer")
    pids = scenario.logs / "pids"
    await site.until(lambda: pids.exists() and pids.read_text().strip(), "the payload")
    (scenario.logs / "again").touch()
    doomed.kill()
    for pid in pids.read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    scenario.pilot(TENANT, _server(scenario), host="spare")
    await site.until(lambda: site.state("recovered", "work") in ("success", "failed"), "the task's end")
    assert site.state("recovered", "work") == "success", site.tails()
    ((tries, most),) = site.rows("SELECT try_number, max_tries FROM task_instance WHERE dag_id = 'recovered'")
    assert (tries, most) == (1, 0), "no retry of Airflow's was spent"
    job = await _job(scenario, "recovered")
    assert (job["state"], job["attempt"]) == ("completed", 2)
    ((link,),) = site.rows("SELECT value FROM xcom WHERE dag_id = 'recovered' AND key = 'forestay_link'")
    assert str(link).strip('"').endswith(f"/jobs/{job['id']}")
    assert "/v1/" not in str(link), "it is for people"


async def test_a_task_that_a_person_ends_while_it_waits_cancels_its_job(scenario: Processes, site: AirflowSite) -> None:
    await asyncio.to_thread(site.trigger, "stopped")
    await site.until(lambda: site.rows(
        "SELECT 1 FROM trigger JOIN task_instance ON trigger.id = trigger_id WHERE dag_id = 'stopped' AND triggerer_id IS NOT NULL"
    ), "the triggerer")  # fmt: skip
    ((run,),) = site.rows("SELECT run_id FROM task_instance WHERE dag_id = 'stopped'")

    def end() -> None:
        with site.api() as asked:
            answer = asked.patch(f"/api/v2/dags/stopped/dagRuns/{run}/taskInstances/work", json={"new_state": "failed"})
            assert answer.is_success, answer.text

    await asyncio.to_thread(end)

    async def cancelled() -> bool:
        return bool((await _job(scenario, "stopped"))["state"] == "cancelled")

    await until(cancelled, f"the job to be cancelled; {site.tails()}", 60)


async def test_the_failure_of_an_ordinary_task_is_known_with_its_cause(scenario: Processes, site: AirflowSite) -> None:
    person = scenario.client(_server(scenario), "viewer", tenant=TENANT)
    await asyncio.to_thread(site.trigger, "foreign")

    async def known() -> Any:
        incidents = (await person.get("/v1/incidents")).json()["incidents"]
        return [incident for incident in incidents if incident["task"] == "hungry"]

    (incident,) = await until(known, "the incident", 200)
    assert incident["cause"] == "memory"
    await site.until(lambda: site.state("foreign", "hungry") == "failed", "the task to fail as it would have")


MANY = """
import asyncio, json, sys
from airflow_provider_forestay import server
from airflow_provider_forestay.server import Ask, Place, Server
from airflow_provider_forestay.trigger import ForestayTrigger, Watch, watch

place = Place(sys.argv[1], sys.stdin.read())
jobs = [{"specification": {"command": ["true"], "resources": {"gpus": 99}}, "hold": True} for _ in range(120)]
names = [one["id"] for one in Server(place).send(Ask("POST", "/v1/jobs", {"jobs": jobs}))["jobs"]]
path, kept = ForestayTrigger("job", names[0], "forestay_default", 1.0).serialize()
again = ForestayTrigger(**kept)
assert (path, again.serialize()) == ("airflow_provider_forestay.trigger.ForestayTrigger", (path, kept)), kept
assert place.token not in repr(place) + repr(again) + json.dumps(kept)

async def main():
    one = watch(place, 0.2)
    waiting = [asyncio.create_task(watch(place, 0.2).ending("job", name)) for name in names]
    while one.looks < 3:
        await asyncio.sleep(0.05)
    assert watch(place, 0.2) is one and not any(task.done() for task in waiting)
    before = one.looks
    for name in names:
        await asyncio.to_thread(Server(place).send, server.stop("job", name, "enough"))
    ends = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    try:
        await asyncio.wait_for(one.ending("job", "00000000-0000-0000-0000-000000000000"), 20)
    except server.ForestayError as error:
        missing = str(error)
    print(json.dumps({"states": sorted({end["state"] for end in ends}), "completions": len(ends), "missing": missing, "asked": one.asked, "looks": one.looks}))

asyncio.run(main())
"""


async def test_a_hundred_and_twenty_that_wait_ask_two_questions_a_look(scenario: Processes, site: AirflowSite) -> None:
    """Inside Airflow's own interpreter: a question has room for a hundred names."""
    token = scenario.domain.token("submitter", tenant=TENANT, subject="airflow")
    python = str(site.airflow.with_name("python"))
    ran = await asyncio.to_thread(
        subprocess.run, [python, "-c", MANY, _server(scenario).url], input=token, env=site.environment, capture_output=True, text=True, timeout=200
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    document = json.loads(ran.stdout.splitlines()[-1])
    assert (document["completions"], document["states"]) == (120, ["cancelled"])
    assert document["missing"].startswith("404")
    assert document["asked"] <= 2 * document["looks"] + 120, document


async def test_no_token_is_in_any_log(scenario: Processes, site: AirflowSite) -> None:
    token = str(json.loads(site.settings["AIRFLOW_CONN_FORESTAY_DEFAULT"])["password"])
    text = site.task_logs() + site.tails()
    assert "Forestay has the job" in text
    assert token not in text
