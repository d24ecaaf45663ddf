"""A site as operators meet it on a bad day: 3,000 jobs of six owners over three days, nineteen kinds of failure, a storm of 300, approvals that wait, errors that came back.

    just filled-site

Everything goes through the server's own interface: jobs are submitted, claimed and ended as pilots do it, and the failures take the real pipeline. Only the clock is put back by three days and
forward again in steps. What the failed programs printed are the collected records of `tests/unit/packs`. Afterwards a pilot runs on, on which everything succeeds, so that what is recovered recovers.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.live.run_site import RunSite
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot, end_of
from tests.unit.apps.server.store_room import store_room

from forestay.apps.compose import components as compose
from forestay.apps.compose.loops import run_loops, stop

TENANT = "lab"
OWNERS = ("ada", "bob", "cleo", "dan", "eve", "fay")
HOSTS = tuple(f"node{number:02}" for number in range(1, 13))
RECORDS = Path(__file__).parents[2] / "unit" / "packs"
JOBS = 3_000
STORM = 300
MINUTE = 60_000
HOUR = 60 * MINUTE
MOMENTS = (72, 60, 48, 36, 24, 20, 16, 12, 8, 5, 3, 1)
"""Hours before now at which jobs are submitted and end."""
SETTINGS: Mapping[str, Any] = {"approvals": "on", "storm_failures": 100}


class Kind(NamedTuple):
    """A kind of failure: a collected record, and how often and where it happens."""

    task: str
    records: str
    line: int
    many: int
    owners: Sequence[str] = OWNERS
    hosts: Sequence[str] = HOSTS
    attempts: int = 1
    """As many are tried; after the last one a person is waited for."""
    helps: bool = False
    """Another attempt goes well."""


KINDS = (
    Kind("segment", "unseen_code", 147, 96, OWNERS[:3], HOSTS[:7]),
    Kind("assemble", "unseen_code", 34, 24, ("ada", "eve")),
    Kind("predict", "unseen_code", 36, 14, ("fay",), HOSTS[8:10]),
    Kind("align", "unseen_code", 14, 40),
    Kind("load", "unseen_infra", 12, 60, attempts=3, helps=True),
    Kind("train", "unseen_code", 165, 8, ("fay",)),
    Kind("train", "unseen_code", 58, 22, ("fay", "dan"), HOSTS[11:]),
    Kind("report", "unseen_code", 19, 18, ("bob",)),
    Kind("assemble", "unseen_code", 33, 9, ("eve",)),
    Kind("pair", "unseen_code", 11, 12),
    Kind("trim", "unseen_code", 18, 4, ("cleo", "dan")),
    Kind("unpack", "unseen_code", 110, 16),
    Kind("simulate", "unseen_code", 90, 10, ("dan",)),
    Kind("plot", "unseen_infra", 85, 20, ("cleo",)),
    Kind("stage", "unseen_infra", 19, STORM, OWNERS[:4], attempts=3),
    Kind("solve", "unseen_infra", 102, 15, ("bob", "fay")),
    Kind("spawn", "unseen_infra", 25, 12, attempts=3, helps=True),
    Kind("couple", "unseen_code", 76, 37, ("dan", "eve"), HOSTS[2:7]),
    Kind("basecall", "unseen_code", 3, 6, ("cleo",)),
)
STORMY = next(kind for kind in KINDS if kind.many == STORM)
LARGEST = KINDS[0]
APPROVED = next(kind for kind in KINDS if kind.task == "trim")
REGRESSED = tuple(kind for kind in KINDS if kind.task in ("report", "unpack"))
GOOD_TASKS = ("qc", "align", "merge", "call", "annotate")


def facts(kind: Kind) -> dict[str, Any]:
    """How such an attempt ends, and what it printed."""
    record = json.loads((RECORDS / f"{kind.records}.jsonl").read_text(encoding="utf-8").splitlines()[kind.line])
    return {"exit_code": 1} | {name: record[name] for name in ("exit_code", "signal", "log_tail") if name in record}


@dataclass(eq=False)
class FilledSite(RunSite):
    """The site, and who can be asked."""

    clock: LaterClock = field(default_factory=LaterClock)
    seconds: float = 0.0
    """How long it took to fill, and of the processor."""
    cpu_seconds: float = 0.0
    kinds: dict[str, Kind] = field(default_factory=dict)
    """How each job fails that does, by its id."""

    def login(self) -> Any:
        return self.server.person("administrator", "operator", "rule-author", "approver", tenant=TENANT, subject="ann")

    async def new_pilot(self) -> ScriptedPilot:
        return await ScriptedPilot.register(self.server, TENANT, host=HOSTS[0], slots=64)

    async def work(self) -> None:
        """One pilot after the other claims and ends jobs, for ever; no token lasts longer."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(600):
                    await self.fly(await self.new_pilot())

    async def fingerprints(self, kind: Kind) -> dict[str, int]:
        """Those of the failures of a kind that wait for somebody, with how many there are."""
        found = (await self.login().get("/v1/incidents", params={"state": "held,waiting", "limit": 1000})).json()[
            "incidents"
        ]
        return Counter(incident["fingerprint"] for incident in found if self.kinds.get(incident["job"]) is kind)


@dataclass(eq=False)
class _Filling:
    site: FilledSite
    chance: random.Random = field(default_factory=lambda: random.Random(24))
    sizes: random.Random = field(default_factory=lambda: random.Random(25))
    made: int = 0
    run_yet: int = 0
    known: dict[Kind, dict[str, Any]] = field(default_factory=lambda: {kind: facts(kind) for kind in KINDS})

    async def submit(self, many: Mapping[Kind, int], good: int) -> None:
        """So many jobs of each kind, and so many that go well."""
        owned: dict[tuple[Kind | None, str, str], int] = {}
        for kind, count in many.items():
            for number in range(count):
                key: tuple[Kind | None, str, str] = (
                    kind,
                    kind.task,
                    kind.owners[(self.made + number) % len(kind.owners)],
                )
                owned[key] = owned.get(key, 0) + 1
        for number in range(good):
            key = (None, GOOD_TASKS[number % len(GOOD_TASKS)], OWNERS[number // len(GOOD_TASKS) % len(OWNERS)])
            owned[key] = owned.get(key, 0) + 1
        for (failing, task, owner), count in owned.items():
            person = self.site.server.person("submitter", tenant=TENANT, subject=owner)
            attempts = failing.attempts if failing else 1
            needs = {"wall": 7200, "cpus": 8 if failing is LARGEST else 2, "memory": 4 << 30}
            spec: dict[str, Any] = {
                "name": task,
                "max_attempts": attempts,
                "when_exhausted": "hold",
                "resources": needs,
            }
            jobs = await submit(person, *[{}] * count, **spec)
            self.made += count
            if failing is not None:
                self.site.kinds |= dict.fromkeys(jobs, failing)

    def end(self, claim: Mapping[str, Any]) -> dict[str, Any]:
        kind = self.site.kinds.get(claim["job"])
        used = {"peak_memory": self.sizes.randrange(1 << 29, 3 << 30), "cpu": self.sizes.uniform(60, 5000)}
        if kind is None or (kind.helps and claim["attempt"] > 1):
            return used | {"host": self.chance.choice(HOSTS), "wall": self.chance.uniform(60, 5000)}
        known = self.known[kind]
        number = self.chance.randrange(1000, 9999)
        log = f"{kind.task}: sample S{number}, {number * 7 % 60} chunks\n{known['log_tail']}"
        ended = {"outcome": "failure", "reason": "exit", "host": self.chance.choice(kind.hosts)}
        return used | known | ended | {"log_tail": log, "wall": self.chance.uniform(60, 5000)}

    async def run(self) -> None:
        """Everything that was submitted, and what else can be claimed, is claimed and ended."""
        (pilot,) = self.site.pilots
        while claims := await pilot.claim(most=32, wait=10 if self.run_yet < self.made else 0):
            self.run_yet += sum(claim["attempt"] == 1 for claim in claims)
            ends = [end_of(dict(claim), **self.end(claim)) for claim in claims]
            answer = await pilot.post("completions", {"completions": ends})
            assert answer.status_code == 200, answer.text

    async def tick(self, before_now: int) -> None:
        """Go to so many milliseconds before now, and run what was waited with until then; a pilot's token does not outlive the step."""
        for pilot in self.site.pilots:
            await pilot.bye()
        self.site.clock.ahead = -before_now
        self.site.pilots = [await self.site.new_pilot()]
        await self.run()


async def _rule(site: FilledSite) -> None:
    """Counts missing reports as done; which nobody, and no rule, may do alone."""
    ann = site.login()
    body = {
        "type": "abort",
        "condition": 'cause == "output-missing" && job.name == "trim"',
        "conclusion": {"steps": [{"action": "force-complete", "target": "job"}]},
        "reference_incident": "first",
        "context": {"cause": "output-missing", "job": {"name": "trim", "attempt": 1}},
        "description": "FastQC writes no report for empty lanes; they count as done.",
    }
    answer = await ann.post("/v1/rules/domain/site", json=body)
    assert answer.status_code == 200, answer.text
    rule = answer.json()["rule"]
    answer = await ann.post(f"/v1/rules/domain/site/rules/{rule}/state", json={"reason": "as agreed on Monday"})
    assert answer.status_code == 200, answer.text
    await site.server.services.components.pipeline.decider.rules.refresh()


async def fill(site: FilledSite) -> None:
    """Three days of a site; the storm was a few minutes ago."""
    began, worked = time.monotonic(), time.process_time()
    filling = _Filling(site)
    await _rule(site)
    usual = [kind for kind in KINDS if kind not in (STORMY, APPROVED)]
    good = JOBS - sum(kind.many for kind in KINDS)
    for moment, ago in enumerate(MOMENTS):
        await filling.tick(ago * HOUR)
        share = {kind: _part(kind.many, moment) for kind in usual}
        await filling.submit({kind: many for kind, many in share.items() if many}, _part(good, moment))
        await filling.run()
        if moment == len(MOMENTS) // 2:
            await _resolve(site)
    # A request lasts a day.
    await filling.submit({APPROVED: APPROVED.many}, 0)
    await filling.run()
    await _storm(site, filling)
    site.clock.ahead = 0
    site.seconds, site.cpu_seconds = time.monotonic() - began, time.process_time() - worked


async def _storm(site: FilledSite, filling: _Filling) -> None:
    """Nearly everything that is staged fails at once; so does the first one that is tried again, and the rest waits for somebody."""
    ago = 25 * MINUTE
    await filling.tick(ago)
    await filling.submit({STORMY: STORM}, 0)
    await filling.run()
    ann = site.login()

    async def tried() -> bool:
        nonlocal ago
        ago = max(2 * MINUTE, ago - MINUTE)
        site.clock.ahead = -ago
        await filling.run()
        groups = (await ann.get("/v1/safeguards")).json()["groups"]
        return any(canary["bad"] for group in groups for canary in group["tried"])

    await until(tried, "the storm's canary to fail")


def _part(many: int, moment: int) -> int:
    """Of so many those at this moment; together all."""
    return many * (moment + 1) // len(MOMENTS) - many * moment // len(MOMENTS)


async def _resolve(site: FilledSite) -> None:
    """Two errors are said to be fixed; they come again."""
    ann = site.login()
    for kind in REGRESSED:
        for fingerprint in await site.fingerprints(kind):
            body = {"act": "resolve", "reason": "fixed in release 4.2"}
            answer = await ann.post(f"/v1/errors/{fingerprint}/triage", json=body)
            assert answer.status_code == 200, answer.text


@asynccontextmanager
async def filled_site(folder: Path) -> AsyncIterator[FilledSite]:
    """A server with all this, and a reconciler and a pilot that run on."""
    clock = LaterClock(-MOMENTS[0] * HOUR)
    async with store_room("sqlite", folder) as url:
        domain = Domain(url, folder, dict(SETTINGS))
        with patch.object(compose, "SystemClock", lambda: clock):
            async with domain.server() as server, domain.reconciler() as reconciler:
                for parts in (server.services.components, reconciler.components):
                    # Days go by in seconds.
                    parts.safeguards.storms.every = parts.recovery.every = 0.5
                site = FilledSite(domain, server, "", reconciler=reconciler, clock=clock)
                described, server.hooks = server.hooks, {}
                names = ("exceptions", "canaries", "closing", "requests")
                wanted = {name: loop for name, loop in reconciler.loops().items() if name in names}
                loops = [asyncio.create_task(run_loops(wanted))]
                try:
                    await fill(site)
                    server.hooks = described
                    loops.append(asyncio.create_task(site.work()))
                    yield site
                finally:
                    for loop in loops:
                        await stop(loop)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def open_site() -> None:
    with tempfile.TemporaryDirectory(prefix="forestay-filled-") as folder:
        say(f"Filling a site with {JOBS:,} jobs; about half a minute.")
        async with filled_site(Path(folder)) as site:
            say(f"Filled in {site.seconds:.0f} s: {site.server.url}/inbox (tenant {TENANT}). End it with Ctrl-C.")
            while True:
                link = await site.login().post("/v1/logins")
                say(f"Open this once to sign in as ann, who may do everything: {link.json()['url']}")
                say("Press Enter for another link.")
                if not await asyncio.to_thread(sys.stdin.readline):
                    await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(open_site())
