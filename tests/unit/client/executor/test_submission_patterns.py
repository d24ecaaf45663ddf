"""The four ways to submit a job (paper P0, section 3A), on a real server, reconciler and pilot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.apps.server.callback_listener import listen
from tests.unit.client.executor.conftest import Site
from tests.unit.client.executor.test_executor import PATIENCE, until

from forestay.client import ForestayClient, JobFailedError, TimedOut, fire, run
from forestay.client.api.answers import FINAL
from forestay.client.api.schemas import SpecificationJson


def shell(script: str) -> SpecificationJson:
    return {"name": "shell", "command": ["sh", "-c", script]}


@pytest.mark.ledger("P0-04")
def test_the_call_returns_when_the_job_has_ended(client: ForestayClient, tmp_path: Path) -> None:
    job = run(client, shell(f"sleep 0.3; echo done > {tmp_path}/made"), timeout=PATIENCE)
    assert job["state"] == "completed"
    assert (tmp_path / "made").read_text() == "done\n"
    with pytest.raises(JobFailedError, match="exit code 3") as failed:
        run(client, shell("exit 3"), timeout=PATIENCE)
    assert (failed.value.state, failed.value.reason) == ("failed", "exit")
    assert client.job(failed.value.job)["patterns"] == ["synchronous", "execution"]


def test_who_gives_up_waiting_leaves_the_job_running(client: ForestayClient, gate: Callable[[], Path]) -> None:
    path = gate()
    with pytest.raises(TimedOut):
        run(client, shell(f"while ! test -e {path}; do sleep 0.05; done"), timeout=0.5, key="left-running")
    path.touch()
    job = run(client, shell(f"while ! test -e {path}; do sleep 0.05; done"), timeout=PATIENCE, key="left-running")
    assert job["state"] == "completed"


@pytest.mark.ledger("P0-05")
def test_the_job_is_asked_for_by_its_id(client: ForestayClient, gate: Callable[[], Path]) -> None:
    path = gate()
    (accepted,) = client.submit([{}], shell(f"while ! test -e {path}; do sleep 0.05; done"))
    until(lambda: client.job(accepted["id"])["state"] == "running", "the job to run")
    path.touch()
    until(lambda: client.job(accepted["id"])["state"] in FINAL, "the job to end")
    assert client.job(accepted["id"])["state"] == "completed"
    assert client.job(accepted["id"])["patterns"] == ["polling", "execution"]


@pytest.mark.ledger("P0-06")
async def test_a_registered_address_is_told(site: Site) -> None:
    async with listen() as listener:
        with site.client() as client:
            (good,) = client.submit([{"callback": listener.url("/good")}], shell("true"))
            (bad,) = client.submit([{"callback": listener.url("/bad")}], shell("exit 4"))
            assert client.job(bad["id"])["patterns"][0] == "notification"
        give_up = time.monotonic() + PATIENCE
        while len(listener.seen) < 2:
            assert time.monotonic() < give_up, "the callbacks did not come"
            await asyncio.sleep(0.02)
    bodies = {delivered.path: delivered.body for delivered in listener.seen}
    assert (bodies["/good"]["job"], bodies["/good"]["state"]) == (good["id"], "completed")
    assert (bodies["/bad"]["job"], bodies["/bad"]["state"], bodies["/bad"]["exit_code"]) == (bad["id"], "failed", 4)


@pytest.mark.ledger("P0-07")
def test_what_is_fired_and_forgotten_is_told_to_whoever_looks_after_it(
    client: ForestayClient, site: Site, gate: Callable[[], Path]
) -> None:
    path = gate()
    name = fire(client, shell(f"while ! test -e {path}; do sleep 0.05; done; exit 5"), {"name": "forgotten-bad"})
    fine = fire(client, shell("true"))
    assert client.job(name)["state"] not in FINAL, "whoever fires does not wait"
    assert client.job(name)["patterns"][0] == "fire-and-forget"
    path.touch()
    until(lambda: client.job(fine)["state"] == "completed", "the good one")

    def alerts() -> list[str]:
        return [str(alert["words"]) for alert in client.alerts() if alert["job"] == name]

    until(alerts, "the alert")
    (words,) = alerts()
    assert "exit code 5" in words
    assert not [alert for alert in client.alerts() if alert["job"] == fine]
    logs = site.running.logs
    until(lambda: any(name in log.read_text() for log in logs.glob("reconciler-*.log")), "the reconciler's log")
