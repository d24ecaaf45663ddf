"""`forestay approvals`: actions that need an approval, and the answer to them."""

from __future__ import annotations

from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

REQUEST = typer.Argument(metavar="REQUEST", help="The request's id, or the beginning of it.")
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]


@lists
def list_approvals(
    session: Session,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also those that were answered or have expired.")] = False,
) -> int:
    """List actions that need an approval.

    forestay approvals list
    """
    from forestay.client.api import approval_calls

    reply = session.client.send(approval_calls.approvals(state=None if every else "waiting"))
    columns = [
        Column("REQUEST"), Column("STATE"), Column("ASKED BY", flexible=True), Column("ASKED"), Column("EXPIRES"),
        Column("ON"), Column("OWNER", flexible=True), Column("ACTION", flexible=True), Column("WHY", flexible=True),
    ]  # fmt: skip
    session.print_list(
        "approvals", reply, columns, key=lambda request: str(request["id"]),
        row=lambda request: [
            request["id"], request["state"], request["by"], session.when(request["at"]), session.when(request["until"]),
            _on(session, request["on"]), request["owner"] or "-", request["words"], request["why"],
        ],
        empty="Nothing needs an approval.",
    )  # fmt: skip
    if reply and not session.out.as_json:
        session.out.say("To answer: forestay approvals approve REQUEST, or forestay approvals reject REQUEST")
    return ExitCode.OK


def approve(
    session: Session,
    request: Annotated[str, REQUEST],
    reason: Reason = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> int:
    """Approve an action, which is then carried out (approvers).

    forestay approvals approve 3f9a1c7e20b4 --reason "the outputs are complete"
    """
    from forestay.client.api import approval_calls

    name = _request(session, request)
    if session.out.at_terminal and not yes:
        known = session.client.send(approval_calls.approval(name))
        session.out.say(f"{neutral.line(known['by'])} asks: {neutral.line(known['words'])}")
        if known["why"]:
            session.out.say(f"  {neutral.line(known['why'])}")
        if not session.sure("Approve this?", yes=yes):
            session.out.say("Nothing was changed.")
            return ExitCode.FAILED
    return _answer(session, name, agree=True, reason=reason)


def reject(session: Session, request: Annotated[str, REQUEST], reason: Reason = "") -> int:
    """Reject an action (approvers).

    forestay approvals reject 3f9a1c7e20b4 --reason "the outputs are incomplete"
    """
    return _answer(session, _request(session, request), agree=False, reason=reason)


def _on(session: Session, name: str) -> str:
    """The job or run that it is about: the beginning of its id, unless whole ids are wanted."""
    return name if session.out.form == "wide" else short(name)


def _request(session: Session, name: str) -> str:
    from forestay.client.api.naming import APPROVAL

    return session.ids(APPROVAL, [name])[0]


def _answer(session: Session, request: str, *, agree: bool, reason: str) -> int:
    from forestay.client.api import approval_calls

    reply = session.client.send(approval_calls.answer_approval(request, agree=agree, reason=reason))
    if session.out.as_json:
        session.out.document(reply)
    else:
        outcome = f": {neutral.line(reply['outcome'])}" if reply["outcome"] else ""
        session.out.data(f"{reply['id']} {reply['state']}{outcome}")
    return ExitCode.OK
