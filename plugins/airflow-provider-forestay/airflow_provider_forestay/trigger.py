"""Waits in Airflow's triggerer for jobs and runs to end; all triggers for jobs of one server share one request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any
from weakref import WeakValueDictionary

import httpx
from airflow.sdk import BaseHook
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_forestay import server
from airflow_provider_forestay.server import MOST_IDS, TIMEOUT, Ask, Away, ForestayError, Place, answered, ending_of

LONGEST = 60.0
"""Seconds between polls of a server that does not answer."""


class Watch:
    """The poller of one server in one event loop: it polls while somebody waits."""

    def __init__(self, place: Place, every: float) -> None:
        self.place = place
        self.every = every
        self.waiting: dict[tuple[str, str], set[asyncio.Future[dict[str, Any]]]] = {}
        self.looks = 0
        self.asked = 0
        self._looking: asyncio.Task[None] | None = None

    async def ending(self, kind: str, name: str) -> dict[str, Any]:
        """Wait for the end of a job or run. `ForestayError`: it does not exist, or the token is refused."""
        mine: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault((kind, name), set()).add(mine)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            return await mine
        finally:
            others = self.waiting.get((kind, name))
            if others is not None:
                others.discard(mine)
                if not others:
                    del self.waiting[kind, name]

    async def _look(self) -> None:
        wait = self.every
        async with httpx.AsyncClient(base_url=self.place.url, headers=self.place.headers, timeout=TIMEOUT) as client:
            while self.waiting:
                self.looks += 1
                try:
                    await self._round(client)
                    wait = self.every
                except (httpx.HTTPError, Away, ValueError, KeyError):  # or something else answers in its place
                    wait = min(wait * 2, LONGEST)  # an unreachable server ends nothing
                except ForestayError as error:
                    for key in list(self.waiting):
                        self._tell(key, error)
                # Many triggerers must not all poll at the same moment.
                await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311

    async def _round(self, client: httpx.AsyncClient) -> None:
        jobs = [name for kind, name in self.waiting if kind == "job"]
        for start in range(0, len(jobs), MOST_IDS):
            asked = jobs[start : start + MOST_IDS]
            page = await self._ask(client, server.read_jobs(asked))
            found_jobs = {job["id"]: job for job in page["jobs"]}
            for name in asked:
                # A search may lag behind; jobs that it does not find are requested by id.
                await self._settle(client, "job", name, found_jobs.get(name))
        for kind, name in [key for key in self.waiting if key[0] != "job"]:
            await self._settle(client, kind, name, None)

    async def _settle(self, client: httpx.AsyncClient, kind: str, name: str, fields: dict[str, Any] | None) -> None:
        try:
            if fields is None:
                fields = await self._ask(client, server.read(kind, name))
        except ForestayError as error:
            self._tell((kind, name), error)
            return
        assert fields is not None  # noqa: S101 - what was answered is there
        ending = ending_of(fields)
        if ending is not None:
            self._tell((kind, name), ending)

    async def _ask(self, client: httpx.AsyncClient, ask: Ask) -> Any:
        self.asked += 1
        return answered(await client.request(**ask.parts))

    def _tell(self, key: tuple[str, str], what: dict[str, Any] | ForestayError) -> None:
        for entry in self.waiting.get(key, set()):
            if not entry.done():
                if isinstance(what, ForestayError):
                    entry.set_exception(what)
                else:
                    entry.set_result(what)


_watches: WeakValueDictionary[tuple[int, Place, float], Watch] = WeakValueDictionary()
"""The pollers in use."""


def watch(place: Place, every: float) -> Watch:
    """The poller for a server in this event loop."""
    key = (id(asyncio.get_running_loop()), place, every)
    known = _watches.get(key)
    if known is None:
        known = _watches[key] = Watch(place, every)
    return known


class ForestayTrigger(BaseTrigger):
    """Fires once, when a job or run has ended. Holds ids only: the token stays in the connection."""

    def __init__(self, kind: str, name: str, forestay_conn_id: str, every: float = 5.0) -> None:
        super().__init__()
        self.kind = kind
        self.name = name
        self.forestay_conn_id = forestay_conn_id
        self.every = every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        known = {
            "kind": self.kind,
            "name": self.name,
            "forestay_conn_id": self.forestay_conn_id,
            "every": self.every,
        }
        return "airflow_provider_forestay.trigger.ForestayTrigger", known

    async def run(self) -> AsyncIterator[TriggerEvent]:
        try:
            ending = await watch(await self._place(), self.every).ending(self.kind, self.name)
        except ForestayError as error:
            ending = {"id": self.name, "state": "unknown", "well": False, "reason": str(error)}
        yield TriggerEvent(ending)

    async def on_kill(self) -> None:
        """A person ended the task while it waited: its job or run is cancelled."""
        place = await self._place()
        asked: Ask = server.stop(self.kind, self.name, "the Airflow task was stopped")
        async with httpx.AsyncClient(base_url=place.url, headers=place.headers, timeout=10.0) as client:
            answered(await client.request(**asked.parts))

    async def _place(self) -> Place:
        return Place.of(await BaseHook.aget_connection(self.forestay_conn_id))
