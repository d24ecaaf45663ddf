"""`forestay inbox`: what waits for a person, grouped by cause and owner."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column, table
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.paging import newest
from forestay.apps.cli.rules.exlets import ready_text
from forestay.apps.cli.session import Session
from forestay.apps.cli.verb import seconds

if TYPE_CHECKING:
    from forestay.client.api.answers import Incident

WAITING = "held"
LOOK_EVERY = 0.5
"""Seconds between two looks of who waits."""
_FILES = frozenset({".yaml", ".yml", ".json"})


def inbox(
    session: Session,
    action: Annotated[str, typer.Argument(metavar="list|launch", help="What to do.")] = "list",
    incident: Annotated[
        str | None, typer.Argument(metavar="INCIDENT", help="For `launch`: the incident, or its first characters.")
    ] = None,
    exlet: Annotated[
        str | None, typer.Argument(metavar="EXLET", help="For `launch`: the file of an exlet, or the name of one.")
    ] = None,
    cause: Annotated[str | None, typer.Option(metavar="CAUSE", help="Of this cause: memory, node, …")] = None,
    owner: Annotated[str | None, typer.Option("--owner", "-u", metavar="NAME", help="Of this owner.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Your own.")] = False,
    state: Annotated[
        str, typer.Option("--state", "-t", metavar="STATE", help="held, or others with commas between.")
    ] = WAITING,
    each: Annotated[bool, typer.Option("--each", help="One line an incident, not a group.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many incidents.")] = 1000,
    wait: Annotated[bool, typer.Option("--wait", help="First wait until there is something.")] = False,
    timeout: Annotated[
        float | None, typer.Option(parser=seconds, metavar="TIME", help="With --wait: exit code 7 after so long.")
    ] = None,
) -> int:
    """List what waits for a person, by cause and owner. `launch` an exlet for one of them.

    forestay inbox --me
    """
    if action == "launch" and incident is not None and exlet is not None:
        return _launch(session, incident, exlet)
    if action != "list" or incident is not None:
        raise typer.BadParameter("say `launch INCIDENT EXLET`, or nothing")
    wanted: dict[str, Any] = {"state": state, "cause": cause, "owner": whoami(session) if me else owner}
    filters = {key: value for key, value in wanted.items() if value}
    if wait:
        _wait(session, filters, timeout)
    if not each and state == WAITING and not session.out.as_json:
        _show_groups(session, cause, filters.get("owner"))
        return ExitCode.OK
    found, more = newest(lambda many, cursor: session.client.find_incidents(filters, limit=many, cursor=cursor), limit)
    if session.out.as_json:
        session.out.document({"incidents": found})
        return ExitCode.OK
    for line in _each(session, found):
        session.out.data(line)
    if not found:
        session.out.say("Nothing waits for a person.")
    elif more:
        session.out.say(f"These are the newest {len(found):,}; --cause, -u and --limit choose others.")
    else:
        session.out.say("forestay explain JOB says why; forestay retry JOB tries it again.")
    return ExitCode.OK


def _launch(session: Session, named: str, exlet: str) -> int:
    from forestay.client.api.naming import resolve_incident

    incident = resolve_incident(session.client, named)
    if Path(exlet).suffix in _FILES:
        text = ready_text(session, Path(exlet))
        if text is None:
            return ExitCode.USAGE
        answer = session.client.launch_exlet(incident, text=text)
    else:
        answer = session.client.launch_exlet(incident, exlet=exlet)
    if session.out.as_json:
        session.out.document(answer)
    else:
        session.out.data(incident)
        session.out.say(f"The exlet is {answer['outcome']}: {neutral.line(answer['detail'])}")
    return ExitCode.OK if answer["outcome"] in {"begun", "done"} else ExitCode.FAILED


def _wait(session: Session, filters: dict[str, Any], timeout: float | None) -> None:
    from forestay.client import TimedOut

    until = None if timeout is None else time.monotonic() + timeout
    while not session.client.find_incidents(filters, limit=1).incidents:
        if until is not None and time.monotonic() >= until:
            raise TimedOut("still nothing waits for a person")
        time.sleep(LOOK_EVERY)


def _show_groups(session: Session, cause: str | None, owner: str | None) -> None:
    """The groups as the server sees them: a storm is one."""
    from forestay.client.api import incident_calls

    told = session.client.send(incident_calls.inbox(cause=cause, owner=owner))
    if session.out.as_json:
        session.out.document(told)
        return
    rows = [
        [
            f"{one['count']:,}",
            one["cause"],
            one["owner"] or f"{one['owners']:,} owners",
            f"{one['core_hours']:,.1f}",
            moment(one["oldest"]),
            one["waits_for"],
            one["next"],
            one["note"],
        ]
        for one in told["groups"]
    ]
    columns = [
        Column("NUMBER", right=True), Column("CAUSE"), Column("OWNER", widest=20), Column("CORE-HOURS", right=True), Column("OLDEST"),
        Column("WAITS FOR"), Column("NEXT", widest=80), Column("WHY", widest=60),
    ]  # fmt: skip
    if rows:
        session.out.table(columns, rows)
    if not rows:
        session.out.say("Nothing waits for a person.")
    elif told["more"]:
        session.out.say("The dearest groups are shown; --cause and -u choose.")
    else:
        session.out.say("forestay explain JOB says why; forestay retry JOB tries it again; --each lists single ones.")


def _each(session: Session, found: list[Incident]) -> list[str]:
    rows = [
        [one["id"][:8], one["cause"], one["owner"], moment(one["at"]), one["job"][:8] or one["case"][:8], one["note"]]
        for one in found
    ]
    columns = [
        Column("INCIDENT"), Column("CAUSE"), Column("OWNER", widest=20), Column("AT"), Column("JOB"), Column("WHY", widest=60),
    ]  # fmt: skip
    return list(table(columns, rows, paint=session.out.paint)) if rows else []
