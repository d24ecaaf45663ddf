"""The way from server and reconciler to the store is spoilt: connections are reset, answers come late or in drops, half of the requests get 503. Nobody storms."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from tests import servers
from tests.system.chaos.gate import PIECE, Gate, Spoilt, Way, whole
from tests.system.faults.load import figures, site_under_load
from tests.unit.apps.server.running import Domain

from forestay.apps.compose.stores import open_stores

SECONDS = 25.0
"""How long each is spoilt; what is measured is a rate."""
MOST_CALLS = 1.2
"""Calls of the store a second, against the same load on a sound way."""
MOST_REPEATS = 0.1
"""The share of calls that repeat a write."""
WAYS = {
    "reset": Spoilt(reset=0.5),
    "1 B/s": Spoilt(rate=1),
    "5 s late": Spoilt(late=5),
    "503": Spoilt(refuse=0.5),
}


@asynccontextmanager
async def gate_to(port: int, log: Path) -> AsyncIterator[tuple[Way, int]]:
    way = Way("store", port)
    with log.open("w") as lines:
        gate = Gate({"store": way}, random.Random(26), lines)
        server = await asyncio.start_server(
            lambda reader, writer: gate.serve(way, reader, writer), "127.0.0.1", 0, limit=PIECE, backlog=512
        )
        try:
            yield way, server.sockets[0].getsockname()[1]
        finally:
            server.close()


@dataclass
class Measured:
    """What passed in a while."""

    calls: float
    """In a second."""
    repeats: float
    """Their share."""


async def measured(way: Way, seconds: float = SECONDS) -> Measured:
    calls, repeats = way.requests, way.repeats
    await asyncio.sleep(seconds)
    made = way.requests - calls
    return Measured(made / seconds, (way.repeats - repeats) / max(1, made))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.pair
async def test_a_spoilt_way_to_the_store_makes_no_storm(tmp_path: Path, record_property: Any) -> None:
    store = urlsplit(servers.opensearch()[0])
    found_measured: dict[str, Measured] = {}
    async with gate_to(store.port or 9200, tmp_path / "gate.jsonl") as (way, port):
        place = f"opensearch://127.0.0.1:{port}/fs-{uuid4().hex[:8]}?timeout="
        stores = open_stores(f"{place}120")  # a busy machine makes its indexes slowly
        await stores.jobs.open()
        await stores.jobs.close()
        domain = Domain(f"{place}10", tmp_path / "state")
        async with site_under_load(domain, tmp_path) as site:
            await site.load.more(20)
            found_measured["sound"] = await measured(way)
            for name, spoilt in WAYS.items():
                way.spoilt = spoilt
                found_measured[name] = await measured(way)
                way.spoilt = Spoilt()
                await site.load.more(10)
    text = "; ".join(
        f"{name}: {measured.calls:.1f} calls/s, {100 * measured.repeats:.0f} % repeated"
        for name, measured in found_measured.items()
    )
    figures(record_property, text, site.load)
    assert max(measured.repeats for measured in found_measured.values()) <= MOST_REPEATS, text
    assert max(measured.calls for measured in found_measured.values()) <= MOST_CALLS * found_measured["sound"].calls, (
        text
    )


def test_a_way_counts_the_writes_that_came_before() -> None:
    def request(path: bytes, body: bytes) -> bytes:
        return b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)

    way, write = Way("store", 1), request(b"/jobs/_bulk", b"one")
    assert not whole(bytearray(write[:-1]))
    assert whole(bytearray(write))
    for other_request in (write, request(b"/jobs/_bulk", b"two"), write, *[request(b"/jobs/_search", b"any")] * 2):
        way.count(other_request)
    assert (way.requests, way.repeats) == (5, 1)
