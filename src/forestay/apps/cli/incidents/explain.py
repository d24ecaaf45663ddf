"""`forestay explain`: why a job, or a task of another engine, failed, what was decided and by what, and the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, moment, size
from forestay.apps.cli.ids import short
from forestay.apps.cli.incidents.decided import what_was_decided, who_decided, why_decided
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentWhole, Job

MOST = 20
MOST_RANKS = 4
"""The ranks of a job of several nodes that are listed."""
SLURM_OUT_OF_MEMORY = 125
"""What Slurm records in a signal's place after a kill by the kernel for memory."""
INDENT = 12
"""The column of the values."""
STATES = {
    "open": "no decision yet",
    "acting": "a playbook is running",
    "waiting": "an action was taken; its result is pending",
    "held": "waits for a person",
    "complete": "answered",
    "failed": "given up",
}
"""What has become of a failure, as the pages say it."""


def explain(
    session: Session,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|INCIDENT",
            help="The id of a job, an incident or a run, or its beginning; a Slurm id such as 4711 or 4711_3. Without it: the newest failure that needs attention.",
        ),
    ] = None,
) -> None:
    """Explain why a job failed and what was decided. Also the reasons for the decision, and its result.

    forestay explain 4f1c9d2a
    """
    found_job, alone = _named(session, job)
    if alone is not None:
        _explain_incident(session, alone)
    if found_job is None:
        return
    name = found_job["id"]
    page = session.client.find_incidents({"job": name}, limit=MOST)
    whole = [session.client.incident(incident["id"]) for incident in reversed(page.incidents)]
    if session.out.as_json:
        session.out.document({"job": found_job, "incidents": whole})
        return
    for line in told(found_job, whole, session.out.paint):
        session.out.folded(line, INDENT)
    if page.cursor is not None:
        session.out.say(f"These are the last {MOST}.")
    if whole and whole[-1]["state"] == "held":
        session.out.say(
            f"It needs attention. To retry it: forestay retry {short(name)}\n"
            f"To answer all failures like it: forestay rules add --from {short(name)} --if CONDITION --then resubmit"
        )


def _named(session: Session, name: str | None) -> tuple[Job | None, IncidentWhole | None]:
    """The job with the given id; or else the incident, if it has no job, as for a task of another engine."""
    from forestay.client.api.naming import NEWEST, is_batch_id, resolve_batch_id
    from forestay.client.transport.errors import Ambiguous, NotFoundError

    if name is None:
        try:
            incident = session.client.incident(session.incident(NEWEST))
            held = incident["state"] == "held"
            session.out.say(
                "The newest failure that needs attention:" if held else "No failure needs attention. The newest one:"
            )
        except NotFoundError:
            # A failure is recorded some seconds after the job has failed.
            page = session.client.find_jobs({"state": ["faulted", "failed"]}, sort="-changed", limit=1)
            if not page.jobs:
                raise
            return page.jobs[0], None
    elif (of_batch_job := resolve_batch_id(session.client, name)) is not None:
        incident = session.client.incident(of_batch_job)
    else:
        try:
            return session.client.job(session.job(name)), None
        except (NotFoundError, Ambiguous) as no_job:
            batch_id = is_batch_id(name)
            if isinstance(no_job, Ambiguous) and not batch_id:
                raise
            try:
                incident = session.client.incident(session.incident(name))
            except (NotFoundError, Ambiguous):
                if batch_id:
                    message = f"there is no incident of a batch job {name}, and no job with such an id"
                    raise NotFoundError(message, status=404) from None
                raise no_job from None
    return (session.client.job(incident["job"]), None) if incident["job"] else (None, incident)


def _explain_incident(session: Session, incident: IncidentWhole) -> None:
    if session.out.as_json:
        session.out.document({"job": None, "incidents": [incident]})
        return
    paint = session.out.paint
    what = incident["task"] or f"run {incident['run']}"
    head = paint(neutral.line(what), "bold") + neutral.line(f" of {incident['owner']}, {incident['type']}")
    session.out.folded(head, INDENT)
    session.out.data(paint(incident["id"], "dim"))
    session.out.data()
    for line in _incident(incident, paint):
        session.out.folded(line, INDENT)
    if incident["run"]:
        session.out.say(f"Its run: forestay runs history {incident['run']}")
    if incident["state"] == "held":
        session.out.say(
            f"It needs attention. To answer it: forestay inbox launch {short(incident['id'])} PLAYBOOK\n"
            f"To answer all failures like it: forestay rules add --from {short(incident['id'])} --if CONDITION --then resubmit"
        )


def told(job: Job, incidents: list[IncidentWhole], paint: Callable[..., str]) -> Iterator[str]:
    """The lines of an explanation."""
    yield paint(neutral.line(job["name"]), "bold") + neutral.line(
        f" of {job['owner']} is {job['state'].replace('_', ' ')}"
    )
    yield paint(job["id"], "dim")
    if not incidents:
        yield ""
        failed = job["state"] in {"faulted", "failed"} and job["attempt"]
        yield (
            "It failed, and its cause is not recorded yet: ask again in a few seconds."
            if failed
            else "Nothing went wrong with it, as far as is known."
        )
    if waiting := job.get("waiting"):
        yield neutral.line(f"It waits: {waiting}.")
    for incident in incidents:
        yield ""
        yield from _incident(incident, paint)


def _incident(incident: IncidentWhole, paint: Callable[..., str]) -> Iterator[str]:
    finding: dict[str, Any] = incident["context"].get("finding", {})
    evidence: dict[str, Any] = incident["context"].get("evidence", {})
    yield paint(f"Attempt {incident['attempt']}, {moment(incident['at'])}", "bold")
    yield f"  Seen      {neutral.line(_seen(evidence))}"
    for line in _ranks(evidence):
        yield f"            {neutral.line(line)}"
    sure = f"{100 * float(finding.get('confidence', 0)):.0f} % sure"
    yield f"  Cause     {paint(incident['cause'], 'yellow')} ({sure}). {neutral.line(str(finding.get('words', '')))}"
    for line in finding.get("lines", [])[:3] or _last_lines(evidence):
        yield "            " + paint(neutral.line(f"| {line}"[:200]), "dim")
    if finding.get("advice"):
        yield f"            {neutral.line(str(finding['advice']))}"
    if incident.get("advice"):
        yield f"  Retry     {neutral.line(str(incident.get('retry_verdict', '')))}. {neutral.line(str(incident['advice']))}"
    record = incident.get("retry_record")
    if record:
        # A server of another release may not report them.
        yield f"            This error: {neutral.line(record['words'])}."
    for decision in incident["decisions"]:
        detail = decision["detail"]
        yield f"  Decided   {what_was_decided(decision)}, by {neutral.line(who_decided(decision['by']))}: {neutral.line(why_decided(decision))}"
        for step in detail.get("path", [])[1:-1]:  # the last is the one that decided
            yield f"            rule {neutral.line(short(step['rule']))}: {step['verdict']}{neutral.line(' — ' + step['message'] if step['message'] else '')}"
        shadow = detail.get("shadow")
        if isinstance(shadow, dict) and shadow.get("rule"):
            yield f"            {neutral.line(shadow['rule'])} does not act yet; it would have said otherwise"
    for step in incident["steps"]:
        detail_data = step["detail"] if step["detail"] != f"incident {incident['id']}" else ""
        yield f"  Done      {step['action']}: {step['state']}{neutral.line(' — ' + detail_data if detail_data else '')}"
    reasons = {f"incident {incident['id']}", *(why_decided(decision) for decision in incident["decisions"])}
    note = f": {neutral.line(incident['note'])}" if incident["note"] and incident["note"] not in reasons else ""
    words = STATES.get(incident["state"], incident["state"])
    yield f"  Now       {paint(words, 'red' if incident['state'] in {'held', 'failed'} else 'green')}{note}"


def _ranks(evidence: dict[str, Any]) -> list[str]:
    """How the ranks of a job of several nodes ended, the one that failed first at the beginning."""
    ranks = [str(rank) for rank in evidence.get("ranks", ())]
    more = len(ranks) - MOST_RANKS
    return [*ranks[:MOST_RANKS], f"and {more} more ranks"] if more > 1 else ranks


def _last_lines(evidence: dict[str, Any]) -> list[str]:
    """The last lines, which are the most useful if no line decided."""
    return [line for line in str(evidence.get("log_tail", "")).splitlines() if line.strip()][-3:]


def _seen(evidence: dict[str, Any]) -> str:
    parts = []
    if evidence.get("exit_code") is not None:
        parts.append(f"exit code {evidence['exit_code']}")
    if evidence.get("signal") == SLURM_OUT_OF_MEMORY:
        parts.append(f"out of memory ({SLURM_OUT_OF_MEMORY} in Slurm's record)")
    elif evidence.get("signal") is not None:
        parts.append(f"signal {evidence['signal']}")
    if evidence.get("wall_time") is not None:
        limit = f" of {lasting(evidence['time_limit'])}" if evidence.get("time_limit") else ""
        parts.append(f"after {lasting(evidence['wall_time'])}{limit}")
    if evidence.get("peak_memory"):
        limit = f" of {size(evidence['memory_limit'])}" if evidence.get("memory_limit") else ""
        parts.append(f"memory {size(evidence['peak_memory'])}{limit}")
    if evidence.get("node"):
        parts.append(f"on {evidence['node']}")
    return ", ".join(parts) or "nothing but that its pilot was lost"
