"""What a run does besides running jobs: each part of it alone, so that every kill meets that part.

Each part is a flow or two, what people and other systems do meanwhile, and how its jobs end: by what they are, never by when they run. A person asks again when no
answer came, as the command line does; what they do must therefore count once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from tests.system.chaos.runs.campaign import Stage
from tests.system.chaos.runs.end_state import Trial
from tests.system.chaos.runs.flows import ended_with
from tests.system.chaos.runs.pilot import AGAIN, Facts, persist
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.scripted_pilot import own_manifest

STREAM = """
forestay: 1
name: stream
tasks:
  a: {command: [do], scatter: {n: {range: [0, 30]}}, outputs: {out: out.txt}}
  b: {command: [do, "${x}"], scatter: {x: "${tasks.a.outputs.out}"}, outputs: {out: out.txt}}
  c: {command: [do, "${x}"], scatter: {x: "${tasks.b.outputs.out}"}, outputs: {out: out.txt}}
  all: {command: [do], after: [c]}
outputs: {well: "${tasks.c.well}"}
"""
"""More elements than a run looks after itself in the campaign, so that shards report to each other."""
QUESTION = """
forestay: 1
name: question
params: {share: 0}
tasks:
  measure: {command: [do]}
  check:
    after: measure
    ask: {title: "Good?", form: {properties: {good: {type: boolean}}, required: [good]}}
  confirm:
    after: check
    ask: {title: "Sure?", form: {properties: {go: {type: boolean}}}, default: {go: false}}
    deadline: 1 s
  publish: {command: [do], after: [confirm], when: tasks.check.outputs.good}
outputs: {good: "${tasks.check.outputs.good}", by: "${tasks.check.result.by}", go: "${tasks.confirm.outputs.go}"}
"""
EVENTS = """
forestay: 1
name: events
params: {key: none}
tasks:
  early: {wait_for: {event: detector-ready, key: "early-${params.key}"}}
  read: {command: [do, "${tasks.early.outputs.file}"]}
  late: {after: read, wait_for: {event: detector-ready, key: "late-${params.key}"}}
  end: {command: [do, "${tasks.late.outputs.file}"]}
outputs: {by: "${tasks.early.result.by}", late: "${tasks.late.outputs.part}"}
"""
SCHEDULED = """
forestay: 1
name: scheduled
params: {day: none}
tasks: {work: {command: [do, "${params.day}"]}}
"""
REUSED = """
forestay: 1
name: reused
reuse: true
params: {key: none, last: 0}
tasks:
  each: {command: [do, "${params.key}", "${x}"], scatter: {x: [1, 2, 3, 4, "${params.last}"]}}
  other: {command: [do, "${params.key}"]}
"""
LIBRARY = """
forestay: 1
name: library
tasks:
  request: {command: [do], action: reserve}
  approve: {command: [do], after: [request]}
  fails: {command: [do], after: [approve]}
"""
LOST = """
forestay: 1
name: lost
tasks:
  a: {command: [do], outputs: {out: out.txt}}
  b: {command: [do], inputs: {x: "${tasks.a.outputs.out}"}, outputs: {out: out.txt}}
"""
SOON = timedelta(seconds=6)
"""So far ahead is the moment of a schedule: putting it may be interrupted."""


def well(claim: Mapping[str, Any]) -> dict[str, Any]:
    facts = ended_with(0)
    return facts | ({"manifest": own_manifest(dict(claim))} if claim["specification"]["outputs"] else {})


@dataclass
class Part:
    """One of them."""

    async def carry_out(self, stage: Stage) -> Trial:
        raise NotImplementedError

    def facts(self) -> Facts:
        return well


@dataclass
class Streaming(Part):
    """Three scatters that follow one another element by element; one line fails at its start, and the run is resumed."""

    resumed: bool = False

    def facts(self) -> Facts:
        self.resumed = False
        return lambda claim: (
            ended_with(1)
            if claim["name"] == "a" and claim["index"] == 13 and not self.resumed
            else well(claim)
        )  # fmt: skip

    async def carry_out(self, stage: Stage) -> Trial:
        run = await stage.start(STREAM, "stream")
        await stage.ended(run)
        self.resumed = True
        await _accepted(stage.person, f"/v1/runs/{run}/resume", {}, unless=lambda: _goes_on(stage, run))
        await stage.ended(run)
        return stage.trial({"stream": run})


@dataclass
class Grown(Part):
    """A Python flow whose scatter fails in part; its run is resumed, and its function finds again what had been done."""

    resumed: bool = False

    def facts(self) -> Facts:
        self.resumed = False
        return lambda claim: ended_with(int(claim["name"] == "many" and claim["index"] == 2 and not self.resumed))

    async def carry_out(self, stage: Stage) -> Trial:
        run = await stage.start_named("grown", key=stage.key)
        await stage.ended(run)
        self.resumed = True
        await _accepted(stage.person, f"/v1/runs/{run}/resume", {}, unless=lambda: _goes_on(stage, run))
        await stage.ended(run)
        return stage.trial({"grown": run})


@dataclass
class Question(Part):
    """A question that a person answers, and one that nobody does."""

    async def carry_out(self, stage: Stage) -> Trial:
        run = await stage.start(QUESTION, "question")
        name = await _found(lambda: _question(stage, run))
        place = f"/v1/questions/{name}"

        async def answered() -> bool:
            return bool((await persist(stage.person, "GET", place))["answered_by"] == "ada")

        await _accepted(stage.person, place, {"answer": {"good": True}}, unless=answered)
        await stage.ended(run)
        return stage.trial({"question": run})


@dataclass
class Events(Part):
    """An event that comes before the run waits for it, and one that comes while it does."""

    async def carry_out(self, stage: Stage) -> Trial:
        await _send(stage, "early")
        run = await stage.start(EVENTS, "events", key=stage.key)

        async def awaiting() -> bool:
            tasks = (await persist(stage.person, "GET", f"/v1/runs/{run}"))["tasks"]
            return any(task["id"] == "late" and task["state"] == "awaiting" for task in tasks)

        await _found(awaiting)
        await _send(stage, "late")
        await stage.ended(run)
        return stage.trial({"events": run})


@dataclass
class Schedule(Part):
    """One moment at which a run is to be started, once."""

    tried: int = 0

    async def carry_out(self, stage: Stage) -> Trial:
        version = (await persist(stage.person, "POST", "/v1/flows", json={"text": SCHEDULED}))["version"]
        while True:
            self.tried += 1
            name = f"once-{self.tried}-{stage.key}"[:60]
            at = datetime.now(UTC) + SOON
            cron = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} * {at.year}"
            body = {"flow": version, "cron": [cron], "params": {"day": "today"}, "overlap": "allow", "catch_up": 3600}
            await persist(stage.person, "PUT", f"/v1/schedules/{name}", json=body)
            if datetime.now(UTC) < at - timedelta(seconds=1):
                break

        async def started() -> list[str]:
            runs = (await persist(stage.person, "GET", "/v1/runs"))["runs"]
            return [run["id"] for run in runs if run["schedule"] == name]

        await _found(started)
        await asyncio.sleep(1.0)  # a second start would come here
        runs = await started()
        for run in runs:
            await stage.ended(run)
        await persist(stage.person, "DELETE", f"/v1/schedules/{name}")
        return stage.trial({f"scheduled {place}": run for place, run in enumerate(runs)})


@dataclass
class Reuse(Part):
    """A run, and the same with one value changed: what is the same is not run again."""

    async def carry_out(self, stage: Stage) -> Trial:
        runs = {}
        for place, last in (("first", 5), ("second", 6)):
            runs[place] = await stage.start(REUSED, place, key=stage.key, last=last)
            await stage.ended(runs[place])
        return stage.trial(runs)


@dataclass
class Library(Part):
    """A run that fails and is undone by what the library had when its tasks completed; it is changed meanwhile."""

    def facts(self) -> Facts:
        return lambda claim: ended_with(int(claim["name"] == "fails"))

    async def carry_out(self, stage: Stage) -> Trial:
        token = stage.site.token("operator", "rule-author")
        async with http_client(stage.site.url, token, timeout=20) as author:
            for action in ("reserve", "library:approve"):
                await _register(author, action, action)
            run = await stage.start(LIBRARY, "library")
            await stage.ended(run)
            await _register(author, "reserve", f"changed {stage.key}")
        return stage.trial({"library": run}, ["library:approve", "reserve"])


@dataclass
class Remake(Part):
    """An output that is lost after its commit: its producer is run again for the job that needs it."""

    first: dict[str, str] = field(default_factory=dict)

    def facts(self) -> Facts:
        self.first = {}

        def facts(claim: Mapping[str, Any]) -> dict[str, Any]:
            if claim["name"] == "a":
                self.first.setdefault("a", claim["job"])
            elif claim["inputs"][0].get("file", "").startswith(f"job:{self.first['a']}/"):
                lost = {"reason": "data-missing", "exit_code": None, "stage": "staging-in", "file": "x"}
                return lost | {"outcome": "failure", "error": "ENOENT"}
            return well(claim)

        return facts

    async def carry_out(self, stage: Stage) -> Trial:
        run = await stage.start(LOST, "lost")
        await stage.ended(run)
        return stage.trial({"lost": run}, ends={"b": 2})


PARTS: Mapping[str, Callable[[], Part]] = {
    "streaming": Streaming,
    "grown": Grown,
    "question": Question,
    "events": Events,
    "schedule": Schedule,
    "reuse": Reuse,
    "library": Library,
    "remake": Remake,
}


async def _found(look: Callable[[], Awaitable[Any]]) -> Any:
    """Look until there is something; the trial has a limit for all of it."""
    while True:
        if found := await look():
            return found
        await asyncio.sleep(AGAIN)


async def _accepted(
    person: httpx.AsyncClient, path: str, body: object, *, unless: Callable[[], Awaitable[bool]]
) -> None:
    """Ask until it is accepted, or until it shows that it had been: the answer to an earlier request was lost."""
    while True:
        try:
            answer = await person.post(path, json=body)
            if answer.is_success or (answer.status_code == 409 and await unless()):
                return
            assert answer.status_code >= 500 or answer.status_code == 409, answer.text
        except httpx.HTTPError:
            pass
        await asyncio.sleep(AGAIN)


async def _goes_on(stage: Stage, run: str) -> bool:
    return bool((await persist(stage.person, "GET", f"/v1/runs/{run}"))["state"] != "failed")


async def _question(stage: Stage, run: str) -> str:
    questions: Sequence[dict[str, Any]] = (await persist(stage.person, "GET", "/v1/questions"))["questions"]
    return next((each["id"] for each in questions if each["run"] == run and each["task"] == "check"), "")


async def _send(stage: Stage, when: str) -> None:
    data = {"file": f"{when}.raw", "part": when}
    body = {"event": "detector-ready", "key": f"{when}-{stage.key}", "id": f"{when}-{stage.key}", "data": data}
    await persist(stage.person, "POST", "/v1/external-events", json=body)


async def _register(author: httpx.AsyncClient, action: str, undo: str) -> None:
    text = f'{{"action": "{action}", "command": ["undo", "{undo}"], "tries": 1}}'
    await persist(author, "PUT", f"/v1/compensations/{action}", json={"text": text})
