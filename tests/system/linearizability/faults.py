"""Faults of real servers: kill -9 and start again, and stopping a process for a while."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from tests import servers
from tests.namespaces import cut, join

_READY = 600.0


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong, and how it is made good again."""

    name: str
    kills: int
    strike: Callable[[], Awaitable[object]]
    heal: Callable[[], Awaitable[object]]
    wait_between: bool = True
    """Whether clients can get on with their work while it is wrong."""


async def until(condition: Callable[[], Awaitable[Any]], what: str, patience: float = _READY) -> Any:
    """Wait for a condition to hold and give its value."""
    end = asyncio.get_running_loop().time() + patience
    while True:
        value = await condition()
        if value:
            return value
        if asyncio.get_running_loop().time() > end:
            raise SystemExit(f"waited {patience:.0f} s in vain until {what}")
        await asyncio.sleep(0.2)


async def order(*words: str) -> str:
    """Give `scripts/servers` an order."""
    return await asyncio.to_thread(servers.order, *words)


class OpenSearchCluster:
    """The three nodes, their faults, and questions to those that live."""

    def __init__(self, name: str, hosts: Sequence[str], pattern: str, dice: random.Random) -> None:
        self.name = name
        self.hosts = tuple(hosts)
        self.pattern = pattern
        self.dice = dice
        self.struck: list[int] = []

    async def ask(self, path: str, node: int | None = None) -> Any:
        """The answer of one node, or of the first that answers; None when none does."""
        for host in self.hosts if node is None else (self.hosts[node - 1],):
            try:
                async with httpx.AsyncClient(base_url=host, timeout=10, trust_env=False) as client:
                    answer = await client.get(path)
                    if answer.status_code == 200:
                        return answer.json()
            except httpx.HTTPError:
                continue
        return None

    async def node_with_a_primary(self) -> int:
        """The node with the most primaries of the jobs under test; by lot where several have as many."""

        async def look() -> list[int]:
            shards = await self.ask(f"/_cat/shards/{self.pattern}?format=json&h=prirep,state,node")
            nodes = [shard["node"] for shard in shards or () if shard["prirep"] == "p" and shard["state"] == "STARTED"]
            return [int(node[1:]) for node in nodes]

        primaries: list[int] = await until(look, "a primary is started")
        most = max(primaries.count(node) for node in primaries)
        return self.dice.choice(sorted({node for node in primaries if primaries.count(node) == most}))

    async def manager(self) -> int:
        """The node that is the cluster manager."""
        value = await until(lambda: self.ask("/_cat/cluster_manager?format=json"), "there is a cluster manager")
        return int(value[0]["node"][1:])

    async def any_node(self) -> int:
        return self.dice.randint(1, len(self.hosts))

    def kill(self, which: Callable[[], Awaitable[int]], name: str) -> Fault:
        return Fault(f"kill -9 of {name}", 1, lambda: self._kill(which), self._launch)

    def kill_all(self) -> Fault:
        return Fault("kill -9 of all nodes at once", len(self.hosts), self._kill_all, self._launch, wait_between=False)

    def pause(self, which: Callable[[], Awaitable[int]], name: str, seconds: float) -> Fault:
        return Fault(f"stop of {name} for {seconds:g} s", 0, lambda: self._pause(which, seconds), self.green)

    async def _kill(self, which: Callable[[], Awaitable[int]]) -> None:
        self.struck = [await which()]
        await order("kill9", "opensearch", "--name", self.name, str(self.struck[0]))

    async def _kill_all(self) -> None:
        self.struck = list(range(1, len(self.hosts) + 1))
        pids = [int(await order("pid", "opensearch", "--name", self.name, str(node))) for node in self.struck]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    async def _launch(self) -> None:
        for node in self.struck:
            # Without waiting: a node alone does not answer until its peers are there too.
            await order("launch", "opensearch", "--name", self.name, "--no-wait", str(node))
        self.struck = []
        await self.green()

    async def _pause(self, which: Callable[[], Awaitable[int]], seconds: float) -> None:
        pid = int(await order("pid", "opensearch", "--name", self.name, str(await which())))
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)

    async def green(self) -> None:
        """Wait until every node is there and every copy is whole."""
        whole = "wait_for_status=green&wait_for_no_initializing_shards=true&wait_for_no_relocating_shards=true"
        path = f"/_cluster/health?wait_for_nodes={len(self.hosts)}&{whole}&timeout=5s"

        async def look() -> bool:
            health = await self.ask(path)
            return health is not None and not health["timed_out"]

        await until(look, "the cluster is green")

    async def quiet(self) -> None:
        """Wait until the cluster is whole and no write is under way on any node."""
        await self.green()

        async def look() -> bool:
            reply = await self.ask("/_tasks?actions=indices:data/write/*")
            return reply is not None and len(reply["nodes"]) == 0 and not reply.get("node_failures")

        await until(look, "no write is under way")

    async def copies(self, alias: str, names: Sequence[str]) -> dict[int, dict[str, dict[str, Any]]]:
        """What each node has of these documents in its own copy, for those of which it has one."""
        copies: dict[int, dict[str, dict[str, Any]]] = {}
        for node, host in enumerate(self.hosts, start=1):
            async with httpx.AsyncClient(base_url=host, timeout=60, trust_env=False) as client:
                answer = await client.post(
                    f"/{alias}/_mget", params={"preference": "_only_local"}, json={"ids": list(names)}
                )
            docs = answer.raise_for_status().json()["docs"]
            copies[node] = {doc["_id"]: doc for doc in docs if "error" not in doc}
        return copies


class SplitCluster(OpenSearchCluster):
    """Nodes in network namespaces, whose lines can be cut; clients reach all of them all the time."""

    def __init__(self, name: str, net: str, hosts: Sequence[str], pattern: str, dice: random.Random) -> None:
        super().__init__(name, hosts, pattern, dice)
        self.net = net
        self.alone = 0

    def split(self, which: Callable[[], Awaitable[int]], name: str) -> Fault:
        return Fault(f"split of the network, {name} against the two others", 0, lambda: self._split(which), self._heal)

    def _lines(self) -> list[tuple[str, str]]:
        """From which namespace to which address nothing goes."""
        others = [node for node in range(1, len(self.hosts) + 1) if node != self.alone]
        both = [(self.alone, node) for node in others] + [(node, self.alone) for node in others]
        return [(f"{self.name}-n{here}", f"{self.net}.{there}") for here, there in both]

    async def _split(self, which: Callable[[], Awaitable[int]]) -> None:
        """Until the two have given the one up: it may think for a while that it is still the primary."""
        self.alone = await which()
        for space, address in self._lines():
            cut(space, address)
        other = next(node for node in range(1, len(self.hosts) + 1) if node != self.alone)

        async def given_up() -> bool:
            health = await self.ask("/_cluster/health?timeout=1s", other)
            return health is not None and health["number_of_nodes"] == len(self.hosts) - 1

        await until(given_up, "two nodes are a cluster without the third")

    async def _heal(self) -> None:
        for space, address in self._lines():
            join(space, address)
        await self.green()


class PostgresServer:
    """A PostgreSQL server of our own, and its faults."""

    def __init__(self, url: str, dice: random.Random) -> None:
        self.url = url
        self.dice = dice

    def kill(self) -> Fault:
        return Fault("kill -9 of the postmaster", 1, self._kill, self._launch, wait_between=False)

    def kill_backend(self) -> Fault:
        return Fault("kill -9 of a backend", 1, self._kill_backend, self._launch, wait_between=False)

    async def _kill(self) -> None:
        await order("kill9", "postgres")

    async def _kill_backend(self) -> None:
        """The postmaster answers with a crash of its own: every session ends, and the log is replayed."""
        working = await self.sql(
            "select pid from pg_stat_activity where application_name = 'forestay' order by state, pid"
        )
        os.kill(working[0], signal.SIGKILL)

    async def _launch(self) -> None:
        await order("launch", "postgres")

    async def quiet(self) -> None:
        async def look() -> bool:
            query = "select pid from pg_stat_activity where application_name = 'forestay' and state <> 'idle'"
            return not await self.sql(query)

        await until(look, "no statement is under way")

    async def sql(self, query: str) -> list[int]:
        import asyncpg  # type: ignore[import-untyped]

        connection = await asyncpg.connect(self.url)
        try:
            return [row[0] for row in await connection.fetch(query)]
        finally:
            await connection.close()
