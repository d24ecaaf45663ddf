"""Simulated pilots, in a process of their own: the real protocol over HTTP, and no payloads.

Each registers, sends heartbeats, claims up to 32 jobs at once and ends them together. An answer that does not come is asked for again, and ends are kept until they
are settled, as a real pilot does. What to do comes as one JSON object on standard input; what was ended goes as lines of JSON to standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
import uvloop

from forestay_pilot.process import libc

BATCH = 32
WAIT = 5
SAY_EVERY = 0.1
SETTLED = frozenset({"committed", "held", "superseded"})
END = {"outcome": "ok", "exit_code": 0, "wall": 0.01, "cpu": 0.01, "peak_memory": 1 << 20, "host": "bench"}


@dataclass(slots=True)
class Pilots:
    """Some pilots of one process."""

    urls: list[str]
    enrol: str
    many: int
    per_second: float
    """Ends a second of all pilots here together; 0: as fast as it goes."""
    session: aiohttp.ClientSession
    failing: dict[str, Any] | None = None
    """How every first attempt ends; None: well."""
    outputs: bool = False
    """Every job commits a manifest, so that others may refer to its outputs."""
    together: int = 0
    """So many claims are held before the first of them ends, all at once; 0: none waits for another."""
    claimed: int = 0
    again: int = 0
    """Claims that were not for a first attempt."""
    all_claimed: float = 0.0
    """When the last of those that end at once was claimed."""
    ended: int = 0
    last: float = 0.0
    """When the last end was acknowledged, by the machine's monotonic clock."""
    superseded: int = 0
    _slot: float = 0.0
    _gathered: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._say())
            for number in range(self.many):
                group.create_task(self._pilot(self.urls[number % len(self.urls)]))

    async def _say(self) -> None:
        number = -1
        while True:
            if self.ended != number:
                number = self.ended
                line = {"ended": self.ended, "last": self.last, "superseded": self.superseded, "again": self.again}
                line["all_claimed"] = self.all_claimed
                sys.stdout.write(orjson.dumps(line).decode() + "\n")
                sys.stdout.flush()
            await asyncio.sleep(SAY_EVERY)

    async def _pilot(self, url: str) -> None:
        me = await self._post(f"{url}/v1/pilots", self.enrol, {"host": "bench", "slots": BATCH})
        known = _Known(f"{url}/v1/pilots/{me['pilot']}", me["token"], me["heartbeat_every"])
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heartbeat(known))
            while True:
                asked = {"max": BATCH, "wait": WAIT, "resources": {"cpus": BATCH, "memory": 1 << 40}}
                claims = (await self._post(f"{known.base}/claims", known.token, asked, known))["claims"]
                if not claims:
                    continue
                known.claims = [claim["claim"] for claim in claims]
                self.again += sum(claim["attempt"] > 1 for claim in claims)
                await self._gather(len(claims))
                await self._pace(len(claims))
                await self._end(known, claims)
                known.claims = []

    async def _gather(self, many: int) -> None:
        """Nobody ends before all have claimed."""
        self.claimed += many
        if self.claimed >= self.together:
            self.all_claimed = self.all_claimed or time.monotonic()
            self._gathered.set()
        await self._gathered.wait()

    async def _pace(self, many: int) -> None:
        """Ends are spread evenly over time, whoever brings them."""
        if self.per_second:
            now = time.monotonic()
            self._slot = max(self._slot, now) + many / self.per_second
            await asyncio.sleep(self._slot - now)

    async def _end(self, known: _Known, claims: list[dict[str, Any]]) -> None:
        named = ("job", "generation", "attempt", "claim")
        ends = [
            {name: claim[name] for name in named}
            | (self.failing if self.failing and claim["attempt"] == 1 else END)
            | ({"manifest": _manifest(claim)} if self.outputs else {})
            for claim in claims
        ]
        while ends:
            results = (await self._post(f"{known.base}/completions", known.token, {"completions": ends}, known))[
                "results"
            ]
            settled = {result["claim"] for result in results if result["result"] in SETTLED}
            self.superseded += sum(result["result"] == "superseded" for result in results)
            self.ended += sum(result["result"] == "committed" for result in results)
            self.last = time.monotonic()
            ends = [end for end in ends if end["claim"] not in settled]
            if ends:
                await asyncio.sleep(0.2)

    async def _heartbeat(self, known: _Known) -> None:
        counter = 0
        while True:
            counter += 1
            body = {"counter": counter, "claims": known.claims}
            answer = await self._post(f"{known.base}/heartbeat", known.token, body, known)
            known.token = answer["token"] or known.token
            await asyncio.sleep(known.heartbeat_every)

    async def _post(self, url: str, token: str, body: object, known: _Known | None = None) -> dict[str, Any]:
        """Ask until there is an answer; the server may be down for a while."""
        data = orjson.dumps(body)
        while True:
            headers = {"Authorization": f"Bearer {known.token if known else token}", "Content-Type": "application/json"}
            try:
                async with self.session.post(url, data=data, headers=headers) as answer:
                    content = await answer.read()
                    if answer.status < 300:
                        read: dict[str, Any] = orjson.loads(content)
                        return read
                    if answer.status < 500 and answer.status != 429:
                        raise SystemExit(f"{url}: {answer.status} {content.decode(errors='replace')}")
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(random.uniform(0.1, 0.3))


def _manifest(claim: dict[str, Any]) -> dict[str, Any]:
    """What a job says that it has left: no file is behind it."""
    folder = f"{claim['tenant']}/{claim['job']}/{claim['generation']}.{claim['attempt']}.{claim['claim'][:8]}"
    return {"path": f"/out/{folder}/manifest.json", "sha256": "0" * 64, "files": 1, "bytes": 2}


@dataclass(slots=True)
class _Known:
    """A pilot as the server knows it."""

    base: str
    token: str
    heartbeat_every: float
    claims: list[str] = field(default_factory=list)


class PilotProcess:
    """Simulated pilots in another process, and what they have said so far."""

    def __init__(self, urls: list[str], enrol: str, many: int, per_second: float = 0.0, **more: object) -> None:
        words = [sys.executable, "-m", "bench.simulated_pilots"]
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=libc.die_with_parent,
        )
        assert self.process.stdin is not None
        fields = {"urls": urls, "enrol": enrol, "many": many, "per_second": per_second} | more
        self.process.stdin.write(orjson.dumps(fields))
        self.process.stdin.close()
        self.ended = 0
        self.last = 0.0
        self.superseded = 0
        self.again = 0
        self.all_claimed = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            document = orjson.loads(line)
            self.ended, self.last, self.superseded = document["ended"], document["last"], document["superseded"]
            self.again, self.all_claimed = document["again"], document["all_claimed"]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


async def main() -> None:
    document = orjson.loads(sys.stdin.buffer.read())
    limits = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout(total=60)) as session:
        with contextlib.suppress(asyncio.CancelledError):
            await Pilots(**document, session=session).run()


if __name__ == "__main__":
    uvloop.run(main())
