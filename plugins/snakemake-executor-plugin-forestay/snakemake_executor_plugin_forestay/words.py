"""How a job ended, in words for Snakemake's log: the evidence, the cause, the action, and where to find more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentWhole, Job


def why(job: Job, incident: IncidentWhole | None, server: str) -> str:
    """A few sentences, each on a line of its own."""
    return "\n    ".join(_lines(job, incident, server)) + "\n    "


def _lines(job: Job, incident: IncidentWhole | None, server: str) -> Iterator[str]:
    tries = "1 attempt" if job["attempt"] == 1 else f"{job['attempt']} attempts"
    yield f"Forestay job {job['id']} is {job['state'].replace('_', ' ')} after {tries}: {_seen(job)}."
    if incident is not None:
        finding: dict[str, Any] = incident["context"].get("finding", {})
        text = " ".join(_clean(finding.get(name)) for name in ("words", "advice") if finding.get(name))
        yield f"Cause: {_clean(incident['cause'])}. {text}".strip()
        yield f"Done: {'; '.join(_done(incident)) or 'nothing'}."
        yield f"Incident: {server}/v1/incidents/{incident['id']}"
    yield f"More: forestay explain {job['id']}"


def _seen(job: Job) -> str:
    last = job["last"] or {}
    code, signal, host = last.get("exit_code"), last.get("signal"), last.get("host")
    how = f"signal {signal}" if signal else f"exit code {code}" if code else str(last.get("reason") or "it did not run")
    return _clean(f"{how} on {host}" if host else how)


def _done(incident: IncidentWhole) -> Iterator[str]:
    """The decision, and the steps that were taken."""
    for decision in incident["decisions"]:
        text = _clean(decision.get("detail", {}).get("words"))
        yield f"{_clean(decision.get('verdict'))} by {_clean(decision.get('by'))}{f' ({text})' if text else ''}"
    for step in incident["steps"]:
        yield f"{_clean(step.get('action'))}: {_clean(step.get('state'))}"


def _clean(text: object) -> str:
    """One line without terminal control characters; some of it was printed by a job."""
    return "".join(char if char.isprintable() else " " for char in str(text or "")).strip()[:500]
