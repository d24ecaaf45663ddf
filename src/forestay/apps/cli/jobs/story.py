"""`forestay story`: the event log of a job, with the evidence, and what can be done now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, moment, read_moment, size
from forestay.apps.cli.incidents.decided import DecisionReader
from forestay.apps.cli.jobs.describe import JOB, in_words
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from forestay.client.api.schemas import Job, Story, TransitionJson

TAIL = 10
"""The number of log lines shown with a failed attempt."""


def story(session: Session, job: Annotated[str, JOB]) -> None:
    """Show a job's event log, and what can be done.

    forestay story 4f1c9d2a
    """
    name = session.job(job)
    found_job, story = session.client.job(name), session.client.story(name)
    if session.out.as_json:
        session.out.document({"job": found_job, **story})
        return
    for line in narrated(found_job, story, session.out.paint, DecisionReader(session).words):
        session.out.data(line)


def narrated(
    job: Job, story: Story, paint: Callable[..., str], words_of: Callable[[TransitionJson], str]
) -> Iterator[str]:
    """The lines of a story. ``words_of``: the sentence of a line."""
    index = "" if job["index"] is None else f"[{job['index']}]"
    yield paint(neutral.line(f"{job['name']}{index}"), "bold") + neutral.line(f" of {job['owner']}: {_status(job)}")
    yield paint(job["id"], "dim")
    yield ""
    evidence = list(story["evidence"])
    day = ""
    for line in story["story"]:
        then = read_moment(line["at"])
        at = then.astimezone() if then else None
        if at is not None and at.strftime("%Y-%m-%d") != day:
            day = at.strftime("%Y-%m-%d")
            yield paint(day, "dim")
        clock = at.strftime("%H:%M:%S") if at else "-" * 8
        words = neutral.line(words_of(line))
        yield f"  {paint(clock, 'dim')}  {paint(words, _colour(line['event']))}"
        if line["event"] in {"failure", "quarantine", "keep-completion"}:
            for other_evidence in [
                each_evidence
                for each_evidence in evidence
                if each_evidence.get("kind") == "evidence" and _attempt(each_evidence) == line["attempt"]
            ]:
                evidence.remove(other_evidence)
                yield from _evidence(other_evidence, job, paint)
    rest = [record for record in evidence if record.get("kind") != "evidence"]
    for other_evidence in rest:
        yield f"  {paint(moment(str(other_evidence.get('at')))[11:], 'dim')}  {paint(neutral.line(_aside(other_evidence)), 'yellow')}"
        if other_evidence.get("kind") == "late-completion":
            yield from _evidence(other_evidence, job, paint)
    steps = next_steps(job)
    if steps:
        yield ""
        yield paint("What you can do", "bold")
        width = max(len(what) for what, _ in steps)
        for what, command in steps:
            yield f"  {what:<{width}}  {paint(command, 'cyan')}"


def _status(job: Job) -> str:
    tries = f" after {job['attempt']} {'attempt' if job['attempt'] == 1 else 'attempts'}" if job["attempt"] else ""
    held = f", held by {', '.join(job['holders'])}" if job["held"] else ""
    words = {
        "available": "waits" + (f" for attempt {job['attempt'] + 1}" if job["attempt"] else ""),
        "running": f"runs, attempt {job['attempt']}",
        "faulted": f"failed{tries}; needs a decision",
        "completed": f"completed{tries}",
        "forced_complete": "forced complete by a person",
        "failed": f"failed{tries}",
        "cancelled": "cancelled",
    }
    return words.get(job["state"], job["state"]) + held


def _colour(event: str) -> str:
    return {"failure": "red", "give-up": "red", "quarantine": "red", "complete": "green", "release": "yellow"}.get(
        event, ""
    )


def _attempt(evidence: dict[str, object]) -> object:
    ending = evidence.get("ending")
    return ending.get("attempt") if isinstance(ending, dict) else evidence.get("attempt")


def _aside(evidence: dict[str, Any]) -> str:
    if evidence.get("kind") == "late-completion":
        return (
            f"Attempt {_attempt(evidence)} ended late and was ignored: {evidence.get('why', 'there is a newer one')}."
        )
    return f"Alert: {evidence.get('words') or evidence.get('alert')}."


def _evidence(evidence: dict[str, Any], job: Job, paint: Callable[..., str]) -> Iterator[str]:
    """How an attempt ended, and the end of its output."""
    last: Any = evidence.get("ending") or {}
    facts = [in_words(last)] if last.get("outcome") != "ok" else ["succeeded"]
    if last.get("wall") is not None:
        facts.append(f"ran {lasting(last['wall'])}")
    asked = job["resources"].get("memory") or 0
    if last.get("peak_memory") is not None:
        facts.append(f"peak memory {size(last['peak_memory'])}" + (f" of {size(asked)}" if asked else ""))
    if last.get("host"):
        facts.append(f"on {last['host']}")
    indent = " " * 12
    yield indent + neutral.line(" · ".join(facts))
    for hint in hints(last, asked):
        yield indent + paint(hint, "yellow")
    tail = neutral.lines(str(evidence.get("log_tail", ""))).rstrip("\n").split("\n")
    shown = tail[-TAIL:] if tail != [""] else []
    if len(tail) > len(shown) and shown:
        shown.insert(0, "…")
    for line in shown:
        yield indent + paint("│ ", "dim") + line


def hints(last: dict[str, Any], asked_memory: int) -> list[str]:
    """What the evidence points to, in clear cases."""
    peak = last.get("peak_memory") or 0
    if asked_memory and peak >= 0.95 * asked_memory:
        return [f"It used all its requested memory; request more than {size(asked_memory)} (--memory)."]
    if last.get("reason") == "wall-limit":
        return ["It reached its time limit; request more time (--time), or make it shorter."]
    if last.get("reason") == "start-failed" or last.get("exit_code") == 127:
        return ["The command was not found on that host."]
    if last.get("exit_code") == 126:
        return ["The command cannot be executed on that host; is the file executable?"]
    if last.get("signal") == 9 and last.get("reason") != "cancelled":
        return ["It was killed (signal 9); `forestay explain` says by whom, as far as the evidence shows."]
    return []


def next_steps(job: Job) -> list[tuple[str, str]]:
    """The possible actions on a job in its present state: the purpose, and the command."""
    name, state = job["id"], job["state"]
    log = ("See its output", f"forestay logs {name}")
    why = ("See why it failed", f"forestay explain {name}")
    if job["held"]:
        holder = "" if job["owner"] in job["holders"] else f" --holder {job['holders'][0]}"
        return [("Release it", f"forestay release {name}{holder}"), ("Cancel it", f"forestay cancel {name}")]
    if state == "available":
        tried = [log] if job["attempt"] else []
        return [*tried, ("Wait for it", f"forestay wait {name}"), ("See who could run it", "forestay pilots")]
    if state == "running":
        return [("Follow its output", f"forestay logs -f {name}"), ("Wait for it", f"forestay wait {name}"), ("Cancel it", f"forestay cancel {name}")]  # fmt: skip
    if state == "faulted":
        return [
            why,
            log,
            ("Retry it, once the cause is fixed", f"forestay retry {name}"),
            ("Count it as complete", f"forestay force-complete {name} --attempt {job['attempt']} --reason …"),
            ("Cancel it", f"forestay cancel {name}"),
        ]
    if state == "completed":
        place = [("See where its outputs are", f"forestay describe {name}")] if job["winner"] else []
        return [log, *place]
    if state in {"failed", "cancelled"}:
        tried = [log] if job["attempt"] else []
        tried = [why, *tried] if state == "failed" else tried
        return [*tried, ("See its command, to submit it again", f"forestay describe {name}")]
    return []
