"""The loop of services that poll for due work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from forestay.ports.errors import PortError


async def poll_forever(look: Callable[[], Awaitable[None]], every: float, troubled: Callable[[str], None]) -> None:
    """Look for ever, with so many seconds between; what an outside part could not do is told, and tried again."""
    while True:
        try:
            await look()
        except PortError as error:
            troubled(str(error))
        await asyncio.sleep(every)
