"""The effect ledger: an independent process that payloads tell what they do.

It knows nothing of Forestay. Each line is answered when it is on disk, so a payload that went on has left its mark. When
a payload's connection closes before it said END, the ledger writes CUT: that payload was killed.

    python -m tests.system.chaos.ledger FILE      prints the port it listens on, then serves until killed
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

WORDS = frozenset({"START", "EFFECT", "END", "CUT"})


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of the ledger."""

    at: float
    """Seconds since 1970, by the ledger's clock; everything runs on one machine."""
    word: str
    job: str
    attempt: int
    claim: str
    fence: str
    detail: str = "-"


def read_ledger(path: Path) -> Iterator[Mark]:
    """All marks in the order in which they were made."""
    with path.open() as lines:
        for line in lines:
            yield Mark(**json.loads(line))


class Ledger:
    """Appends marks to a file; many marks share one sync."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lines: list[bytes] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()

    async def note(self, mark: Mark) -> None:
        """Write a mark; returns when it is on disk."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.append(json.dumps(asdict(mark)).encode() + b"\n")
        self._waiting.append(done)
        self._wake.set()
        await done

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            lines, self._lines = self._lines, []
            waiting, self._waiting = self._waiting, []
            await asyncio.to_thread(self._store, b"".join(lines))
            for entry in waiting:
                if not entry.done():
                    entry.set_result(None)

    def _store(self, data: bytes) -> None:
        os.write(self._file, data)
        os.fdatasync(self._file)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One payload, from its first word to the close of its connection."""
        last: Mark | None = None
        try:
            while line := await reader.readline():
                word, job, attempt, claim, fence, detail = line.decode().split()
                if word not in WORDS:
                    return
                last = Mark(time.time(), word, job, int(attempt), claim, fence, detail)
                await self.note(last)
                writer.write(b"ok\n")
                await writer.drain()
        except (OSError, ValueError):
            pass
        finally:
            if last is not None and last.word != "END":
                await self.note(Mark(time.time(), "CUT", last.job, last.attempt, last.claim, last.fence))
            writer.close()


async def main(path: Path) -> None:
    ledger = Ledger(path)
    server = await asyncio.start_server(ledger.serve, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.gather(ledger.run(), server.serve_forever())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
