"""Jobs, pilots and records to be stored."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

from forestay.domain.jobs.job_document import (
    AttemptOutcome,
    AttemptResult,
    Claim,
    Delivery,
    FlowRef,
    JobDocument,
    JobPhase,
    State,
    Token,
)
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy, Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.domain.pilots.pilot import Pilot
from forestay.ports.jobs.job_store import Record

NOW = 1_700_000_000_000
ODD_TEXTS = (
    "plain",
    "null\0 character",
    "quotes ' \" ` and \\ backslash \\u0000",
    "Zürich 東京 🧬 é é",
    "line\nfeed\ttab\r\x1f\x7f\u2028",
    "private \ue000 use \ue0000",
    "% _ * ? { } $1 :name ;--",
)


def specification(tenant: str = "alpha", name: str = "align") -> Specification:
    return Specification(id=f"{tenant}-{name}", tenant=tenant, name=name, command=("align", "{sample}"))


def job(identifier: str = "job-1", *, tenant: str = "alpha", owner: str = "ada", **changes: Any) -> JobDocument:
    """A new job, with some of its fields changed."""
    submission = Submission(specification(tenant), owner=owner, parameters={"sample": identifier})
    return replace(new_job(submission, job=identifier, now=NOW, by=owner), **changes)


def ending(
    document: JobDocument, outcome: AttemptOutcome = AttemptOutcome.OK, exit_code: int | None = 0
) -> AttemptResult:
    """The end of a claimed job's attempt."""
    assert document.claim is not None
    return AttemptResult(document.token, document.claim.id, outcome, exit_code=exit_code, host=document.claim.host)


def pilot(identifier: str = "pilot-1", **changes: Any) -> Pilot:
    made = Pilot(
        id=identifier, tenant="alpha", host="node1", site="site", slots=4, resources=Resources(cpus=4), lease=60,
        registered=NOW,
    )  # fmt: skip
    return replace(made, **changes)


def record(identifier: str, **changes: Any) -> Record:
    made = Record(id=identifier, tenant="alpha", kind="evidence", job="job-1", at=NOW, body={"text": identifier})
    return made._replace(**changes)


def many_jobs(count: int = 120) -> list[JobDocument]:
    """Jobs that differ in every field that is searched, with ties and missing values; always the same ones."""
    dice = random.Random(4)
    return [_any_job(dice) for _ in range(count)]


def _any_flow_ref(dice: random.Random) -> FlowRef | None:
    if dice.random() < 0.5:
        return None
    run, work = dice.choice(["c1", "c2", ODD_TEXTS[1]]), dice.choice(["align@1", "loop@1/2/align@3"])
    return FlowRef(
        run,
        work,
        "f" * 64,
        dice.choice([-1, 3]),
        dice.randrange(9),
        dice.choice([0, 9, 9]),
        "r.json",
        prompt=dice.random() < 0.3,
    )


def _any_job(dice: random.Random) -> JobDocument:
    tenant = dice.choice(["alpha", "beta", "gamma"])
    resources = Resources(
        cpus=dice.choice([1, 2, 8]), memory=dice.choice([0, 1 << 30, 5 << 40]), disk=dice.choice([0, 1 << 20]),
        gpus=dice.choice([0, 0, 1]),
    )  # fmt: skip
    submission = Submission(
        specification(tenant, dice.choice(["align", "call"])),
        owner=dice.choice(["ada", "bob", "Zoë", "o'hara", "a/b"]),
        name=dice.choice([*ODD_TEXTS, "Align", "align"]),
        team=dice.choice(["", "genomes", "Genomes", "x y"]),
        index=dice.choice([None, 0, 1, 99_999]),
        labels=dice.choice([{}, {"run": "7"}, {"run": "7", "a=b": "c"}, {"a": "b=c", "q": "'\"\\\0"}]),
        priority=dice.choice([-1000, -5, 0, 0, 1000]),
        expected_runtime=dice.choice([None, 1, 600, 86_400]),
        resources=resources,
        not_before=dice.choice([0, NOW, NOW + 60_000]),
        callback=dice.choice([None, "https://callback.invalid/"]),
        held=dice.random() < 0.2,
    )
    made = new_job(submission, job=str(UUID(int=dice.getrandbits(128))), now=NOW + dice.randrange(5), by="ada")
    state = dice.choice(list(State))
    attempt = dice.choice([0, 1, 2, 9])
    host = dice.choice(["node1", "node2"])
    claim = None
    last = None
    if state is State.RUNNING:
        claim = Claim(f"{dice.getrandbits(64):x}", dice.choice(["pilot-1", "pilot-2"]), host, NOW + dice.randrange(9))
    elif attempt:
        code = dice.choice([None, 0, 1, 137])
        last = AttemptResult(
            Token(0, attempt),
            "claim",
            AttemptOutcome.OK if code == 0 else AttemptOutcome.FAILURE,
            exit_code=code,
            host=host,
        )
    flow_ref = _any_flow_ref(random.Random(made.id))
    delivery = made.delivery
    if delivery is not None:
        delivery = Delivery(delivery.url, tries=1, due=dice.choice([None, NOW + dice.randrange(99)]))
    return replace(
        made,
        state=state,
        attempt=attempt,
        generation=dice.choice([0, 0, 3]),
        claim=claim,
        phase=dice.choice(list(JobPhase)) if claim else None,
        last=last,
        failures=dice.randrange(3),
        releases=dice.randrange(3),
        delivery=delivery,
        flow_ref=flow_ref,
        changed=NOW + dice.randrange(1000),
        retry=RetryPolicy(max_attempts=3),
    )
