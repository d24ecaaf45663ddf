"""The history of a run in plain words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text

Facts = Mapping[str, Any]
LONGEST = 500


def history_event_public(at: int, kind: str, facts: Facts) -> Json:
    """One line of a run's history."""
    words = _WORDS[kind](facts) if kind in _WORDS else _other({**facts, "kind": kind})
    return {"at": time_text(at), "kind": kind, "task": task_of(facts), "words": words[:LONGEST]}


def task_of(facts: Facts) -> str:
    """The task that an event is about; empty: the run."""
    order = facts.get("order") or (facts.get("command") or {}).get("order") or {}
    work = facts.get("work") or order.get("work") or (facts.get("parent") or {}).get("work")
    return str(work).rpartition("@")[0] if work else str(facts.get("task") or "")


def jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _bits(text: object) -> int:
    """The size of a set of indexes."""
    try:
        return int(str(text or "0"), 16).bit_count()
    except ValueError:
        return 0


def _because(facts: Facts, name: str = "reason") -> str:
    return f": {facts[name]}" if facts.get(name) else ""


def _started(facts: Facts) -> str:
    if facts.get("undo"):
        return "The run is being compensated"
    if facts.get("resumed") is not None:
        return "The run was resumed" + (f" from task {facts['resumed']}" if facts["resumed"] else "")
    text = ", ".join(f"{name}={value!r}" for name, value in (facts.get("params") or {}).items())
    by = "Another run" if facts.get("parent") else (facts.get("owner") or "Somebody")
    return f"{by} started the run" + (f" with {text}" if text else "")


def _submitted(facts: Facts) -> str:
    count = int(facts.get("count") or 0) - _bits(facts.get("skip"))
    return f"{task_of(facts)}: {jobs(count)} submitted"


def _shard(facts: Facts) -> str:
    count = int((facts.get("start") or {}).get("count") or 0)
    return f"{task_of(facts)}: shard {facts.get('shard')} with {jobs(count)} started"


def _jobs_ended(facts: Facts) -> str:
    well, bad, skipped = (_bits(facts.get(name)) for name in ("well", "bad", "skipped"))
    parts = (
        [f"{well:,} succeeded"] * bool(well)
        + [f"{bad:,} failed"] * bool(bad)
        + [f"{skipped:,} skipped"] * bool(skipped)
    )
    return (
        f"{task_of(facts)}: {jobs(well + bad + skipped)} finished so far, {', '.join(parts) or 'none'}{_because(facts)}"
    )


def _shard_ended(facts: Facts) -> str:
    well, bad = int(facts.get("well") or 0), int(facts.get("bad") or 0)
    return f"{task_of(facts)}: shard {facts.get('shard', 0)} finished, {well:,} jobs succeeded, {bad:,} failed{_because(facts)}"


def _run_ended(facts: Facts) -> str:
    return f"{task_of(facts)}: sub-flow run {facts.get('index', 0)} {'succeeded' if facts.get('well') else 'failed'}{_because(facts)}"


def _placed(facts: Facts) -> str:
    what = f"{task_of(facts)}: sub-flow run {(facts.get('command') or {}).get('index', 0)}"
    if "domain" not in facts:
        return f"{what} is placed in a domain"
    left = ", ".join(str(name) or "this domain" for name in facts.get("left") or ())
    place = f"domain {facts['domain']}" if facts["domain"] else "this domain"
    return f"{what} {'is being sent to' if facts.get('chosen') and facts['domain'] else 'runs in'} {place}" + (
        f", before that in {left}" if left else ""
    )


def _verb(facts: Facts) -> str:
    on = facts.get("task") or "the run"
    return f"{facts.get('by') or 'Somebody'} requested: {str(facts.get('kind', '')).replace('-', ' ')} {on}{_because(facts)}"


def _steered(facts: Facts) -> str:
    what = {"cancel": "cancelled", "hold": "held", "continue": "continued"}.get(str(facts.get("verb")), "steered")
    return f"{task_of(facts)}: its jobs are {what}"


def _ended(facts: Facts) -> str:
    outcome = str(facts.get("outcome") or "finished").replace("_", " ")
    return f"The run ended: {outcome}{_because(facts)}"


def _other(facts: Facts) -> str:
    about = task_of(facts)
    return (f"{about}: " if about else "") + str(facts.get("kind") or "something").replace("_", " ")


_WORDS: dict[str, Callable[[Facts], str]] = {
    "started": _started,
    "submit_jobs": _submitted,
    "start-shard": _shard,
    "start-run": lambda facts: (
        f"{task_of(facts)}: sub-flow run {(facts.get('parent') or {}).get('index', 0)} started ({facts.get('id')})"
    ),
    "list_files": lambda facts: f"{task_of(facts)}: {facts.get('pattern', 'files')} is listed",
    "watch_files": lambda facts: f"{task_of(facts)}: {facts.get('pattern', 'files')} is watched",
    "bind_worklet": lambda facts: f"{task_of(facts)}: a worklet for {facts.get('place')} is being selected",
    "await_event": lambda facts: f"{task_of(facts)}: waits for the event {facts.get('event')}",
    "close_wait": lambda facts: f"{task_of(facts)}: no longer waits for the event {facts.get('event')}",
    "ask_person": lambda facts: f"{task_of(facts)}: a person is asked",
    "close_question": lambda facts: f"{task_of(facts)}: the question is closed ({facts.get('outcome', 'withdrawn')})",
    "place_run": _placed,
    "prepare_run": lambda facts: f"{task_of(facts)}: a sub-flow run is prepared",
    "last_state": lambda facts: f"The run {facts.get('ended')} is to be compensated",
    "steer_jobs": _steered,
    "tell_many": lambda facts: f"{len(facts.get('targets') or ())} shards or sub-flow runs are notified",
    "check_jobs": lambda facts: f"{task_of(facts)}: no events for a while; the run polls its jobs",
    "report": lambda facts: f"{task_of(facts) or 'The run'}: {facts.get('kind')}{_because(facts, 'detail')}",
    "refused": lambda facts: f"It failed{_because(facts)}",
    "JobsEnded": _jobs_ended,
    "ShardEnded": _shard_ended,
    "RunEnded": _run_ended,
    "FilesAppeared": lambda facts: f"{task_of(facts)}: {facts.get('count', 0)} files so far",
    "Verb": _verb,
    "state": lambda facts: f"The run is {str(facts.get('state')).replace('_', ' ')}",
    "trouble": lambda facts: f"An orchestrator could not continue{_because(facts)}",
    "ended": _ended,
}
