"""Seeded failures and exceptions of all ten types, driven through a domain: with rules, limits, storms, a stop, approvals, repeats and lost acknowledgements."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.contract.examples import job
from tests.system.pipeline.recording import Recorder
from tests.system.pipeline.world import TENANTS, World, new_world

from forestay.domain.exceptions.evidence.redaction import redacted
from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, ExceptionType
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, FlowRef, JobDocument, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, WhenExhausted
from forestay.ports.jobs.job_store import DocumentChange, Record, Stored, Written
from forestay.services.exceptions.exception_event import ExceptionEvent

ATTEMPTS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "unit" / "packs" / "unseen_code.jsonl").read_text().splitlines()
]
BATCH = 100
OWNERS = ("ada", "ben", "cleo", "dan")
TASKS = ("align", "call", "merge")
GIB = 1 << 30
LIMITS: Mapping[str, Any] = {
    "safeguard_acts": 400,
    "safeguard_owner_acts": 150,
    "safeguard_rule_acts": 120,
    "safeguard_tenant_hours": 3_000,
    "safeguard_by_rule": 2,
    "storm_failures": 40,
    "on_constraint_violation": "hold",
    "on_timeout": "fail",
    "on_resource_unavailable": "retry",
    "unanswered": {
        "time": "retry",
        "bad-input": "dispatch",
        "transfer": "dispatch",
        "output-missing": "rollback",
        "policy": "hold",
        "data-corrupt": "fail",
    },
}
ABORT = ExceptionType.ABORT
KNOWN: Mapping[str, Any] = {"confidence": 0.9, "job": {"attempt": 1, "memory": GIB}}
FIRST_RULES: Sequence[tuple[str, Sequence[Mapping[str, object]], Mapping[str, Any]]] = (
    ('cause == "memory"', [{"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 2, "at_most": 8 * GIB}}}], {"cause": "memory"}),
    ('cause == "node"', [{"action": "avoid-host"}, {"action": "resubmit"}], {"cause": "node"}),
    ('cause == "data-missing"', [{"action": "force-fail"}], {"cause": "data-missing"}),
    ('cause == "network" && job.attempt < 3', [{"action": "retry"}], {"cause": "network"}),
    ('cause == "disk"', [{"action": "hold", "target": "job", "reason": "someone should look"}], {"cause": "disk"}),
)  # fmt: skip
LATER_RULES: Sequence[tuple[str, Sequence[Mapping[str, object]], Mapping[str, Any]]] = (
    ('cause == "code"', [{"action": "force-complete"}], {"cause": "code"}),
    ('cause == "disk" && job.attempt == 1', [{"action": "resubmit"}], {"cause": "disk"}),
    ('cause == "unknown"', [{"action": "notify", "to": ["owner"], "text": "look"}, {"action": "retry"}], {"cause": "unknown"}),
)  # fmt: skip


def failure(chance: random.Random, number: int, now: int) -> tuple[JobDocument, str]:
    """A faulted job, and what its last attempt printed."""
    seen = chance.choice(ATTEMPTS)
    name, host, attempt = f"job-{number:05}", f"n{chance.randrange(12)}", chance.choice((1, 1, 1, 2, 3))
    lost = chance.random() < 0.05
    result = AttemptResult(
        Token(0, attempt),
        f"{chance.getrandbits(64):016x}",
        AttemptOutcome.FAILURE,
        exit_code=seen.get("exit_code", 1),
        signal=seen.get("signal"),
        wall=round(chance.uniform(1, 4000), 1),
        peak_memory=chance.randrange(GIB),
        host=host,
        stage=chance.choice((None, "staging-in", "executing", "staging-out")),
        error=chance.choice((None, None, None, "ENOSPC", "ENOENT")),
        file=chance.choice((None, None, "reads.fq")),
    )
    flow_ref = None
    if chance.random() < 0.4:
        task = chance.choice(TASKS)
        flow_ref = FlowRef(f"run-{chance.randrange(40)}", f"{task}@1", "f" * 64, -1, number, 0)
    retry = RetryPolicy(
        max_attempts=chance.choice((1, 2, 3, 5)),
        when_exhausted=chance.choice((WhenExhausted.FAIL, WhenExhausted.HOLD)),
    )
    document = job(
        name,
        tenant=chance.choice(TENANTS),
        owner=chance.choice(OWNERS),
        state=State.FAULTED,
        attempt=attempt,
        failures=attempt,
        releases=3 if lost else 0,
        last=None if lost else result,
        retry=retry,
        resources=Resources(cpus=chance.choice((1, 4)), memory=chance.choice((GIB, 4 * GIB)), wall=3600),
        flow_ref=flow_ref,
        changed=now,
        not_before=now,
    )
    return document, "" if lost else str(seen.get("log_tail", ""))


def events(chance: random.Random, number: int, now: int) -> Iterator[ExceptionEvent]:
    """Exceptions of all ten types, some of them of another engine."""
    for kind in sorted(EXCEPTIONS):
        foreign = kind is ABORT or chance.random() < 0.2
        data = {"grams": chance.randrange(20), "sample": f"s{number}"}
        yield ExceptionEvent(
            kind,
            chance.choice(TENANTS),
            chance.choice(OWNERS),
            f"event-{number}",
            now,
            engine="airflow" if foreign else "forestay",
            run=f"run-{chance.randrange(40)}",
            instance="" if kind.of_run else chance.choice(TASKS),
            job="" if kind.of_run or foreign or chance.random() < 0.5 else f"job-{chance.randrange(max(1, number)):05}",
            attempt=1,
            flow_name="nightly",
            cause=chance.choice(("memory", "network", "unknown")) if kind is ABORT else "unknown",
            context={"run": {"data": data}} if kind.of_run else {"run": {"data": data}, "task": {"data": data}},
        )


async def _first_rules(world: World) -> None:
    for tenant in TENANTS:
        for condition, steps, true in FIRST_RULES:
            await world.add_rule(tenant, ABORT, "", condition, steps, {**KNOWN, **true})
        await world.add_rule(
            tenant, ABORT, "", 'cause == "unknown" && job.attempt > 2', [{"action": "force-fail"}],
            {"cause": "unknown", "confidence": 0.9, "job": {"attempt": 3}}, active=False,
        )  # fmt: skip
        for kind in sorted(EXCEPTIONS - {ABORT, ExceptionType.RUN_POST}):
            group = "run" if kind.of_run else "task"
            reason = f"heavy at {kind}"
            step: Mapping[str, object] = {"action": "hold", "target": group, "reason": reason}
            if kind is ExceptionType.TASK_POST:  # the task is complete: only what is around it can be steered
                step = {"action": "hold", "target": "run", "reason": reason}
            await world.add_rule(tenant, kind, "", f"{group}.data.grams > 10", [step], {group: {"data": {"grams": 12}}})

        await world.add_rule(
            tenant, ExceptionType.RUN_EXTERNAL, "", 'run.data["other"] == "x"', [{"action": "hold", "target": "run", "reason": "x"}],
            {"run": {"data": {"other": "x", "grams": 1}}},
        )  # fmt: skip


async def _later_rules(world: World) -> None:
    for tenant in TENANTS:
        for condition, steps, true in LATER_RULES:
            await world.add_rule(tenant, ABORT, "", condition, steps, {**KNOWN, **true})


async def _put(world: World, made: Sequence[tuple[JobDocument, str]]) -> Sequence[tuple[Stored, str]]:
    """Failed jobs, each with what its attempt printed, as a server keeps them when their completion is sent."""
    store = world.components.store
    evidence = [
        Record(
            f"{document.id}:evidence", document.tenant, "evidence", document.id, document.changed,
            {"ending": {"claim": document.last.claim}, "log_tail": redacted(printed)},
        )
        for document, printed in made if document.last is not None
    ]  # fmt: skip
    await store.add_records(evidence)
    results = await store.write([DocumentChange(document, None) for document, _ in made])
    assert all(isinstance(result, Written) for result in results)
    found = await store.get([document.id for document, _ in made])
    return [(found[document.id], printed) for document, printed in made]


async def run_campaign(folder: Path, *, failures: int, seed: int, engine: bool) -> tuple[Recorder, World]:
    """Drive so many failures through a new domain, and as many exceptions in proportion; what was written, by subject."""
    chance, recorder = random.Random(seed), Recorder()
    async with new_world(folder, recorder, engine=engine, **LIMITS) as world:
        await _first_rules(world)
        await world.refresh_rules()
        recorder.lines.clear()  # rules were written as rules are; the net is about what they answer
        batches = -(-failures // BATCH)
        for batch in range(batches):
            now = world.clock.now()
            numbers = range(batch * BATCH, min(failures, (batch + 1) * BATCH))
            made = [failure(chance, number, now) for number in numbers]
            recorder.lose_one_in = 0
            known = await _put(world, made)
            recorder.lose_one_in = 300
            await world.handle(known)
            if chance.random() < 0.2:
                await world.handle(known[:20])  # another server has taken the same ends
            some = [event for number in numbers[:5] for event in events(chance, number, now)]
            await world.answer(some)
            if chance.random() < 0.2:
                await world.answer(some[:10])
            world.clock.milliseconds += 20_000
            await world.look()
            recorder.lose_one_in = 0
            await _people(world, chance, batch, batches)
        for _ in range(5):
            world.clock.milliseconds += 3_600_000
            await world.look()
        return recorder, world


async def _people(world: World, chance: random.Random, batch: int, batches: int) -> None:
    """What people do meanwhile."""
    stops = world.components.stops
    if batch == batches // 5:
        await stops.stop("lab", by="zoe", why="a drill")
    elif batch == batches // 4:
        await stops.go("lab")
    elif batch == batches // 2:
        await _later_rules(world)
        await world.refresh_rules()
    if batch % 3 == 2:
        await world.approve(chance)
    if batch % 10 == 9:
        await world.let_storms_go()
        world.clock.milliseconds += 600_000
