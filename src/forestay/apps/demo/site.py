"""What runs for the demonstration: Temporal, the visitor's domain with pilots on three named hosts, and a neighbouring domain for the act that loses it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from forestay.adapters.temporal.dev_server import DevServer
from forestay.apps.demo.domain import DemoDomain
from forestay.apps.demo.storage import DemoStorage

HOSTS = ("alba", "brio", "cima")
SLOTS = 2
"""Of each host."""
NEIGHBOUR = "south"
NEIGHBOURS_HOST = "dora"
NEIGHBOURS_SLOTS = 4
NAMESPACES = ("default", NEIGHBOUR)
"""Of Temporal, one for each domain."""


@dataclass(slots=True, eq=False, kw_only=True)
class DemoSite(DemoDomain):
    """The visitor's domain, and everything around it."""

    temporal_server: DevServer
    near: DemoStorage

    @property
    def far(self) -> Path:
        """The folder of the other storage element, which is fast and never fails."""
        return self.folder / "far"

    @property
    def notice(self) -> Path:
        """The file whose text stands on top of every page."""
        return self.folder / "notice"

    def own_settings(self) -> dict[str, str]:
        elements = [
            {"name": "near", "kind": "http", "url": self.near.url, "private": True, "rules": [_RULE]},
            {"name": "far", "kind": "file", "path": str(self.far), "rules": []},
        ]
        levels = [{"wait": 0}, {"wait": 1, "tries": 2}]
        return {
            "notice": str(self.notice),
            "flow_files": str(self.folder),
            "storage": json.dumps(elements),
            "approvals": "off",  # there is one person here
            "free_tries": "0,1,5",
            "retry_policies": json.dumps({"default": {"levels": levels, "then": "rollback"}}),
            "unanswered": json.dumps({"network": "retry"}),
        }

    async def start(self) -> None:
        self.far.mkdir(exist_ok=True)
        await self.temporal_server.ready()
        await DemoDomain.start(self)

    async def start_pilots(self) -> None:
        for host in HOSTS:
            await self.start_pilot(host, SLOTS)

    @asynccontextmanager
    async def neighbour(self) -> AsyncIterator[DemoDomain]:
        """Another domain with its own store, processes and pilot; stopped in the end."""
        folder = self.folder / NEIGHBOUR
        folder.mkdir()
        domain = DemoDomain(folder, self.temporal, NEIGHBOUR)
        try:
            await domain.start()
            yield domain
        finally:
            await domain.stop()

    async def stop(self) -> None:
        await DemoDomain.stop(self)
        await self.temporal_server.stop()


_RULE = {"match": "/demo/(.*)", "to": "$1"}
