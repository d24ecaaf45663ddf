"""Three domains on one machine, each in a network namespace with its own Temporal, store, server, reconciler and orchestrator; lines between them that can be cut.

North and south have pilots of their own, in their namespaces; west is on Slurm, whose nodes are outside and reach it over the bridge.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests import servers
from tests.live.test_site_agent import SETTINGS, slurm
from tests.namespaces import cut, ip, join, network
from tests.system.chaos.processes import launch
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.processes import Started
from tests.unit.apps.server.running import Domain, until

from forestay.adapters.private_file import write_private

TENANT = "default"
NET = "10.213.77"
BRIDGE = "hfp-bridge"
PORT = 8470
WES = "/ga4gh/wes/v1"
SLOTS = {"north": 2, "south": 4}
OVER = ("COMPLETE", "EXECUTOR_ERROR", "SYSTEM_ERROR", "CANCELED")


@dataclass(eq=False)
class Place:
    """One domain, and the namespace that it is in."""

    name: str
    number: int
    folder: Path
    hosts: str
    started: list[Started] = field(default_factory=list)

    @property
    def space(self) -> str:
        return f"hfp-{self.name}"

    @property
    def address(self) -> str:
        return f"{NET}.{self.number}"

    @property
    def url(self) -> str:
        return f"http://{self.address}:{PORT}"

    @property
    def domain(self) -> Domain:
        return Domain(f"sqlite:///{self.folder}/jobs.db", self.folder)

    def run(self, *words: str, log: str, outside: bool = False) -> Started:
        known = {
            "store": f"sqlite:///{self.folder}/jobs.db",
            "state": self.folder,
            "listen": self.address,
            "port": PORT,
            "url": self.url,
            "temporal": "127.0.0.1:7233",
            "peer_hosts": self.hosts,
            "lease": 60,
        }
        environment = os.environ | {f"FORESTAY_{name.upper()}": str(value) for name, value in known.items()}
        inside = () if outside else ("ip", "netns", "exec", self.space)
        started = Started(launch([*inside, *words], self.folder / f"{log}.log", environment=environment))
        self.started.append(started)
        return started

    def forestay(self, *words: str, outside: bool = False) -> Started:
        return self.run(sys.executable, "-m", "forestay", *words, log=words[0], outside=outside)

    def person(self, *roles: str) -> httpx.AsyncClient:
        return http_client(self.url, self.domain.token(*roles, tenant=TENANT))

    async def ask(self, path: str) -> Any:
        async with self.person("administrator") as person:
            answer = await person.get(path)
            assert answer.status_code == 200, answer.text
            return answer.json()

    def cut(self, *others: Place) -> None:
        """Nothing goes from here to these any more; what comes from them still arrives."""
        cut(self.space, *(other.address for other in others))

    def join(self, *others: Place) -> None:
        join(self.space, *(other.address for other in others))

    def kill(self) -> None:
        """For good, all at once."""
        ip("link", "set", f"{self.space}-o", "down")
        for started in self.started:
            started.kill()
        self.started.clear()


@dataclass
class ThreeDomains:
    north: Place
    south: Place
    west: Place

    async def introduce(self, lease: int) -> None:
        """North may send to the others; each knows the key of the other side."""
        keys = {place.name: (await place.ask("/v1/peers"))["key"] for place in (self.north, self.south, self.west)}
        async with self.north.person("administrator") as boss:
            for other in (self.south, self.west):
                known = {"url": other.url, "key": keys[other.name], "sends": [TENANT], "lease": lease}
                answer = await boss.put(f"/v1/peers/{other.name}", json=known)
                assert answer.status_code == 200, answer.text
                known = {"url": self.north.url, "key": keys["north"], "tenants": {TENANT: TENANT}, "lease": lease}
                async with other.person("administrator") as theirs:
                    answer = await theirs.put("/v1/peers/north", json=known)
                    assert answer.status_code == 200, answer.text

    async def linked(self) -> None:
        async def all_up() -> bool:
            peers = {peer["peer"]: peer for peer in (await self.north.ask("/v1/peers"))["peers"]}
            return all(peers[name]["connected"] and peers[name]["slots"] for name in ("south", "west"))

        await until(all_up, "the links", 120)

    async def run(self, flow: str, key: str) -> str:
        form = {"workflow_type": "FORESTAY", "workflow_type_version": "1", "workflow_url": "flow.yaml"}
        async with self.north.person("submitter") as person:
            answer = await person.post(
                f"{WES}/runs",
                data=form,
                files=[("workflow_attachment", ("flow.yaml", flow.encode()))],
                headers={"Idempotency-Key": key},
            )
        assert answer.status_code == 200, answer.text
        run: str = answer.json()["run_id"]
        return run

    async def ended(self, run: str, patience: float) -> str:
        async def over() -> str | None:
            state = (await self.north.ask(f"{WES}/runs/{run}/status"))["state"]
            await asyncio.sleep(0.3)
            return state if state in OVER else None

        state: str = await until(over, f"the end of {run}", patience)
        return state


@asynccontextmanager
async def three_domains(folder: Path) -> AsyncIterator[ThreeDomains]:
    servers.slurm()
    hosts = ",".join(f"{NET}.{number}" for number in (1, 2, 3))
    places = [Place(name, number, folder / name, hosts) for number, name in enumerate(("north", "south", "west"), 1)]
    with network(BRIDGE, NET, [place.space for place in places]):
        try:
            for place in places:
                place.folder.mkdir()
                _start(place)
            await asyncio.gather(*(_answers(place) for place in places))
            for name, slots in SLOTS.items():
                _pilot(next(place for place in places if place.name == name), slots)
            _site(places[2])
            yield ThreeDomains(*places)
        finally:
            await _stop(places)


def _start(place: Place) -> None:
    program = servers.address("FORESTAY_TEST_TEMPORAL_PROGRAM")
    words = ("server", "start-dev", "--ip", "127.0.0.1", "--port", "7233", "--headless", "--log-level", "error")
    place.run(program, *words, log="temporal")
    place.domain.token("viewer", tenant=TENANT)  # the key that all its processes share
    for process in ("server", "reconciler", "orchestrator"):
        place.forestay(process)


async def _answers(place: Place) -> None:
    async def up() -> bool:
        assert all(process.process.poll() is None for process in place.started), f"see the logs in {place.folder}"
        try:
            await place.ask(f"{WES}/service-info")
        except (httpx.HTTPError, AssertionError):
            await asyncio.sleep(0.5)
            return False
        return True

    await until(up, f"{place.name} to answer", 240)


def _pilot(place: Place, slots: int) -> None:
    write_private(place.folder / "enrol", place.domain.token("enrol", tenant=TENANT, subject="enroller"))
    words = ["--server", place.url, "--token-file", str(place.folder / "enrol"), "--slots", str(slots), "--cpus", "64"]
    words += ["--grace", "1", "--outputs", str(place.folder / "outputs"), "--work", str(place.folder / "work")]
    place.forestay("pilot", *words)


def _site(place: Place) -> None:
    write_private(place.folder / "token", place.domain.token("site", tenant=TENANT))
    text = SETTINGS.format(server=place.url, folder=place.folder, limits="max_pilots = 3", idle_exit=30)
    (place.folder / "site.toml").write_text(text)
    place.forestay("site", "--config", str(place.folder / "site.toml"), outside=True)


async def _stop(places: list[Place]) -> None:
    west = places[2]
    launches: list[dict[str, Any]] = []
    try:
        async with west.person("site") as agent:
            launches = (await agent.get("/v1/sites/hall/launches")).json()["launches"]
    except httpx.HTTPError:
        pass
    for place in places:
        for process in reversed(place.started):
            process.kill()
    for launched in launches:
        await asyncio.to_thread(slurm, "scancel", "--quiet", "--name", launched["name"])
