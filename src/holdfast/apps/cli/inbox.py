"""`holdfast inbox`: what waits for a person, grouped by cause and owner."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.apps.cli.amounts import moment
from holdfast.apps.cli.columns import Column, table
from holdfast.apps.cli.paging import newest
from holdfast.apps.cli.queue import whoami
from holdfast.apps.cli.session import Session
from holdfast.apps.cli.verb import seconds

if TYPE_CHECKING:
    from holdfast.client.answers import Incident

WAITING = "held"
LOOK_EVERY = 0.5
"""Seconds between two looks of who waits."""


def inbox(
    session: Session,
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
) -> None:
    """List what waits for a person, grouped by cause and owner.

    holdfast inbox --me
    """
    wanted: dict[str, Any] = {"state": state, "cause": cause, "owner": whoami(session) if me else owner}
    filters = {key: value for key, value in wanted.items() if value}
    if wait:
        _wait(session, filters, timeout)
    found, more = newest(lambda many, cursor: session.client.find_incidents(filters, limit=many, cursor=cursor), limit)
    if session.out.as_json:
        session.out.document({"incidents": found})
        return
    lines = _each(session, found) if each else _groups(session, found)
    for line in lines:
        session.out.data(line)
    if not found:
        session.out.say("Nothing waits for a person.")
    elif more:
        session.out.say(f"These are the newest {len(found):,}; --cause, -u and --limit choose others.")
    else:
        session.out.say("holdfast explain JOB says why; holdfast retry JOB tries it again.")


def _wait(session: Session, filters: dict[str, Any], timeout: float | None) -> None:
    from holdfast.client import TimedOut

    until = None if timeout is None else time.monotonic() + timeout
    while not session.client.find_incidents(filters, limit=1).incidents:
        if until is not None and time.monotonic() >= until:
            raise TimedOut("still nothing waits for a person")
        time.sleep(LOOK_EVERY)


def _groups(session: Session, found: list[Incident]) -> list[str]:
    groups: dict[tuple[str, str], list[Incident]] = {}
    for one in found:
        groups.setdefault((one["cause"], one["owner"]), []).append(one)
    rows = [
        [
            cause,
            owner,
            f"{len(ones):,}",
            moment(ones[0]["at"]),
            ones[0]["job"][:8] or ones[0]["case"][:8],
            ones[0]["note"],
        ]
        for (cause, owner), ones in sorted(groups.items(), key=lambda one: -len(one[1]))
    ]
    columns = [
        Column("CAUSE"), Column("OWNER", widest=20), Column("NUMBER", right=True), Column("NEWEST"), Column("SUCH AS"),
        Column("WHY", widest=60),
    ]  # fmt: skip
    return list(table(columns, rows, paint=session.out.paint)) if rows else []


def _each(session: Session, found: list[Incident]) -> list[str]:
    rows = [
        [one["id"][:8], one["cause"], one["owner"], moment(one["at"]), one["job"][:8] or one["case"][:8], one["note"]]
        for one in found
    ]
    columns = [
        Column("INCIDENT"), Column("CAUSE"), Column("OWNER", widest=20), Column("AT"), Column("JOB"), Column("WHY", widest=60),
    ]  # fmt: skip
    return list(table(columns, rows, paint=session.out.paint)) if rows else []
