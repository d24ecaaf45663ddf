"""The story of a run in plain words: lines of its engine and of the exception service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forestay.formats.flows.run_history import LONGEST, history_event_public
from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text

Facts = Mapping[str, Any]


def story_public(at: int, kind: str, facts: Facts) -> Json:
    """One line."""
    if kind not in _WORDS:
        return history_event_public(at, kind, facts) | {"incident": ""}
    event = {"at": time_text(at), "kind": kind, "task": str(facts.get("task") or "")}
    return event | {"words": _WORDS[kind](facts)[:LONGEST], "incident": str(facts.get("incident") or "")}


def _because(facts: Facts) -> str:
    return f": {facts['reason']}" if facts.get("reason") else ""


def _about(facts: Facts) -> str:
    return str(facts.get("task") or "the run")


_EVENTS = {
    "run-started": "The run started",
    "run-completed": "The run is complete",
    "run-failed": "The run has failed",
    "run-removed": "The run was removed",
    "run-triggered": "An exception was raised for the run",
    "task-enabled": "is about to start",
    "task-started": "has started",
    "task-completed": "is complete",
    "task-aborted": "failed",
    "task-failed": "was given up",
    "task-removed": "was removed",
    "task-timed-out": "missed its deadline",
    "task-unplaced": "cannot run on any pilot",
    "task-violated": "violates a constraint",
    "task-triggered": "An exception was raised for it",
}


def _event(facts: Facts) -> str:
    event = _EVENTS.get(str(facts.get("event")), str(facts.get("event")))
    words = f"{facts['task']} {event}" if facts.get("task") else event
    evidence = facts.get("evidence")
    if isinstance(evidence, Mapping) and evidence.get("exception"):
        words += f": {evidence['exception']}"
    if facts.get("attempt"):
        words += f" (attempt {facts['attempt']})"
    return words + (f": {facts['trigger']}" if facts.get("trigger") else "")


def _incident(facts: Facts) -> str:
    cause = f", cause {facts['cause']}" if facts.get("type") == "abort" else ""
    return f"Incident {facts.get('incident')}: {facts.get('type')} of {_about(facts)}{cause}{_because(facts)}"


def _decision(facts: Facts) -> str:
    verdict = {
        "playbook": "a playbook is run",
        "hold": "held for a person",
        "fail": "it is failed",
        "retry": "it is retried",
    }
    verdict_text = verdict.get(str(facts.get("verdict")), str(facts.get("verdict")))
    return f"Decision {facts.get('n')} by {facts.get('by')}: {verdict_text}{_because(facts)}"


def _step(facts: Facts) -> str:
    if not facts.get("over"):
        worklet = f" by run {facts['worklet']}" if facts.get("worklet") else ""
        return f"Step {facts.get('action')} started{worklet}"
    return f"Step {facts.get('action')} is {facts.get('state')}{_because(facts)}"


def _order(facts: Facts) -> str:
    waiting = f" after {facts['wait']} s" if facts.get("wait") else ""
    return f"Command to the engine {facts.get('engine')}: {facts.get('verb')} {facts.get('instance') or 'the run'}{waiting}"


_WORDS: dict[str, Callable[[Facts], str]] = {
    "event": _event,
    "incident": _incident,
    "decision": _decision,
    "step": _step,
    "order": _order,
    "answer": lambda facts: (
        f"The engine replied: {facts.get('outcome')}" + (f": {facts['detail']}" if facts.get("detail") else "")
    ),
    "status": lambda facts: f"Incident {facts.get('incident')} is {facts.get('state')}{_because(facts)}",
    "audit": lambda facts: f"{facts.get('by')}: {facts.get('what')}{_because(facts)}",
}
