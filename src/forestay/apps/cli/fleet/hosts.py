"""`forestay hosts`: which hosts get jobs, which get none and why; closing and opening one by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def hosts(
    session: Session,
    action: Annotated[
        str | None, typer.Argument(metavar="[list|close|open]", help="List the hosts; close one or open it again.")
    ] = None,
    host: Annotated[str | None, typer.Argument(metavar="[HOST]", help="With close and open: which one.")] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why; kept in the audit log.")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", metavar="N", min=0.01, max=8760, help="With close: for so long; else until opened."),
    ] = None,
) -> int:
    """Show which hosts get jobs and why others get none. `close` a host or `open` it. What runs on a closed host runs on.

    forestay hosts close node17 --reason "a disk is being changed" --hours 4
    """
    from forestay.client.api import host_calls

    if action in (None, "list"):
        return _list(session, session.client.send(host_calls.hosts())["hosts"])
    if action not in ("close", "open"):
        raise typer.BadParameter(f"{action!r} is none of list, close and open")
    if not host:
        raise typer.BadParameter(f"{action} wants the name of a host")
    if not reason:
        raise typer.BadParameter(f"{action} wants --reason: others will ask why")
    if action == "close":
        seconds = None if hours is None else max(1, int(3600 * hours))
        told = session.client.send(host_calls.close_host(host, reason=reason, seconds=seconds))
    else:
        told = session.client.send(host_calls.open_host(host, reason=reason))
    if session.out.as_json:
        session.out.document(told)
    else:
        session.out.data(neutral.line(f"{told['host']} is {told['words']}"))
    return ExitCode.OK


def _why(host: dict[str, object]) -> str:
    """The words, unless they only say once more how it stands."""
    return "-" if host["words"] == host["standing"] else neutral.line(str(host["words"]))


def _list(session: Session, found: list[dict[str, object]]) -> int:
    if session.out.as_json:
        session.out.document({"hosts": found})
        return ExitCode.OK
    columns = [Column("HOST"), Column("STANDING"), Column("FAILED", right=True), Column("WHY")]
    rows = [
        [neutral.line(str(one["host"])), str(one["standing"]), str(one["failures"]), _why(one)]
        for one in sorted(found, key=lambda one: (one["standing"] == "open", str(one["host"])))
    ]
    session.out.table(columns, rows)
    return ExitCode.OK
