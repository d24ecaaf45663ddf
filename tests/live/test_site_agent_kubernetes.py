"""A site agent on a real control plane of Kubernetes: real pilots come for queued jobs, run them and go; one that is evicted loses its job to another.

The nodes and their kubelets are simulated: the pods' containers are processes of this machine, see `tests/kubernetes.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.kubernetes import Admin, SimulatedKubelet, Site
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.processes import Processes, processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.private_file import write_private

pytestmark = [pytest.mark.live, pytest.mark.slow]
PATIENCE = 240.0
SETTINGS = """
site = "cloud"
servers = ["{server}"]
token_file = "{folder}/token"
spool = "{folder}/spool"
outputs = "{folder}/outputs"
every = 1
settle = 5
max_pilots = 3
batch = "kubernetes"

[pace]
commands = 20

[pilot]
idle_exit = 2

[kubernetes]
address = "{address}"
token_file = "{token}"
ca_file = "{ca}"
namespace = "{namespace}"
image = "simulated/pilot:1"
grace = 3

[[sizes]]
name = "standard"
cpus = 2
memory = "200 MiB"
disk = "1 GiB"
wall = "10 min"
"""


@dataclass(eq=False)
class Cloud:
    """One site in a namespace of its own."""

    running: Processes
    site: Site
    folder: Path
    server: str
    user: httpx.AsyncClient
    agent_client: httpx.AsyncClient

    def agent(self) -> None:
        admin = self.site.admin
        text = SETTINGS.format(
            server=self.server,
            folder=self.folder,
            address=admin.address,
            token=self.site.token,
            ca=admin.ca,
            namespace=self.site.namespace,
        )
        (self.folder / "site.toml").write_text(text)
        self.running._start("site", "--config", str(self.folder / "site.toml"))

    async def ended(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.agent_client.get("/v1/sites/cloud/launches?state=ended")).json()[
            "launches"
        ]
        return found

    async def done(self, jobs: list[str]) -> bool:
        states = [(await self.user.get(f"/v1/jobs/{job}")).json()["state"] for job in jobs]
        assert "failed" not in states
        return set(states) == {"completed"}


@pytest.fixture
async def cloud(tmp_path: Path) -> AsyncIterator[Cloud]:
    admin = Admin()
    site = await asyncio.to_thread(admin.site, tmp_path)
    kubelet = SimulatedKubelet(admin)
    try:
        async with store_room("sqlite", tmp_path) as url:
            domain = Domain(url, tmp_path)
            write_private(tmp_path / "token", domain.token("site", tenant="here"))
            async with processes(domain, tmp_path, lease=30) as running:
                server = await running.server()
                running.reconciler()
                user = running.client(server, "operator", tenant="here")
                yield Cloud(running, site, tmp_path, server.url, user, running.client(server, "site", tenant="here"))
    finally:
        await asyncio.to_thread(kubelet.stop)
        admin.delete(f"/api/v1/namespaces/{site.namespace}")
        admin.http.close()


async def test_pilots_come_for_queued_jobs_run_them_and_go(cloud: Cloud) -> None:
    cloud.agent()
    jobs = await submit(cloud.user, *[{}] * 6, command=["sh", "-c", "sleep 1; env >env"], outputs=["env"])
    await until(lambda: cloud.done(jobs), "all jobs to end", PATIENCE)

    async def gone() -> list[dict[str, Any]]:
        still_open = (await cloud.agent_client.get("/v1/sites/cloud/launches")).json()["launches"]
        return [] if still_open else await cloud.ended()

    launches = await until(gone, "the pilots to leave", PATIENCE)
    assert 1 <= len(launches) <= 6
    assert {launch["end"]["word"] for launch in launches} == {"Completed"}
    items = cloud.site.admin.get(f"/apis/batch/v1/namespaces/{cloud.site.namespace}/jobs")["items"]
    assert sorted(resource["metadata"]["name"] for resource in items) == sorted(launch["name"] for launch in launches)
    for resource in items:
        text = json.dumps(resource)
        secret = cloud.site.admin.get(
            f"/api/v1/namespaces/{cloud.site.namespace}/secrets/{resource['metadata']['name']}"
        )
        assert secret["data"]["FORESTAY_ENROLMENT"] not in text
        assert resource["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "2"
    kept = [path.read_text() for path in (cloud.folder / "outputs").rglob("env")]
    assert len(kept) == 6
    assert not any("FORESTAY_ENROLMENT" in text for text in kept), "payloads do not see the secret"


async def test_the_job_of_an_evicted_pilot_is_run_by_another(cloud: Cloud) -> None:
    cloud.agent()
    (job,) = await submit(cloud.user, {}, command=["sh", "-c", "sleep 8; hostname >name"], outputs=["name"])

    async def held() -> bool:
        return bool((await cloud.user.get(f"/v1/jobs/{job}")).json()["state"] == "running")

    await until(held, "the job to run", PATIENCE)
    (pod,) = [pod["metadata"]["name"] for pod in await asyncio.to_thread(cloud.site.pods)]
    await asyncio.to_thread(cloud.site.admin.evict, cloud.site.namespace, pod)
    await until(lambda: cloud.done([job]), "another pilot to run the job", PATIENCE)
    words = {launch["end"]["word"] for launch in await cloud.ended()}
    assert "EvictionByEvictionAPI" in words
