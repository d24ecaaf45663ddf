"""The loop of services that poll for due work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from forestay.ports.errors import PortError


async def poll_forever(look: Callable[[], Awaitable[None]], every: float, troubled: Callable[[str], None]) -> None:
    """Call `look` every `every` seconds until cancelled; port errors are reported, and the call is repeated."""
    while True:
        try:
            await look()
        except PortError as error:
            troubled(str(error))
        await asyncio.sleep(every)
