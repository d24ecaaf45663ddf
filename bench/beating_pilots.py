"""Very many simulated pilots that only send heartbeats, in a process of their own: the real protocol over HTTP, on connections that they share.

Each sends its heartbeats at its own time, a third of the lease apart, and is answered when its heartbeat is stored. What to do comes as one JSON object on standard input; how it goes comes as
lines of JSON on standard output.
"""

from __future__ import annotations

import asyncio
import sys
import time

import orjson
import uvloop

SAY_EVERY = 1.0


class Heartbeats:
    """Pilots and the connections that they share."""

    def __init__(self, host: str, port: int, pilots: list[list[str]], every: float, connections: int) -> None:
        self.host, self.port, self.pilots, self.every = host, port, pilots, every
        self.connections = connections
        self.heartbeats = self.bad = 0
        self.worst = self.late = 0.0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._say())
            begin = time.monotonic() + 1.0
            for number in range(self.connections):
                group.create_task(self._connection(number, begin))

    async def _say(self) -> None:
        while True:
            await asyncio.sleep(SAY_EVERY)
            fields = {
                "heartbeats": self.heartbeats,
                "bad": self.bad,
                "worst": self.worst,
                "late": self.late,
                "at": time.monotonic(),
            }
            sys.stdout.buffer.write(orjson.dumps(fields) + b"\n")
            sys.stdout.buffer.flush()
            self.worst = self.late = 0.0

    async def _connection(self, number: int, begin: float) -> None:
        """The heartbeats of every so many-th pilot, each in its time."""
        mine = self.pilots[number :: self.connections]
        reader: asyncio.StreamReader | None = None
        counter = 0
        while True:
            counter += 1
            for place, (pilot, token) in enumerate(mine):
                due = begin + self.every * (counter - 1 + (number / self.connections + place) / max(1, len(mine)))
                wait = due - time.monotonic()
                if wait > 0:
                    await asyncio.sleep(wait)
                else:
                    self.late = max(self.late, -wait)
                if reader is None:  # not before: a server hangs up on those who connect and say nothing
                    reader, writer = await asyncio.open_connection(self.host, self.port)
                body = b'{"counter":%d,"claims":[]}' % counter
                writer.write(
                    b"POST /v1/pilots/%s/heartbeat HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer %s\r\n"
                    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                    % (pilot.encode(), token.encode(), len(body), body)
                )
                sent = time.monotonic()
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                self.worst = max(self.worst, time.monotonic() - sent)
                self.heartbeats += 1
                self.bad += not head.startswith(b"HTTP/1.1 200")


async def main() -> None:
    await Heartbeats(**orjson.loads(sys.stdin.buffer.read())).run()


if __name__ == "__main__":
    uvloop.run(main())
