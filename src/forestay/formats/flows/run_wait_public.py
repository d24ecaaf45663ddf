"""What holds a run, as the HTTP interface shows it: who can release it, and how."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forestay.formats.jobs.job_json import Json

SHORT = 8
_OF_INCIDENT = re.compile(r"incident:(?P<incident>.+)|(?P<playbook>.+):\d+:\d+")
"""Holders other than persons: an incident until it is answered, or a step of a playbook for an incident."""


def waits_public(
    run: str,
    owner: str,
    state: Mapping[str, Any],
    flow_holders: Sequence[str],
    questions: Mapping[str, tuple[str, Sequence[str]]] | None = None,
) -> list[Json]:
    """The waits, from the plain form of a run's state and its open questions: by task the id, and who may answer."""
    return list(_waits(run[:SHORT], owner, state, flow_holders, questions or {}))


def _waits(
    run: str,
    owner: str,
    state: Mapping[str, Any],
    flow_holders: Sequence[str],
    questions: Mapping[str, tuple[str, Sequence[str]]],
) -> Iterator[Json]:
    if state["outcome"] is not None:
        return
    for holder in flow_holders:
        yield _held("", holder, "all runs of the flow are suspended", "")
    for holder in state["holders"]:
        yield _held("", holder, "suspended", f"forestay runs resume {run}")
    for task in state["instances"]:
        name = task["id"]
        for holder in task.get("holders", ()):
            yield _held(name, holder, "suspended", f"forestay runs resume {run} --task {name}")
        if name in questions:
            question, who = questions[name]
            yield _wait(name, "", "", "waits for an answer", ", ".join(who), f"forestay inbox answer {question}")
        if task.get("state") == "faulted":
            reason = task.get("reason", "")
            words = f"failed: {reason}" if reason else "failed"
            yield _wait(name, "", "", words, f"{owner} or an operator", f"forestay runs retry {run} {name}")
    last = state["stack"][-1] if state["stack"] else {}
    if last.get("held"):
        command = f"forestay runs retry {run} '!{last['number']}'"
        yield _wait(last["task"], "", "", "its compensation failed", f"{owner} or an operator", command)


def _held(task: str, holder: str, what: str, command: str) -> Json:
    known = _OF_INCIDENT.fullmatch(holder)
    if known is None:
        return _wait(task, holder, "", f"{what} by {holder}", f"{holder} or an operator", command)
    incident = known["incident"] or known["playbook"]
    words = f"{what} until incident {incident[:SHORT]} is answered"
    return _wait(task, holder, incident, words, "an operator", f"forestay explain {incident[:SHORT]}")


def _wait(task: str, holder: str, incident: str, words: str, who: str, command: str) -> Json:
    return {"task": task, "holder": holder, "incident": incident, "words": words, "who": who, "command": command}
