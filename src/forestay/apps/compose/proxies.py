"""The relays of a server: one for each downstream task server and tenant."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from forestay.adapters.prometheus.metrics import Sample
from forestay.apps.compose.secrets import secret_at
from forestay.domain.jobs.specification import Specification
from forestay.services.insertion.proxy_pilot import ProxyPilot
from forestay.services.insertion.task_proxy import TaskProxy
from forestay.services.insertion.task_server_connection import ProxyPolicy

if TYPE_CHECKING:
    from forestay.apps.compose.server import ServerComponents

log = structlog.get_logger()
CALLBACK_PURPOSE = "downstream-callback"
HINTS = 30 * 86_400
"""Seconds for which a downstream may call back; later completions are found by polling."""


class ProxyComponents:
    """The relays, joined to their server's services."""

    def __init__(self, services: ServerComponents) -> None:
        self.services = services
        components = services.components
        self.relays: list[TaskProxy] = []
        self.keeping: list[ProxyPilot] = []
        if components.settings.downstreams:  # aiohttp is imported at the start, and only by a server with downstreams
            from forestay.adapters.aiohttp.task_service import AiohttpTaskService
        for table in components.settings.downstreams:
            for tenant in table.tenants:
                on_event = _telling(table.name)
                relay = TaskProxy(
                    table.name,
                    tenant,
                    f"tes-{table.name}-{tenant}-{services.name}",
                    AiohttpTaskService(table.url, token=secret_at(table.token)),
                    services.claims,
                    services.completions,
                    components.store,
                    components.clock,
                    specification=self._specification,
                    policy=ProxyPolicy(
                        most=table.most,
                        patience=table.patience,
                        image=table.image,
                        callback=partial(self._callback, table.name, tenant) if table.callbacks else None,
                    ),
                    on_event=on_event,
                    seen=services.tasks.recall.seen,
                )
                self.relays.append(relay)
                self.keeping.append(
                    ProxyPilot(
                        relay,
                        components.pilots,
                        services.heartbeats,
                        components.release,
                        components.clock,
                        components.settings.lease,
                        on_event=on_event,
                    )
                )
                components.writer.listeners.append(relay)

    def _callback(self, name: str, tenant: str, job: str) -> str:
        """An address by which a downstream can report that the task of one job has ended, and do nothing else.

        A callback carries none of our headers, and addresses are written to logs: therefore it does not contain a token.
        """
        components = self.services.components
        words = {"downstream": name, "tenant": tenant, "job": job}
        capability = components.identity.seal(words, purpose=CALLBACK_PURPOSE, seconds=HINTS)
        return f"{components.settings.public_url}/v1/downstreams/{name}/told?capability={capability}"

    async def _specification(self, name: str) -> Specification | None:
        return (await self.services.specifications.find([name])).get(name)

    def loops(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        for relay, keeping in zip(self.relays, self.keeping, strict=True):
            loops[f"relay {relay.name} of {relay.tenant}"] = relay.run
            loops[f"relay kept {relay.name} of {relay.tenant}"] = keeping.run
        return loops

    async def close(self) -> None:
        for relay in self.relays:
            await relay.service.close()

    def samples(self) -> Iterator[Sample]:
        for relay in self.relays:
            labels = (("downstream", relay.name), ("tenant", relay.tenant))
            yield Sample("forestay_relayed_tasks", "Tasks under way at downstream servers", len(relay.held), labels)
            yield Sample("forestay_relay_sent_total", "Tasks created at downstream servers", relay.sending.sent, labels)
            yield Sample(
                "forestay_relay_adopted_total", "Tasks found again at downstream servers", relay.sending.adopted, labels
            )
            yield Sample(
                "forestay_relay_doubled_total",
                "Duplicate tasks there that were cancelled",
                relay.sending.doubled,
                labels,
            )
            yield Sample(
                "forestay_relay_silent_seconds", "Time since which a downstream is silent", relay.server.silent, labels
            )


def _telling(name: str) -> Callable[[str, Mapping[str, object]], None]:
    return lambda event, facts: log.warning(event, downstream=name, **facts)
