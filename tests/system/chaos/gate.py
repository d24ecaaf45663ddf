"""The gate: every word between pilots, servers and store passes through it, so that it can be lost.

A way is a port of the gate that leads to one port behind it. On a way an answer can be lost *after* the request was carried out
(the first bytes of the answer have come back, and both sides are cut), a way can be shut, and all connections of one pilot
can be cut. Everything lost or cut is written down with its time. A way can be spoilt too: requests are reset or answered with 503, answers
come late or in drops; and it counts its requests, and the writes among them that it has seen before.

    python -m tests.system.chaos.gate LOGFILE SEED name=port …      prints {"name": port, …}, then takes orders as lines of JSON
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO

import uvloop

PIECE = 1 << 17
REQUEST = re.compile(rb"(?:GET|POST|PUT|DELETE) (\S+) HTTP/1\.1\r\n")
WRITE = re.compile(rb"POST \S+/_bulk")
END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
PILOT = re.compile(r"^/v1/pilots/([^/?]+)")
STREAMS = ("/channel", "/v1/events")
"""Held open for long: losing their answer would be a cut, which is a fault of its own."""


@dataclass(slots=True, eq=False)
class Way:
    """One port of the gate."""

    name: str
    target: int
    shut: bool = False
    lose: float = 0.0
    """The share of answers that are lost."""
    spoilt: Spoilt = field(default_factory=lambda: Spoilt())
    requests: int = 0
    repeats: int = 0
    """Writes whose very bytes came before."""
    links: set[Link] = field(default_factory=set)
    _seen: set[bytes] = field(default_factory=set)

    def count(self, request: bytes) -> None:
        self.requests += 1
        if WRITE.match(request):
            digest = hashlib.sha1(request[request.find(END) :], usedforsecurity=False).digest()
            self.repeats += digest in self._seen
            self._seen.add(digest)


@dataclass(frozen=True, slots=True)
class Spoilt:
    """What is wrong with a way."""

    reset: float = 0.0
    """The share of requests at which the connection is cut, before they are carried out."""
    refuse: float = 0.0
    """The share that is answered with 503."""
    late: float = 0.0
    """Seconds before an answer is passed on."""
    rate: float = 0.0
    """Bytes of an answer in a second; 0: as fast as they come."""


@dataclass(slots=True, eq=False)
class Link:
    """One connection through a way."""

    way: Way
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    path: str = ""
    pilot: str = ""
    losing: bool = False
    request: bytearray = field(default_factory=bytearray)
    """What came of a request that is not whole yet."""

    def cut(self) -> None:
        for writer in (self.near, self.far):
            writer.transport.abort()


def whole(request: bytearray) -> bool:
    """Whether all of a request is there."""
    head = request.find(END)
    length = LENGTH.search(request, 0, head + 2) if head >= 0 else None
    return head >= 0 and len(request) >= head + len(END) + (int(length[1]) if length else 0)


class Gate:
    """All ways, and the orders."""

    def __init__(self, ways: dict[str, Way], chance: random.Random, log: TextIO) -> None:
        self.ways = ways
        self._chance = chance
        self._log = log

    def note(self, what: str, way: str, path: str, pilot: str) -> None:
        line = {"at": time.time(), "what": what, "way": way, "path": path, "pilot": pilot}
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()

    async def serve(self, way: Way, reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        if way.shut:
            near.transport.abort()
            return
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", way.target, limit=PIECE)
        except OSError:
            near.transport.abort()
            return
        link = Link(way, near, far)
        way.links.add(link)
        try:
            tasks = {asyncio.create_task(self._ask(link, reader)), asyncio.create_task(self._answer(link, far_reader))}
            _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in rest:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            way.links.discard(link)
            for writer in (near, far):
                with suppress(OSError, RuntimeError):
                    writer.close()

    async def _ask(self, link: Link, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                if request := REQUEST.match(data):
                    link.path = request[1].decode(errors="replace")
                    if named := PILOT.match(link.path):
                        link.pilot = named[1]
                    may = not any(stream in link.path for stream in STREAMS)
                    link.losing = may and self._chance.random() < link.way.lose
                    link.request.clear()
                link.request += data
                if whole(link.request):
                    link.way.count(bytes(link.request))
                    link.request.clear()
                if request and self._spoil(link):
                    return
                link.far.write(data)
                await link.far.drain()

    def _spoil(self, link: Link) -> bool:
        """Whether a request ends here."""
        spoilt, dice = link.way.spoilt, self._chance.random()
        if dice < spoilt.refuse:
            link.near.write(REFUSAL)
            return True
        if dice < spoilt.refuse + spoilt.reset:
            link.cut()
            return True
        return False

    async def _drop_by_drop(self, link: Link, data: bytes) -> None:
        for place in range(len(data)):
            if not link.way.spoilt.rate:
                link.near.write(data[place:])
                return
            link.near.write(data[place : place + 1])
            await asyncio.sleep(1 / link.way.spoilt.rate)

    async def _answer(self, link: Link, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                if link.losing:
                    self.note("lost", link.way.name, link.path, link.pilot)
                    link.cut()
                    return
                if link.way.spoilt.rate:
                    await self._drop_by_drop(link, data)
                else:
                    await asyncio.sleep(link.way.spoilt.late)
                    link.near.write(data)
                await link.near.drain()

    def obey(self, order: dict[str, Any]) -> None:
        """Carry out one order: `shut`, `open`, `lose` on ways by prefix; `cut` the connections of any one pilot."""
        ways = [way for way in self.ways.values() if way.name.startswith(order.get("way", ""))]
        match order["do"]:
            case "shut":
                for way in ways:
                    way.shut = True
                    for link in list(way.links):
                        link.cut()
            case "open":
                for way in ways:
                    way.shut = False
            case "lose":
                for way in ways:
                    way.lose = order["rate"]
            case "cut":
                links = [link for way in ways for link in way.links]
                pilots = sorted({link.pilot for link in links if "/channel" in link.path})
                if pilots:
                    pilot = self._chance.choice(pilots)
                    self.note("cut", "server", "", pilot)
                    for link in links:
                        if link.pilot == pilot:
                            link.cut()


async def main(lines: TextIO, seed: str, *words: str) -> None:
    ways = {name: Way(name, int(port)) for name, _, port in (word.partition("=") for word in words)}
    gate = Gate(ways, random.Random(seed), lines)
    ports: dict[str, int] = {}
    for way in ways.values():

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way = way) -> None:
            await gate.serve(way, reader, writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=PIECE, backlog=512)
        ports[way.name] = server.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        gate.obey(json.loads(line))


if __name__ == "__main__":
    with open(sys.argv[1], "a") as log:
        uvloop.run(main(log, *sys.argv[2:]))
