"""`forestay approve`: what waits for a second person, and their answer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def approve(
    session: Session,
    request: Annotated[
        str, typer.Argument(metavar="[list|ID]", help="List what waits, or the request to answer.")
    ] = "list",
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse it.")] = False,
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; kept in the audit log.")] = "",
    every: Annotated[bool, typer.Option("--all", help="With list: also what was answered or has expired.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> int:
    """List what waits for a second person; agree or refuse. For approvers. What is agreed to is done at once.

    forestay approve 3f9a1c7e20b4 --reason "looked at the outputs, they are whole"
    """
    from forestay.client.api import approval_calls

    if request == "list":
        return _list(session, session.client.send(approval_calls.approvals(state=None if every else "waiting")))
    if not refuse and session.out.at_terminal and not yes:
        known = session.client.send(approval_calls.approval(request))
        session.out.say(f"{neutral.line(known['by'])} asks: {neutral.line(known['words'])}")
        if known["why"]:
            session.out.say(f"  {neutral.line(known['why'])}")
        if not session.sure("Agree to this?", yes=yes):
            session.out.say("Nothing was done.")
            return ExitCode.FAILED
    told = session.client.send(approval_calls.answer_approval(request, agree=not refuse, reason=reason))
    if session.out.as_json:
        session.out.document(told)
    else:
        session.out.data(
            f"{told['id']} {told['state']}" + (f": {neutral.line(told['outcome'])}" if told["outcome"] else "")
        )
    return ExitCode.OK


def _list(session: Session, found: list[dict[str, Any]]) -> int:
    if session.out.as_json:
        session.out.document({"approvals": found})
        return ExitCode.OK
    rows = [
        [one["id"], one["state"], one["by"], moment(one["at"]), moment(one["until"]), one["words"], one["why"]]
        for one in found
    ]
    columns = [
        Column("REQUEST"), Column("STATE"), Column("ASKED BY", widest=20), Column("AT"), Column("UNTIL"), Column("WHAT", widest=60),
        Column("WHY", widest=40),
    ]  # fmt: skip
    if rows:
        session.out.table(columns, rows)
    session.out.say(
        "forestay approve ID agrees to it; --refuse refuses it." if found else "Nothing waits for a second person."
    )
    return ExitCode.OK
