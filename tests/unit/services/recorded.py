"""Recorded jobs with their incidents and decisions, as the failure handler leaves them, for replays and proposals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.contract.examples import job

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import AttemptStage, Evidence
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, status_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, State, Token, Transition
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import DocumentChange, JobStore, Written
from forestay.services.exceptions.detect.failure_detector import failure_incident

BEGAN = 1_700_000_000_000
HOUR = 3_600_000
DEFAULT_POLICY = "default policy"


@dataclass
class Story:
    """One job: its bad attempts, and how it ended. A failure is its cause, or a record with `cause`, `host`, `memory`, `seconds`, `by` (a person)."""

    name: str
    failures: Sequence[Any]
    end: State = State.COMPLETED
    decisions: Sequence[str] = ()
    """Of the default policy, one a failure; the last one stands for those that are missing."""
    host: str = "n9"
    """Of the attempt that ended well."""
    memory: int | None = None
    """With which it ended well; nothing: as before."""
    at: int = BEGAN
    tenant: str = "lab"
    fields: dict[str, Any] = field(default_factory=dict)

    def made(self) -> tuple[JobDocument, list[tuple[Incident, Decision]]]:
        """The job as it stands in the end, and its incidents with their decisions."""
        document = job(self.name, tenant=self.tenant, retry=RetryPolicy(max_attempts=9), **self.fields)
        lines: list[Transition] = []
        results: list[tuple[Incident, Decision]] = []
        memory = 1 << 30
        for number, cause in enumerate(self.failures, 1):
            failure = cause if isinstance(cause, dict) else {"cause": cause}
            memory = failure.get("memory", memory)
            at = self.at + number * HOUR
            last = AttemptResult(
                Token(0, number), f"claim-{self.name}-{number}", AttemptOutcome.FAILURE, exit_code=1,
                wall=failure.get("seconds", 600.0), host=failure.get("host", "n1"),
            )  # fmt: skip
            document = document.having(
                state=State.FAULTED,
                attempt=number,
                failures=number,
                last=last,
                resources=Resources(cpus=2, memory=memory),
            )
            evidence = Evidence(
                exit_code=failure.get("exit_code", 1), wall_time=last.wall, node=last.host, stage=AttemptStage.EXECUTING,
                log_tail=failure.get("log", ("it failed",)),
            )  # fmt: skip
            finding = CauseFinding(Cause(failure["cause"]), 0.9, RetryNeed.SAME, pattern=failure.get("pattern", ""))
            incident = failure_incident(document, evidence, finding, at)
            decision = self.decisions[min(number, len(self.decisions)) - 1] if self.decisions else "retry"
            detail = {"words": decision, "wait": 0, "charged": True}
            results.append(
                (incident, Decision(incident.id, 1, self.tenant, at, decision, DEFAULT_POLICY, detail=detail))
            )
            if failure.get("by"):
                lines.append(
                    Transition(
                        number, at, failure.get("event", Event.RETRY).value, "available", number, failure["by"], ""
                    )
                )
        if self.end is State.COMPLETED:
            number = len(self.failures) + 1
            won = AttemptResult(
                Token(0, number),
                f"claim-{self.name}-{number}",
                AttemptOutcome.OK,
                exit_code=0,
                wall=900.0,
                host=self.host,
            )
            needs = replace(document.resources, memory=self.memory or memory)
            document = document.having(attempt=number, winner=won, last=won, resources=needs)
        return document.having(state=self.end, history=tuple(lines)), results


async def record(jobs: JobStore, incidents: IncidentStore, *stories: Story) -> dict[str, list[str]]:
    """Store them; the ids of the incidents by job."""
    made = [story.made() for story in stories]
    results = await jobs.write([DocumentChange(document, None) for document, _ in made])
    assert all(isinstance(result, Written) for result in results)
    value = [pair for _, some in made for pair in some]
    statuses = [
        (incident, replace(status_of(incident), state=IncidentState.COMPLETE, due=None, n=1)) for incident, _ in value
    ]
    await incidents.add_incidents(statuses)
    await incidents.add_decisions([decision for _, decision in value])
    await jobs.refresh()
    return {document.id: [incident.id for incident, _ in some] for document, some in made}
