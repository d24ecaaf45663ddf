"""`forestay hosts`: which hosts get jobs, which get none and why; closing and opening one by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

HOST = typer.Argument(metavar="HOST", help="The host's name.")
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]


@lists
def list_hosts(session: Session) -> int:
    """List hosts, and why some get no jobs. FAILED FAST counts the jobs that failed soon after their start since the last success there, for which a host is closed.

    forestay hosts list
    """
    from forestay.client.api import host_calls

    hosts = sorted(
        session.client.send(host_calls.hosts())["hosts"],
        key=lambda host: (host["status"] == "open", str(host["host"])),
    )
    session.print_list(
        "hosts", hosts,
        [Column("HOST"), Column("STATUS"), Column("FAILED FAST", right=True), Column("WHY", flexible=True)],
        lambda host: [str(host["host"]), str(host["status"]), str(host["failures"]), _why(host)],
        key=lambda host: str(host["host"]), empty="No host has run jobs yet.",
    )  # fmt: skip
    return ExitCode.OK


def close(
    session: Session,
    host: Annotated[str, HOST],
    reason: Reason,
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="N", min=0.01, max=8760, help="For this long (until opened).")
    ] = None,
) -> int:
    """Close a host: it gets no more jobs. Running jobs continue.

    forestay hosts close node17 --reason "disk replacement" --hours 4
    """
    from forestay.client.api import host_calls

    seconds = None if hours is None else max(1, int(3600 * hours))
    return _told(session, session.client.send(host_calls.close_host(host, reason=reason, seconds=seconds)))


def open_host(session: Session, host: Annotated[str, HOST], reason: Reason) -> int:
    """Open a closed host.

    forestay hosts open node17 --reason "the disk was replaced"
    """
    from forestay.client.api import host_calls

    return _told(session, session.client.send(host_calls.open_host(host, reason=reason)))


def _told(session: Session, fields: dict[str, object]) -> int:
    if session.out.as_json:
        session.out.document(fields)
    else:
        session.out.data(neutral.line(f"{fields['host']} is {fields['words']}"))
    return ExitCode.OK


def _why(host: dict[str, object]) -> str:
    """The reason, unless it only repeats the status."""
    return "-" if host["words"] == host["status"] else str(host["words"])
