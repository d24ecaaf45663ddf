"""The site agent's process: keeps one site supplied with pilots. A user of the batch system runs it, on any host that can submit."""

from __future__ import annotations

import asyncio

import structlog

from forestay.adapters.kubernetes.batch import KubernetesBatch
from forestay.adapters.slurm.own_users import OwnUsersSlurm
from forestay.apps.compose.loops import stop, until_stopped
from forestay.apps.compose.site import SiteComponents, kubernetes_job
from forestay.apps.config.site_settings import SiteSettings
from forestay.domain.sites.launch import NAME
from forestay.ports.errors import Conflict, PortError
from forestay.services.sites.site_agent import SiteAgent

log = structlog.get_logger()
SHOWN = 2.0
"""Seconds after which a search certainly shows what a killed agent had written."""
LONGEST = 60.0
"""The most seconds between polls while the server does not answer."""


async def run_site(settings: SiteSettings) -> None:
    """Run one site agent until it is told to stop. Its pilots continue; an agent that starts later finds them again."""
    components = SiteComponents(settings)
    log.info(
        "site agent", site=settings.site, batch=settings.batch, servers=settings.servers, spool=str(settings.spool)
    )
    looking = asyncio.create_task(poll_site(components.agent, every=settings.every))
    task = asyncio.create_task(until_stopped())
    try:
        await asyncio.wait({looking, task}, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            looking.result()  # it never ends by itself: this raises its error
    finally:
        await stop(looking)
        await stop(task)
        await components.close()


async def check_site(settings: SiteSettings) -> list[str]:
    """The obstacles for an agent with these settings, found without submitting anything; empty if there are none."""
    wrong: list[str] = []
    try:
        components = SiteComponents(settings)
    except PortError as error:
        return [str(error)]
    try:
        try:
            await components.api.demand()
        except PortError as error:
            wrong.append(f"the server: {error}")
        try:
            await components.agent.reader.find([f"{NAME}check"])
        except PortError as error:
            wrong.append(f"the batch system: {error}")
        if components.kubernetes is not None:
            wrong += [*await _refused_sizes(components.kubernetes, settings)]
        if isinstance(components.submitter, OwnUsersSlurm):
            try:
                await components.submitter.check()
            except PortError as error:
                wrong.append(f"the launcher: {error}")
    finally:
        await components.close()
    return wrong


async def _refused_sizes(batch: KubernetesBatch, settings: SiteSettings) -> list[str]:
    """What the cluster says against a pilot of each size, without creating one."""
    wrong: list[str] = []
    for size in settings.sizes:
        try:
            await batch.check(kubernetes_job(settings, size, "check", {}))
        except PortError as error:
            wrong.append(f"size {size.name}: {error}")
    return wrong


async def poll_site(agent: SiteAgent, *, every: float) -> None:
    """Poll forever. A second agent waits for its turn; a silent server or batch system is polled less and less often."""
    await asyncio.sleep(SHOWN)
    pause = every
    while True:
        try:
            await agent.look()
            pause = every
        except Conflict as error:
            log.warning("another agent manages this site", detail=str(error))
        except PortError as error:
            log.warning("this poll failed", detail=str(error))
            pause = min(LONGEST, 2 * pause)
        await asyncio.sleep(pause)
