"""OpenSearch nodes in network namespaces, joined by lines that can be cut.

A node that binds to anything but loopback demands limits of the system that a test machine may not give. So each node
stays on the loopback of its own namespace, and relays carry its ports over the line between the namespaces, and to clients outside.

    python -m tests.system.linearizability.spaces HOST:PORT=HOST:PORT …       listens at the first, leads to the second
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.namespaces import network

from forestay_pilot.process import libc

LOOP = "127.0.0.1"
TRANSPORT = 100
"""How far the port that nodes speak by is from that of clients."""
PIECE = 1 << 17


@contextmanager
def joined_nodes(name: str, net: str, port: int, many: int) -> Iterator[None]:
    """Namespaces NAME-n1, NAME-n2, …; what listens there at PORT, PORT+1, … is reached at the same port of every loopback."""
    nodes = range(1, many + 1)
    relays: list[subprocess.Popen[bytes]] = []
    with network(f"{name}-bridge", net, [f"{name}-n{node}" for node in nodes]):
        try:
            for node in nodes:
                own = [port + node - 1, port + TRANSPORT + node - 1]
                ways = [f"{net}.{node}:{number}={LOOP}:{number}" for number in own]
                for other in nodes:
                    there = port + TRANSPORT + other - 1
                    ways += [f"{LOOP}:{there}={net}.{other}:{there}"] if other != node else []
                relays.append(_relay(ways, "ip", "netns", "exec", f"{name}-n{node}"))
            relays.append(_relay([f"{LOOP}:{port + node - 1}={net}.{node}:{port + node - 1}" for node in nodes]))
            yield
        finally:
            for relay in relays:
                relay.kill()
                relay.wait()


def _relay(ways: list[str], *within: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*within, sys.executable, "-m", __name__, *ways], preexec_fn=libc.die_with_parent)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.close()


async def _relaying(ways: list[str]) -> None:
    for way in ways:
        here, there = (part.rsplit(":", 1) for part in way.split("="))

        async def serve(reader: asyncio.StreamReader, near: asyncio.StreamWriter, there: list[str] = there) -> None:
            try:
                back, far = await asyncio.open_connection(there[0], int(there[1]), limit=PIECE)
            except OSError:
                near.transport.abort()
                return
            await asyncio.gather(_pass_on(reader, far), _pass_on(back, near))

        await asyncio.start_server(serve, here[0], int(here[1]), limit=PIECE, backlog=512)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_relaying(sys.argv[1:]))
