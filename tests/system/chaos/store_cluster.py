"""The OpenSearch cluster of a campaign: three nodes of its own, by `scripts/servers`."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import httpx
from tests import servers
from tests.system.chaos.faults import FaultLog

NAME = "chaos"
NODES = 3


class StoreState(StrEnum):
    """What an operator, or a disk that is nearly full, does to an index."""

    READ_ONLY = "read-only"
    CLOSED = "index closed"


class Order(NamedTuple):
    """A request to the store."""

    method: str
    path: str
    body: dict[str, Any] | None = None


ORDERS = {
    StoreState.READ_ONLY: (
        Order("PUT", "_settings", {"index.blocks.write": True}),
        Order("PUT", "_settings", {"index.blocks.write": None}),
    ),
    StoreState.CLOSED: (Order("POST", "_close"), Order("POST", "_open")),
}


@dataclass(slots=True)
class StoreCluster:
    """Started for the campaign unless it runs already."""

    faults: FaultLog
    heap: str = "512m"
    prefix: str = "chaos"
    ours: bool = False
    """We started it, so we stop it."""
    ports: list[int] = field(default_factory=list)

    async def start(self) -> None:
        running = "opensearch chaos n1\t" in await _order("status")
        self.ours = not running
        words = ["start", "opensearch", "--name", NAME, "--nodes", str(NODES), "--heap", self.heap, "--quick"]
        await _order(*words, *([] if running else ["--fresh"]))
        lines = (await _order("env", "--name", NAME)).splitlines()
        (line,) = (other_line for other_line in lines if other_line.startswith("export FORESTAY_TEST_OPENSEARCH="))
        self.ports = [int(address.rpartition(":")[2]) for address in line.partition("=")[2].split(",")]

    async def stop(self) -> None:
        if self.ours:
            await _order("stop", "opensearch", "--name", NAME)

    async def kill(self, node: int, down: float) -> None:
        """kill -9 of one node; launched again after a while; over when all copies are there again."""
        fault = self.faults.begin("kill", "node", f"n{node}")
        await _order("kill9", "opensearch", "--name", NAME, str(node))
        await asyncio.sleep(down)
        await _order("launch", "opensearch", "--name", NAME, "--no-wait", str(node))
        await self.until_green()
        self.faults.end(fault)

    async def freeze(self, seconds: float) -> None:
        """SIGSTOP of all nodes: connections are taken and never answered."""
        pids = [int(await _order("pid", "opensearch", "--name", NAME, str(node + 1))) for node in range(NODES)]
        fault = self.faults.begin("stop", "store", "all nodes")
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            self.faults.end(fault)

    async def refuse(self, state: StoreState, seconds: float) -> None:
        """The index of jobs answers everything, or every write, with an error of its own; the rest of the store goes on."""
        index = f"{self.prefix}-jobs-000001"
        begin, end = ORDERS[state]
        fault = self.faults.begin("err", "store", state)
        try:
            await self._administer(index, begin)
            await asyncio.sleep(seconds)
        finally:
            await self._administer(index, end)
            await self.until_green()
            self.faults.end(fault)

    async def _administer(self, index: str, order: Order) -> None:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.ports[0]}", timeout=60) as client:
            answer = await client.request(order.method, f"/{index}/{order.path}", json=order.body)
            answer.raise_for_status()

    async def until_green(self, patience: float = 900.0) -> None:
        give_up = asyncio.get_running_loop().time() + patience
        async with httpx.AsyncClient(timeout=10) as client:
            while asyncio.get_running_loop().time() < give_up:
                for port in self.ports:
                    query = f"wait_for_status=green&wait_for_nodes={NODES}&timeout=2s"
                    try:
                        answer = await client.get(f"http://127.0.0.1:{port}/_cluster/health/{self.prefix}-*?{query}")
                    except httpx.HTTPError:
                        continue
                    if answer.status_code == 200 and not answer.json()["timed_out"]:
                        return
                await asyncio.sleep(0.3)
        raise TimeoutError("the cluster did not become whole again")

    def everything(self, kind: str) -> Iterator[dict[str, Any]]:
        """All documents of one index, read past Forestay."""
        url = f"http://127.0.0.1:{self.ports[0]}/{self.prefix}-{kind}"
        with httpx.Client(timeout=60) as client:
            client.post(f"{url}/_refresh").raise_for_status()
            body: dict[str, Any] = {"query": {"match_all": {}}, "sort": [{"id": "asc"}], "size": 2000}
            while True:
                answer = client.post(f"{url}/_search?allow_partial_search_results=false", json=body)
                hits = answer.raise_for_status().json()["hits"]["hits"]
                for hit in hits:
                    yield hit["_source"]
                if len(hits) < body["size"]:
                    return
                body["search_after"] = hits[-1]["sort"]

    async def drop(self) -> None:
        """Remove the campaign's indexes from a cluster that stays."""
        async with httpx.AsyncClient(timeout=60) as client:
            response = await client.get(
                f"http://127.0.0.1:{self.ports[0]}/_cat/indices/{self.prefix}-*?h=index&format=json"
            )
            for entry in response.json():
                await client.delete(f"http://127.0.0.1:{self.ports[0]}/{entry['index']}")


async def _order(*words: str) -> str:
    return await asyncio.to_thread(servers.order, *words)
