"""Replay: how long it takes to run a rule set in CEL over so many recorded incidents, and how long it holds the server's loop up at a time.

    just bench replay
    just bench replay --incidents 100000 --store postgres --rules 300

The incidents are those of jobs that fail one to three times, each with its evidence, 30 lines of log, its decision and its job's document, as the failure handler writes them. The rules: most name a
cause and a value, one in five looks through the log, which only CEL can answer, and a few are asked on every incident. What is measured is the service as the server runs it, reading from the store.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from bench.harness import keep, leave
from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.sql.document_store import SqlDocumentStore
from forestay.adapters.sql.incident_store import SqlIncidentStore
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import AttemptStage, Evidence
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    DEFAULT_POLICY,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    status_of,
)
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel, RuleSetVersion, TreeKey, diff, with_tree
from forestay.domain.rules.rule_tree import ROOT, Conclusion, Rule, RuleState, RuleTree
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.exceptions.detect.failure_detector import failure_incident
from forestay.services.flows.flow_store import FlowStore
from forestay.services.rules.rule_replay import Replayed, ReplayRequest, RuleReplay
from forestay.services.rules.rule_store import DOMAIN, RuleCache, RuleStore

GOAL = 60.0
"""Seconds for so many incidents."""
WHOLE, GROUPED = 100_000, 1_000_000
"""With rules that read the log, and so are evaluated on nearly every incident; and with rules that do not."""
HELD_UP = 10.0
"""Milliseconds of its own CPU for which the loop may be held up at a time."""
TENANT = "bench"
SITE_SET = RuleSetId(TENANT, RuleSetLevel.DOMAIN, DOMAIN)
CAUSES = [Cause.MEMORY, Cause.NODE, Cause.TIME, Cause.DISK, Cause.CODE, Cause.TRANSFER, Cause.NETWORK, Cause.UNKNOWN]
STEPS = (
    ({"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 2.0}}},),
    ({"action": "retry"},),
    ({"action": "hold"},),
    ({"action": "avoid-host"}, {"action": "resubmit"}),
)
DAY = 86_400_000


def made_rules(count: int, chance: random.Random, *, logs: bool = True) -> RuleSet:
    """So many rules, each an alternative to the one before. Without `logs` they compare fields only, as rules on causes, tasks and hosts do."""
    rules = {ROOT: Rule(ROOT, "true", state=RuleState.ACTIVE)}
    last = ROOT
    for number in range(count):
        cause = chance.choice(CAUSES).value
        kind = number % 10
        if kind < 6:
            text = f'cause == "{cause}" && job.name == "task-{number}" && job.attempt < 3'
        elif kind < 8 and logs:
            text = f'cause == "{cause}" && evidence.log_tail.exists(line, line.contains("error {number}"))'
        elif kind < 9:
            text = f'host.name == "node{number}" && evidence.exit_code != null && evidence.exit_code == {number % 200}'
        elif not logs:
            text = f'cause == "{cause}" && job.attempt > {number % 3} && job.owner == "owner{number % 40}"'
        else:
            text = f"job.attempt > {number % 3} && evidence.log_tail.exists(line, line.contains('never {number}'))"
            if number > 50:
                text = f'pattern == "p{number}" && confidence > 0.5'
        name = f"r{number}"
        rules[name] = Rule(name, text, Conclusion(steps=STEPS[number % 4]), RuleState.ACTIVE, parent=last)
        above = rules[last]
        rules[last] = replace(above, true_child=name) if last == ROOT else replace(above, false_child=name)
        last = name
    return with_tree(RuleSet(SITE_SET), TreeKey(ExceptionType.ABORT, "*"), RuleTree(MappingProxyType(rules)))


def job_story(number: int, now: int, chance: random.Random) -> tuple[JobDocument, list[tuple[Incident, Decision]]]:
    """A job that failed once to three times, and its incidents."""
    name, failures = f"job-{number:07}", chance.choice((1, 1, 1, 2, 3))
    spec = Specification(id="bench-spec", tenant=TENANT, name=f"task-{number % 400}", command=("true",))
    submission = Submission(spec, owner=f"owner{number % 20}", parameters={"sample": name})
    at = now - chance.randrange(30 * DAY)
    document = new_job(submission, job=name, now=at, by="owner")
    document = document.having(retry=RetryPolicy(max_attempts=4), resources=Resources(cpus=4, memory=1 << 32))
    cause = chance.choice(CAUSES)
    results: list[tuple[Incident, Decision]] = []
    for attempt in range(1, failures + 1):
        host = f"node{chance.randrange(300)}"
        last = AttemptResult(
            Token(0, attempt), f"claim-{number}-{attempt}", AttemptOutcome.FAILURE, exit_code=137, wall=600.0, host=host
        )
        document = document.having(state=State.FAULTED, attempt=attempt, failures=attempt, last=last)
        lines = tuple(
            f"2026-05-01 10:00:{place:02} step {place} of {name}: reading block {place * 7}" for place in range(29)
        )
        evidence = Evidence(
            exit_code=137, log_tail=(*lines, f"error {chance.randrange(300)}"), peak_memory=1 << 31, wall_time=600.0,
            node=host, stage=AttemptStage.EXECUTING, more={"reason": "exit"},
        )  # fmt: skip
        finding = CauseFinding(
            cause, 0.9, RetryNeed.SAME, pattern=f"p{chance.randrange(300)}", words="It failed.", advice="Look."
        )
        incident = failure_incident(document, evidence, finding, at + attempt * 700_000)
        detail = {"words": f"attempt {attempt + 1} of 4", "wait": 0, "charged": True}
        results.append(
            (incident, Decision(incident.id, 1, TENANT, incident.at, "retry", DEFAULT_POLICY, detail=detail))
        )
    if chance.random() < 0.7:
        won = AttemptResult(
            Token(0, failures + 1), f"claim-{number}-won", AttemptOutcome.OK, exit_code=0, wall=900.0, host="node1"
        )
        document = document.having(state=State.COMPLETED, attempt=failures + 1, winner=won, last=won)
    else:
        document = document.having(state=State.FAILED)
    return document, results


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[SqlJobStore]:
    """An empty store."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            store = SqlJobStore(f"sqlite:///{Path(folder)}/jobs.db")
            await store.open()
            yield store
            await store.close()
        return
    import os

    from sqlalchemy import make_url, text
    from sqlalchemy.ext.asyncio import create_async_engine

    url, schema = make_url(os.environ["FORESTAY_TEST_POSTGRES"]), f"bench_{uuid4().hex}"
    store = SqlJobStore(url.render_as_string(hide_password=False), schema=schema)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
        engine = create_async_engine(url.set(drivername="postgresql+asyncpg"))
        async with engine.begin() as connection:
            await connection.execute(text(f"DROP SCHEMA IF EXISTS {schema} CASCADE"))
        await engine.dispose()


async def fill(store: SqlJobStore, incidents: SqlIncidentStore, count: int) -> None:
    chance, now, made = random.Random(7), SystemClock().now(), 0
    number = 0
    while made < count:
        jobs: list[DocumentChange] = []
        results: list[tuple[Incident, Decision]] = []
        while len(jobs) < 500 and made < count:
            document, some = job_story(number, now, chance)
            some = some[: count - made]
            jobs.append(DocumentChange(document, None))
            results += some
            made += len(some)
            number += 1
        await store.write(jobs)
        await incidents.add_incidents([(incident, _stands(incident)) for incident, _ in results])
        await incidents.add_decisions([decision for _, decision in results])


def _stands(incident: Incident) -> IncidentStatus:
    return replace(status_of(incident), state=IncidentState.COMPLETE, due=None, n=1)


async def _longest_gap(gaps: list[float]) -> None:
    """In CPU time of the loop's own thread: what other processes take from it is no pause of ours."""
    last = time.thread_time()
    while True:
        await asyncio.sleep(0.0005)
        now = time.thread_time()
        gaps.append(now - last)
        last = now


async def measured(kind: str, count: int, rules: int, *, logs: bool) -> dict[str, float]:
    async with opened(kind) as store:
        incidents, clock = SqlIncidentStore(store.database), SystemClock()
        since = time.perf_counter()
        await fill(store, incidents, count)
        filled = time.perf_counter() - since
        documents, conditions = SqlDocumentStore(store.database), CelConditions()
        kept = RuleStore(documents)
        scenario = made_rules(rules, random.Random(3), logs=logs)
        await kept.store(RuleSetVersion(SITE_SET, 1, diff(RuleSet(SITE_SET), scenario), "bench", 0))
        cache, sandbox = RuleCache(RuleStore(documents), conditions), CelSandbox()
        service = RuleReplay(incidents, store, FlowStore(store, clock), kept, cache, conditions, sandbox, clock)
        gaps: list[float] = []
        watch = asyncio.create_task(_longest_gap(gaps))
        whole = 0.0
        if not logs:
            # The same without groups, in one run, so that both have the same machine.
            cpu = time.process_time()
            await service.replay(ReplayRequest(SITE_SET, most=count, grouped=False))
            whole = time.process_time() - cpu
        before, cpu = time.perf_counter(), time.process_time()
        done = await service.replay(ReplayRequest(SITE_SET, most=count))
        seconds, used = time.perf_counter() - before, time.process_time() - cpu
        watch.cancel()
        await sandbox.close()
        assert isinstance(done, Replayed), done
        report = done.report
        assert report.incidents == count, (report.incidents, count)
        gaps.sort()
        return {
            "incidents": count,
            "rules": rules,
            "seconds": seconds,
            "cpu": used,
            "cpu_without_groups": whole,
            "micros_each": used / count * 1e6,
            "gap_p99_ms": gaps[len(gaps) * 99 // 100] * 1000,
            "gap_max_ms": gaps[-1] * 1000,
            "filled": filled,
            "evaluated": done.evaluated,
            "by_rule": report.by_rule,
            "differs": report.differs,
            "wrong": report.wrongs,
            "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--incidents", type=int, default=100_000)
    parser.add_argument("--rules", type=int, default=300)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument(
        "--without-logs", action="store_true", help="no rule reads the log, so incidents fall into groups"
    )
    asked = parser.parse_args()
    facts = asyncio.run(measured(asked.store, asked.incidents, asked.rules, logs=not asked.without_logs))
    goal = GOAL * max(1.0, asked.incidents / (GROUPED if asked.without_logs else WHOLE))
    reached = facts["seconds"] <= goal
    print(
        f"{asked.incidents:,} incidents, {asked.rules} rules, {asked.store}: {facts['seconds']:.1f} s"
        f" ({facts['cpu']:.1f} s of CPU, {facts['micros_each']:.0f} µs each), rules evaluated on {facts['evaluated']:,}, {facts['by_rule']:,} by a rule, {facts['differs']:,} differ,"
        f" {facts['wrong']:,} wrong; the loop was held up for {facts['gap_p99_ms']:.1f} ms in one of a hundred turns, {facts['gap_max_ms']:.1f} ms at most;"
        f" {facts['memory_mib']:.0f} MiB"
        + (f"; without groups {facts['cpu_without_groups']:.1f} s of CPU" if facts["cpu_without_groups"] else "")
    )
    print(
        f"≤ {goal:g} s: {'reached' if reached else 'not reached'}; ≤ {HELD_UP:g} ms: {'reached' if facts['gap_max_ms'] <= HELD_UP else 'not reached'}"
    )
    print(f"raw figures in {keep(f'replay_{asked.store}', [], facts)}", file=sys.stderr)
    leave(reached=reached)


if __name__ == "__main__":
    main()
