"""Suspend and continue all running runs of one flow: how long until it holds, for every run, those included that start meanwhile.

Real server, orchestrator and reconciler processes on a real Temporal and a real store. First so many runs are started, each of which has a job that waits to be
claimed. Then simulated pilots ask every server for work without a pause, over the real protocol, and what they are given is noted with its time:
  suspend    from the request until the last job of these runs that anyone was given; then nobody is given any for a while, nor those of new runs
  continue   from the request until every server has given such a job away, and until a new run's job was given
Goal: at most 2 s each.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import uvloop

from bench.harness import Run, keep, leave, pressure
from bench.whole_site import TENANT, WholeSite, whole_site
from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token

FLOW = (
    "{forestay: 1, name: suspended, tasks: {first: {command: ['true']}, second: {command: ['true'], after: [first]}}}"
)
GOAL = 2.0
SILENCE = 4.0
"""Seconds that are waited for a job to escape."""
NEW = 20
"""Runs that start while all are suspended."""
PILOTS = 4
"""For each server."""
PACE = 0.1
"""Seconds that a pilot takes for what it was given: there must be work left in the end."""
STARTS = 32
"""Runs that are started at the same time."""


@dataclass(slots=True)
class Given:
    """A job that a pilot was given."""

    at: float
    server: str
    owner: str


@dataclass(slots=True)
class Watch:
    """Everything that was given away."""

    grants: list[Given] = field(default_factory=list)
    asked: dict[str, float] = field(default_factory=dict)
    """When each server last answered that it has nothing."""

    def since(self, at: float, **wanted: str) -> list[Given]:
        return [
            entry
            for entry in self.grants
            if entry.at >= at and all(getattr(entry, name) == value for name, value in wanted.items())
        ]


class Bar:
    """How far it is, on a terminal; elsewhere a line now and then."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.began = time.monotonic()
        self.said = 0.0

    def show(self, done: int) -> None:
        now = time.monotonic()
        live = sys.stderr.isatty()
        if now - self.said < (0.2 if live else 10.0) and done < self.total:
            return
        self.said = now
        rate = done / max(now - self.began, 1e-9)
        left = (self.total - done) / rate if rate else 0.0
        filled = 30 * done // max(self.total, 1)
        text = f"  {self.what} [{'#' * filled}{'.' * (30 - filled)}] {done} of {self.total}, {rate:.0f}/s, {left:.0f} s left"
        print(text, end="\r" if live and done < self.total else "\n", file=sys.stderr, flush=True)


def token(site: WholeSite, role: str, subject: str = "bench") -> dict[str, str]:
    made = make_token(Settings(state=site.folder), subject=subject, tenant=TENANT, roles=[role], seconds=86_400)
    return {"Authorization": f"Bearer {made}"}


async def post(site: WholeSite, url: str, body: object, headers: dict[str, str]) -> Any:
    async with site.session.post(url, json=body, headers=headers) as answer:
        if answer.status >= 300:
            raise SystemExit(f"{url}: {answer.status} {await answer.text()}")
        return await answer.json()


async def start_runs(site: WholeSite, version: str, count: int, owner: str) -> None:
    """Each with a key, so that a request whose answer was lost is sent again."""
    headers = token(site, "submitter", owner)
    bar = Bar("runs started", count)
    left = iter(range(count))
    done = 0

    async def some() -> None:
        nonlocal done
        for number in left:
            own = headers | {"Idempotency-Key": f"{owner}-{number}"}
            while True:
                try:
                    url = f"{site.urls[number % len(site.urls)]}/v1/runs"
                    async with site.session.post(url, json={"flow": version}, headers=own) as answer:
                        if answer.status == 201:
                            break
                        if answer.status < 500:
                            raise SystemExit(f"{url}: {answer.status} {await answer.text()}")
                except (aiohttp.ClientError, TimeoutError):
                    pass
                await asyncio.sleep(0.5)
            done += 1
            if count > NEW:
                bar.show(done)

    await asyncio.gather(*(some() for _ in range(min(STARTS, count))))


async def waiting(site: WholeSite, owner: str) -> int:
    """How many jobs of an owner wait to be claimed."""
    reply = await site.get(f"/v1/jobs/counts?by=state&owner={owner}", "viewer")
    return int(reply["counts"].get("available", 0))


async def until_waiting(site: WholeSite, owner: str, count: int) -> None:
    bar = Bar("jobs made", count)
    while (made := await waiting(site, owner)) < count:
        if count > NEW:
            bar.show(made)
        await asyncio.sleep(0.5)
    if count > NEW:
        bar.show(made)


async def pilot(site: WholeSite, url: str, watch: Watch) -> None:
    """Ask one server for one job after another, and end what it gives."""
    me = await post(site, f"{url}/v1/pilots", {"host": "bench", "slots": 1}, token(site, "enrol"))
    base = f"{url}/v1/pilots/{me['pilot']}"
    mine = {"Authorization": f"Bearer {me['token']}"}
    registered = time.monotonic()
    while True:
        if time.monotonic() - registered > me["token_seconds"] / 2:
            mine = {"Authorization": f"Bearer {(await post(site, f'{base}/token', {}, mine))['token']}"}
            registered = time.monotonic()
        asked = {"max": 1, "wait": 0.5, "resources": {"cpus": 1, "memory": 1 << 40}}
        claims = (await post(site, f"{base}/claims", asked, mine))["claims"]
        now = time.monotonic()
        watch.grants += [Given(now, url, claim["owner"]) for claim in claims]
        if not claims:
            watch.asked[url] = now
            continue
        await asyncio.sleep(PACE)
        facts = {"outcome": "ok", "exit_code": 0, "wall": PACE, "cpu": 0.0, "peak_memory": 1 << 20, "host": "bench"}
        ends = [{name: claim[name] for name in ("job", "generation", "attempt", "claim")} | facts for claim in claims]
        await post(site, f"{base}/completions", {"completions": ends}, mine)


async def one_round(site: WholeSite, version: str, watch: Watch, number: int) -> dict[str, float]:
    """Suspend, wait for what escapes, start new runs, continue."""
    operator = token(site, "operator")
    await _every_server_gives(site, watch, time.monotonic(), "bench", 60.0)
    began = time.monotonic()
    await post(site, f"{site.urls[0]}/v1/flows/{version}/suspend", {}, operator)
    answered = time.monotonic() - began
    newcomer = f"new-{number}"
    await start_runs(site, version, NEW, newcomer)
    await until_waiting(site, newcomer, NEW)
    await asyncio.sleep(max(0.0, began + GOAL - time.monotonic()) + SILENCE)
    givens = watch.since(began)
    suspended = max((entry.at - began for entry in givens), default=0.0)
    escaped = len(watch.since(began, owner=newcomer))
    left = await waiting(site, "bench")
    resumed = time.monotonic()
    await post(site, f"{site.urls[0]}/v1/flows/{version}/continue", {}, operator)
    continued = await _every_server_gives(site, watch, resumed, "bench", 60.0)
    newest = await _given(watch, resumed, newcomer, 60.0)
    return {
        "suspend answered": answered,
        "suspend": suspended,
        "given after suspend": float(len(givens)),
        "new cases' jobs that escaped": float(escaped),
        "jobs that waited": float(left),
        "continue": continued,
        "continue, new cases": newest,
    }


async def _every_server_gives(site: WholeSite, watch: Watch, since: float, owner: str, patience: float) -> float:
    """Seconds until each server has given away a job of an owner's."""
    while time.monotonic() - since < patience:
        firsts = [
            min((entry.at for entry in watch.since(since, server=url, owner=owner)), default=0.0) for url in site.urls
        ]
        if all(firsts):
            return max(firsts) - since
        await asyncio.sleep(0.01)
    return float("inf")


async def _given(watch: Watch, since: float, owner: str, patience: float) -> float:
    while time.monotonic() - since < patience:
        if givens := watch.since(since, owner=owner):
            return givens[0].at - since
        await asyncio.sleep(0.01)
    return float("inf")


async def run(args: argparse.Namespace) -> bool:
    async with whole_site(own=args.own, store=args.store, memory=True) as site:
        await site.start(servers=args.servers, orchestrators=args.orchestrators)
        version = (await site.post("/v1/flows", {"text": FLOW}))["version"]
        await start_runs(site, version, args.runs, "bench")
        await until_waiting(site, "bench", args.runs)
        watch = Watch()
        pilots = [asyncio.create_task(pilot(site, url, watch)) for url in site.urls for _ in range(PILOTS)]
        runs: list[Run] = []
        try:
            for number in range(args.rounds):
                before = site.cpu()
                started = time.monotonic()
                facts = await one_round(site, version, watch, number)
                cpu = {name: spent - before[name] for name, spent in site.cpu().items()}
                runs.append(Run(f"round {number}", 1, time.monotonic() - started, cpu, pressure(), 0.0, facts))
                print("  " + ", ".join(f"{name} {value:.2f}" for name, value in facts.items()), file=sys.stderr)
                broken = [pilot for pilot in pilots if pilot.done()]
                if broken:
                    broken[0].result()
        finally:
            for task in pilots:
                task.cancel()
            await asyncio.gather(*pilots, return_exceptions=True)
    worst = {name: max(run.facts[name] for run in runs) for name in runs[0].facts}
    good = max(worst["suspend"], worst["continue"], worst["continue, new cases"]) <= GOAL
    good &= worst["new cases' jobs that escaped"] == 0
    path = keep("suspensions", runs, {"runs": args.runs, "store": args.store, "servers": args.servers, "worst": worst})
    print(f"raw runs in {path}", file=sys.stderr)
    print(
        f"suspensions: {args.runs} runs on {args.store}, {args.servers} servers, the slowest of {args.rounds}: suspended in"
        f" {worst['suspend']:.2f} s, continued in {worst['continue']:.2f} s, new runs in {worst['continue, new cases']:.2f} s,"
        f" {worst['new runs' + chr(39) + ' jobs that escaped']:.0f} escaped (goal ≤ {GOAL:.0f} s, 0): {'reached' if good else 'not reached'}"
    )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--orchestrators", type=int, default=1)
    parser.add_argument("--store", choices=["postgres", "sqlite", "opensearch"], default="postgres")
    parser.add_argument("--own", action="store_true", help="with servers of its own, not those of the environment")
    leave(reached=uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
