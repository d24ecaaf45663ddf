"""A domain that runs runs, with a real pilot: Temporal, a store, a server, an orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.live.run_site import TENANT, RunSite, run_site
from tests.system.wes.flows import operators_folder
from tests.unit.apps.server.processes import Started, processes
from tests.unit.apps.server.running import until

BASE = "/ga4gh/wes/v1"
OVER = ("COMPLETE", "EXECUTOR_ERROR", "SYSTEM_ERROR", "CANCELED")


@dataclass
class WesSite:
    """The domain, and a person who asks it for runs."""

    site: RunSite
    person: httpx.AsyncClient
    flows: Path

    async def post(
        self,
        flow: str,
        params: str = "{}",
        files: Mapping[str, bytes] | None = None,
        key: str = "",
        person: httpx.AsyncClient | None = None,
        **fields: str,
    ) -> httpx.Response:
        """Ask for a run of a flow in YAML."""
        form = {"workflow_type": "FORESTAY", "workflow_type_version": "1", "workflow_url": "flow.yaml"}
        form |= {"workflow_params": params} | fields
        sent = {"flow.yaml": flow.encode()} | dict(files or {})
        parts = [("workflow_attachment", (name, content)) for name, content in sent.items()]
        headers = {"Idempotency-Key": key} if key else {}
        return await (person or self.person).post(f"{BASE}/runs", data=form, files=parts, headers=headers)

    async def run(self, flow: str, params: str = "{}", **more: Any) -> str:
        answer = await self.post(flow, params, **more)
        assert answer.status_code == 200, answer.text
        run: str = answer.json()["run_id"]
        return run

    async def get(self, path: str, **query: Any) -> Any:
        answer = await self.person.get(f"{BASE}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def state(self, run: str) -> str:
        state: str = (await self.get(f"/runs/{run}/status"))["state"]
        return state

    async def ended(self, run: str) -> str:
        async def over() -> str | None:
            state = await self.state(run)
            return state if state in OVER else None

        state: str = await until(over, f"the end of run {run}", 60)
        return state


@pytest.fixture(scope="session")
async def wes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WesSite]:
    folder = tmp_path_factory.mktemp("wes")
    flows = operators_folder(folder / "flows")
    async with (
        run_site("sqlite", folder, pilots=0, flows=flows, free_tries=()) as running,
        processes(running.domain, folder) as started,
    ):
        here = Started(process=None, url=running.server.url)  # type: ignore[arg-type]  # it runs in this process
        started.pilot(TENANT, here, slots=4)
        yield WesSite(running, running.server.person("submitter", tenant=TENANT), flows)


async def gathered(*work: Any) -> list[Any]:
    return list(await asyncio.gather(*work))
