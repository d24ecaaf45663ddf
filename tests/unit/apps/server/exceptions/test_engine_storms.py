"""Failures of another engine's tasks are a storm as those of our own jobs are: a rule that answers one does not act on hundreds."""

from __future__ import annotations

from tests.unit.apps.server.exceptions.test_engines import AGAIN, add_rule
from tests.unit.apps.server.running import RunningServer

from forestay.apps.compose.exception_service import RemoteExceptionService
from forestay.client import AsyncForestayClient, Patience

LEAST = 50
"""Failures of one cause in five minutes that are a storm, unless set otherwise."""
MANY = 100


async def test_hundreds_that_fail_of_one_cause_are_not_all_tried_again(local: RunningServer, tenant: str) -> None:
    await add_rule(local, tenant, AGAIN, condition='cause == "network"', cause="network")
    token = local.domain.token("engine", tenant=tenant)
    ordered: set[str] = set()
    async with AsyncForestayClient(local.url, token, patience=Patience(5)) as client:
        service = RemoteExceptionService(client, "slurm")
        for start in range(0, MANY, 10):
            await service.report([_failure(n, owner=f"user{n % 3}") for n in range(start, start + 10)])
            for order in (await service.news([], wait=0)).orders:
                ordered.add(order.id)
                await service.answer(order.id, "done")
    # Those before there were enough for a storm, and the one that is tried then.
    assert 0 < len(ordered) <= LEAST + 1
    incidents = (await local.person("viewer", tenant=tenant).get("/v1/incidents?limit=500")).json()["incidents"]
    assert len(incidents) == MANY
    assert any("storm" in incident["note"] for incident in incidents)


def _failure(n: int, owner: str) -> dict[str, object]:
    tail = "ssh: connect to host data1 port 22: Connection refused"
    evidence = {"scheduler": "slurm", "scheduler_state": "FAILED", "exit_code": 255, "log_tail": tail}
    return {
        "id": f"e-{n}",
        "run": f"slurm-{n}",
        "kind": "task-aborted",
        "task": f"fetch:{n}",
        "flow": "fetch",
        "owner": owner,
        "attempt": 1,
        "evidence": evidence,
        "otherwise": "go-on",
    }
