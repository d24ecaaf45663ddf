"""Jobs of several nodes on a real Slurm: an allocation of their own, ranks started by srun, one failure for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.own_slurm import OwnSlurm
from tests.live.test_slurm_kills import Hall
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private
from forestay.apps.cli.incidents.explain import told

pytestmark = [pytest.mark.live, pytest.mark.pair]
LEASE = 6
WAIT = 180.0
SETTINGS = """
site = "hall"
servers = ["{server}"]
token_file = "{folder}/token"
spool = "{folder}/spool"
outputs = "{folder}/outputs"
every = 1
settle = 5
max_pilots = 1

[pace]
commands = 20
first_wait = 1
longest_wait = 2

[pilot]
idle_exit = 60

[nodes]
work = "{folder}/ranks"

[[sizes]]
name = "two"
nodes = 2
cpus = 1
memory = "200 MiB"
disk = "1 GiB"
wall = "10 min"
"""
TWO = {"cpus": 1, "memory": 50 << 20, "nodes": 2}


@pytest.fixture
async def hall(own_slurm: OwnSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Hall]:
    folder = own_slurm.folder / "several"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("SLURM_CONF", str(own_slurm.conf))
    async with store_room("sqlite", tmp_path) as url:
        domain = Domain(url, tmp_path)
        write_private(folder / "token", domain.token("site", tenant="here"))
        async with processes(domain, tmp_path, lease=LEASE) as running:
            server = await running.server()
            running.reconciler()
            config = folder / "site.toml"
            config.write_text(SETTINGS.format(server=server.url, folder=folder))
            running._start("site", "--config", str(config))
            clients = [running.client(server, role, tenant="here") for role in ("operator", "site")]
            yield Hall(own_slurm, running, folder, *clients)
            own_slurm.slurm("scancel", "--quiet", "--user=" + own_slurm.slurm("id", "-un"))


async def ended(hall: Hall, job: str) -> dict[str, Any]:
    """The job once it is final."""

    async def over() -> dict[str, Any] | None:
        document = (await hall.jobs([job]))[job]
        return document if document["state"] in ("completed", "failed", "cancelled") else None

    document: dict[str, Any] = await until(over, "the job ends", WAIT)
    return document


async def run_on_two(hall: Hall, script: str) -> str:
    command = ["sh", "-c", script]
    (job,) = await submit(hall.user, command=command, resources=TWO, outputs=["out0", "out1"], max_attempts=1)
    return job


async def test_ranks_run_on_nodes_of_their_own_and_their_outputs_are_committed_together(hall: Hall) -> None:
    job = await run_on_two(hall, 'echo "$SLURMD_NODENAME $SLURM_NNODES" > "out$FORESTAY_RANK"')
    document = await ended(hall, job)
    assert document["state"] == "completed", document
    folder = Path(document["winner"]["manifest"]["path"]).parent
    nodes, counts = zip(*((folder / f"out{rank}").read_text().split() for rank in (0, 1)), strict=True)
    assert len(set(nodes)) == 2, "each on a node of its own"
    assert set(counts) == {"2"}


async def test_one_failed_rank_is_one_failure_with_the_evidence_of_all(hall: Hall) -> None:
    script = 'echo "$FORESTAY_RANK" > "out$FORESTAY_RANK"; if [ "$FORESTAY_RANK" = 1 ]; then sleep 1; echo mesh is torn; exit 3; fi; sleep 300'
    job = await run_on_two(hall, script)
    document = await ended(hall, job)
    last = document["last"]
    assert (document["state"], document["failures"], last["exit_code"]) == ("failed", 1, 3)
    first, second = last["ranks"]
    assert (first["rank"], first["exit_code"]) == (1, 3)
    assert (second["rank"], second["stopped_for"]) == (0, "rank 1 failed")
    assert first["host"] != second["host"]

    async def noted() -> list[dict[str, Any]]:
        incidents: list[dict[str, Any]] = (await hall.user.get("/v1/incidents", params={"job": job})).json()[
            "incidents"
        ]
        return incidents

    incidents = await until(noted, "its incident", WAIT)
    assert len(incidents) == 1, "one incident for all ranks"
    whole = (await hall.user.get(f"/v1/incidents/{incidents[0]['id']}")).json()
    lines = list(told(document, [whole], lambda text, *_: str(text)))  # type: ignore[arg-type]
    assert any("mesh is torn" in line for line in lines), lines
    assert any(line.strip() == f"rank 1 on {first['host']}: exit code 3" for line in lines), lines
    queued = hall.slurm.slurm("squeue", "--noheader", "--steps")
    assert ".0" not in queued, f"no rank is left: {queued}"
