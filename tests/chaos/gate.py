"""The gate: every word between pilots, servers and store passes through it, so that it can be lost.

A way is a port of the gate that leads to one port behind it. On a way an answer can be lost *after* the request was carried out
(the first bytes of the answer have come back, and both sides are cut), a way can be shut, and all connections of one pilot
can be cut. Everything lost or cut is written down with its time.

    python -m tests.chaos.gate LOGFILE SEED name=port …      prints {"name": port, …}, then takes orders as lines of JSON
"""

from __future__ import annotations

import asyncio
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
    links: set[Link] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Link:
    """One connection through a way."""

    way: Way
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    path: str = ""
    pilot: str = ""
    losing: bool = False

    def cut(self) -> None:
        for writer in (self.near, self.far):
            writer.transport.abort()


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
                link.far.write(data)
                await link.far.drain()

    async def _answer(self, link: Link, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                if link.losing:
                    self.note("lost", link.way.name, link.path, link.pilot)
                    link.cut()
                    return
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
