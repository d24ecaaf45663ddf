"""The site agent's process: keeps the pilots of one site. It is run by a user of the batch system, on any host that can submit."""

from __future__ import annotations

import asyncio

import structlog

from forestay.apps.compose.loops import stop, until_told
from forestay.apps.compose.site import SiteParts
from forestay.apps.config.site_settings import SiteSettings
from forestay.domain.sites.launch import NAME
from forestay.ports.errors import Conflict, PortError
from forestay.services.sites.keep_pilots import KeepPilots

log = structlog.get_logger()
SHOWN = 2.0
"""Seconds after which a search surely shows what an agent that was killed had written."""
LONGEST = 60.0
"""Seconds between looks at most while the server does not answer."""


async def keep_site(settings: SiteSettings) -> None:
    """Run one site agent until it is told to stop. Its pilots go on; an agent that starts later finds them again."""
    parts = SiteParts(settings)
    log.info(
        "site agent", site=settings.site, batch=settings.batch, servers=settings.servers, spool=str(settings.spool)
    )
    looking = asyncio.create_task(look_for_ever(parts.agent, every=settings.every))
    told = asyncio.create_task(until_told())
    try:
        await asyncio.wait({looking, told}, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            looking.result()  # it never ends by itself: this raises what broke it
    finally:
        await stop(looking)
        await stop(told)
        await parts.close()


async def check_site(settings: SiteSettings) -> list[str]:
    """What is in the way of an agent with these settings, without submitting anything; empty when nothing is."""
    wrong: list[str] = []
    try:
        parts = SiteParts(settings)
    except PortError as error:
        return [str(error)]
    try:
        try:
            await parts.desk.demand()
        except PortError as error:
            wrong.append(f"the server: {error}")
        try:
            await parts.agent.reader.find([f"{NAME}check"])
        except PortError as error:
            wrong.append(f"the batch system: {error}")
    finally:
        await parts.close()
    return wrong


async def look_for_ever(agent: KeepPilots, *, every: float) -> None:
    """Look again and again. An agent beside another one waits for its turn; what does not answer is asked less and less often."""
    await asyncio.sleep(SHOWN)
    pause = every
    while True:
        try:
            await agent.look()
            pause = every
        except Conflict as error:
            log.warning("another agent looks after this site", detail=str(error))
        except PortError as error:
            log.warning("this look came to nothing", detail=str(error))
            pause = min(LONGEST, 2 * pause)
        await asyncio.sleep(pause)
