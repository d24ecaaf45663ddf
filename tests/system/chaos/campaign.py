"""One campaign: hurts a site act by act while jobs are submitted, then waits for quiet."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.speed import typical
from tests.system.chaos.site import Site, say
from tests.system.chaos.sizes import Act
from tests.system.chaos.store_cluster import NODES, StoreState

FINAL = ("completed", "failed", "cancelled", "forced_complete")


@dataclass(slots=True)
class Campaign:
    """The acts, in order."""

    site: Site
    act: str = "start"
    load: float = 0.0
    """Of the machine, the highest that was seen."""
    asides: set[asyncio.Task[None]] = field(default_factory=set)
    """Pauses that end by themselves."""

    async def run(self) -> None:
        """All acts, while jobs are submitted; then quiet."""
        watch = asyncio.create_task(self.site.crew.watch())
        progress = asyncio.create_task(self._progress())
        operator = asyncio.create_task(self._operator())
        speed = asyncio.create_task(self._speed())
        length = sum(act.seconds + act.rest for act in self.site.size.acts)
        submitting = asyncio.create_task(self.site.submitter.run(length * 0.9))
        acts: dict[str, Callable[[Act], Awaitable[None]]] = {
            "pilots": self._pilots,
            "services": self._services,
            "nodes": self._nodes,
            "store frozen": self._store_frozen,
            "store cut off": self._store_cut_off,
            "store errors": self._store_errors,
            "no server": self._no_server,
            "storm": self._storm,
        }
        try:
            await self._until_work_runs()
            for act in self.site.size.acts:
                self.act = act.name
                say(f"act: {act.name}, {act.seconds:.0f} s")
                await acts[act.name](act)
                self.act = "rest"
                await asyncio.sleep(act.rest)
            self.act = "quiet"
            self._heal()
            say("the faults are over; waiting until every job is final")
            await submitting
            await asyncio.gather(*self.asides)
            await self._until_final()
        finally:
            others = (progress, operator, speed, submitting, *self.asides)
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self.site.crew.ending = True
            await watch
            self.site.crew.ending = False

    async def _until_work_runs(self) -> None:
        """Until every twentieth job is done: a store that has just started is not what is judged."""
        while await self._final() < self.site.size.jobs / 20:  # noqa: ASYNC110 - the servers call nobody
            await asyncio.sleep(0.5)

    async def _final(self) -> int:
        return sum(count for state, count in (await self.site.states()).items() if state in FINAL)

    async def _pilots(self, act: Act) -> None:
        """Deaths and silences of pilots, and nothing else: here the figures are taken."""
        until = time.monotonic() + act.seconds
        await asyncio.gather(
            self._every(until, self.site.size.kill_every, self._kill, "pilot"),
            self._every(until, 9.0, self._short_pause, "pilot"),
            self._silences(until),
        )

    async def _services(self, act: Act) -> None:
        """Servers and reconcilers die and stop; answers are lost; pilots' connections are cut."""
        until = time.monotonic() + act.seconds
        await self._losing(
            0.01,
            0.005,
            self._every(until, 2 * self.site.size.kill_every, self._kill, "pilot"),
            self._every(until, 15.0, self._kill, "server"),
            self._every(until, 25.0, self._short_pause, "server"),
            self._every(until, 20.0, self._kill, "reconciler"),
            self._every(until, 35.0, self._short_pause, "reconciler"),
            self._every(until, 7.0, self._cut),
            self._every(until, 11.0, self._short_pause, "pilot"),
        )

    async def _nodes(self, act: Act) -> None:
        """Nodes of the store die, one at a time; the next when all copies are there again."""
        until = time.monotonic() + act.seconds

        async def nodes() -> None:
            while time.monotonic() < until:
                await self.site.store.kill(self.site.chance.randint(1, NODES), down=self.site.chance.uniform(5.0, 15.0))
                await asyncio.sleep(5.0)

        self._aside(nodes())
        await asyncio.gather(
            self._every(until, 2 * self.site.size.kill_every, self._kill, "pilot"),
            self._every(until, 40.0, self._kill, "server"),
            self._every(until, 45.0, self._kill, "reconciler"),
        )

    async def _store_frozen(self, act: Act) -> None:
        await asyncio.gather(*self.asides)  # all nodes are there again
        await asyncio.gather(self.site.store.freeze(act.seconds), self._during_outage(act.seconds))

    async def _store_cut_off(self, act: Act) -> None:
        fault = self.site.faults.begin("down", "store", "cut off")
        self.site.order(do="shut", way="store-")
        await self._during_outage(act.seconds)
        self.site.order(do="open", way="store-")
        self.site.faults.end(fault)

    async def _store_errors(self, act: Act) -> None:
        """The store answers with errors, one kind after the other, while pilots and servers die."""
        await asyncio.gather(*self.asides)  # all nodes are there again
        for state in StoreState:
            seconds = act.seconds / len(StoreState)
            await asyncio.gather(self.site.store.refuse(state, seconds), self._during_outage(seconds))

    async def _during_outage(self, seconds: float) -> None:
        """While the store is away pilots die too, and a server starts in vain."""
        until = time.monotonic() + seconds
        await asyncio.sleep(seconds / 3)
        self._kill("pilot")
        self._kill("server")
        await asyncio.sleep(max(0.0, until - time.monotonic()))

    async def _no_server(self, act: Act) -> None:
        for server in self.site.crew.of("server"):
            self.site.crew.kill(server, restart_after=act.seconds)
        await asyncio.sleep(act.seconds)

    async def _storm(self, act: Act) -> None:
        """Everything at once, with every tenth answer lost."""
        until = time.monotonic() + act.seconds
        await asyncio.gather(*self.asides)  # all nodes are there again
        self._aside(self.site.store.kill(self.site.chance.randint(1, NODES), down=10.0))
        await self._losing(
            0.1,
            0.05,
            self._every(until, self.site.size.kill_every, self._kill, "pilot"),
            self._every(until, 6.0, self._short_pause, "pilot"),
            self._every(until, 20.0, self._kill, "server"),
            self._every(until, 30.0, self._short_pause, "server"),
            self._every(until, 25.0, self._kill, "reconciler"),
            self._every(until, 5.0, self._cut),
        )

    # -- single faults -----------------------------------------------------------------------------------------

    async def _every(self, until: float, mean: float, do: Callable[..., None], *words: Any) -> None:
        """Do something again and again, about so many seconds apart."""
        while True:
            wait = self.site.chance.uniform(0.5, 1.5) * mean
            if time.monotonic() + wait >= until:
                await asyncio.sleep(max(0.0, until - time.monotonic()))
                return
            do(*words)
            await asyncio.sleep(wait)

    async def _losing(self, of_pilots: float, of_servers: float, *work: Awaitable[None]) -> None:
        """Lose this share of the answers to pilots and to servers while the work goes on."""
        faults = [
            self.site.faults.begin("lose", "server", str(of_pilots)),
            self.site.faults.begin("lose", "store", str(of_servers)),
        ]
        self.site.order(do="lose", way="server-", rate=of_pilots)
        self.site.order(do="lose", way="store-", rate=of_servers)
        try:
            await asyncio.gather(*work)
        finally:
            self.site.order(do="lose", rate=0.0)
            for fault in faults:
                self.site.faults.end(fault)

    def _kill(self, what: str) -> None:
        ready = self.site.crew.ready(what)
        if ready and (what != "server" or len(ready) > 1):
            self.site.crew.kill(self.site.chance.choice(ready), restart_after=self.site.chance.uniform(0.5, 3.0))

    def _short_pause(self, what: str) -> None:
        """SIGSTOP for less than the lease: nothing may come of it."""
        ready = self.site.crew.ready(what)
        if ready and (what != "server" or len(ready) > 1):
            # A claim that its pilot has not heard of is released after two of its heartbeats, which are a third of the lease apart.
            longest = min(20.0, 0.6 * self.site.size.lease)
            self._aside(self.site.crew.pause(self.site.chance.choice(ready), self.site.chance.uniform(1.0, longest)))

    async def _silences(self, until: float) -> None:
        """SIGSTOP of some pilots for longer than anyone waits; they come back as zombies. Then some others."""
        seconds = max(1.2 * self.site.size.lease, self.site.size.lease + 10.0) + 10.0
        while time.monotonic() + seconds < until:
            ready = self.site.crew.ready("pilot")
            some = self.site.chance.sample(ready, min(self.site.size.stopped_at_once, len(ready) // 2))
            await asyncio.gather(*(self.site.crew.pause(child, seconds) for child in some))

    def _cut(self) -> None:
        self.site.order(do="cut", way="server-")

    def _aside(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.asides.add(task)
        task.add_done_callback(self._aside_done)

    def _aside_done(self, task: asyncio.Task[None]) -> None:
        """One that failed stays, so that whoever waits for it learns why."""
        if task.cancelled() or task.exception() is None:
            self.asides.discard(task)

    def _heal(self) -> None:
        self.site.order(do="open")
        self.site.order(do="lose", rate=0.0)
        for child in self.site.crew.children:
            self.site.crew.go_on(child)

    async def _until_final(self) -> None:
        """Wait for the end, or until nothing has become final for so long that something must be stuck."""
        most, since = 0, time.monotonic()
        while time.monotonic() - since < self.site.size.quiet:
            states = await self.site.states()
            final = sum(states.get(state, 0) for state in FINAL)
            if final >= self.site.size.jobs and set(states) <= set(FINAL):
                return
            if final > most:
                most, since = final, time.monotonic()
            await asyncio.sleep(1.0)
        say(f"nothing became final for {self.site.size.quiet:.0f} s, and not everything is")

    async def _operator(self) -> None:
        while True:
            await asyncio.sleep(15.0)
            await self.site.operate()

    async def _speed(self) -> None:
        """Write down how slow the machine is at each moment: its load is part of what is timed."""
        with (self.site.folder / "slowness.jsonl").open("w") as lines:
            while True:
                times_slower = await asyncio.to_thread(typical, 5)
                lines.write(json.dumps({"at": time.time(), "times": round(times_slower, 2)}) + "\n")
                lines.flush()
                await asyncio.sleep(0.5)

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(10.0)
            self.load = max(self.load, os.getloadavg()[0])
            states = await self.site.states()
            text = " ".join(f"{state} {count}" for state, count in sorted(states.items())) or "no answer"
            pilots = self.site.crew.of("pilot")
            say(
                f"[{self.act}] accepted {len(self.site.submitter.accepted)}, {text}; "
                f"pilots {sum(pilot.up and pilot.pause is None for pilot in pilots)}/{len(pilots)}, "
                f"faults {len(self.site.faults.faults)}"
            )
