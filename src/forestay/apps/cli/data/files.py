"""`forestay files`: where files are, and what is known about their replicas."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

NAME = typer.Argument(metavar="NAME", help="lfn:NAME, or job:ID/PATH.")
ELEMENT = typer.Argument(metavar="ELEMENT", help="The storage element that has the replica.")
Place = Annotated[
    str | None, typer.Option("--path", metavar="PATH", help="The path on the element, if no rule determines it.")
]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]


@lists
def list_files(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only files with this in their name.")] = "",
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most this many.")] = 100,
) -> int:
    """List files that are registered.

    forestay files list run7
    """
    from forestay.client.api import file_calls

    reply = session.client.send(file_calls.files(name, limit=limit))
    session.print_list(
        "files", reply["files"],
        [Column("NAME", flexible=True), Column("BYTES", right=True), Column("REPLICAS", right=True), Column("BAD", right=True)],
        lambda file: [
            file["name"], "" if file["bytes"] is None else str(file["bytes"]), str(len(file["replicas"])),
            str(sum(1 for replica in file["replicas"] if replica["bad"])),
        ],
        key=lambda file: str(file["name"]), empty="There are no such files.",
    )  # fmt: skip
    if reply["more"]:
        session.out.say("There are more; give a part of the name, or raise --limit.")
    return ExitCode.OK


def where(
    session: Session,
    name: Annotated[str, NAME],
    site: Annotated[
        str, typer.Option("--site", metavar="SITE", help="In the order in which a pilot of this site tries them.")
    ] = "",
) -> int:
    """Show where a file is, and which of its replicas are good.

    forestay files where lfn:/store/run7/a.root --site north
    """
    from forestay.client.api import file_calls

    return _file(session, session.client.send(file_calls.where(_whole(session, name), site=site)))


def add(
    session: Session,
    name: Annotated[str, NAME],
    element: Annotated[str, ELEMENT],
    path: Place = None,
    size: Annotated[int | None, typer.Option("--size", metavar="BYTES", min=0, help="Its size.")] = None,
    sha256: Annotated[str | None, typer.Option("--sha256", metavar="HEX", help="Its digest.")] = None,
    reason: Reason = "",
) -> int:
    """Register a replica of a file.

    forestay files add lfn:/store/run7/a.root tape
    """
    from forestay.client.api import file_calls

    call = file_calls.add_replica(_whole(session, name), element, path=path, size=size, sha256=sha256, reason=reason)
    return _file(session, session.client.send(call))


def remove(
    session: Session,
    name: Annotated[str, NAME],
    element: Annotated[str, ELEMENT],
    path: Place = None,
    reason: Reason = "",
) -> int:
    """Remove a replica from the catalogue.

    forestay files remove lfn:/store/run7/a.root tape
    """
    from forestay.client.api import file_calls

    call = file_calls.remove_replica(_whole(session, name), element, path=path, reason=reason)
    return _file(session, session.client.send(call))


def mark_bad(
    session: Session,
    name: Annotated[str, NAME],
    element: Annotated[str, ELEMENT],
    path: Place = None,
    reason: Reason = "",
) -> int:
    """Mark a replica as bad; pilots no longer read it.

    forestay files mark-bad lfn:/store/run7/a.root tape --reason "wrong checksum"
    """
    return _mark(session, name, element, path, reason, bad=True)


def mark_good(
    session: Session,
    name: Annotated[str, NAME],
    element: Annotated[str, ELEMENT],
    path: Place = None,
    reason: Reason = "",
) -> int:
    """Mark a replica as good again.

    forestay files mark-good lfn:/store/run7/a.root tape
    """
    return _mark(session, name, element, path, reason, bad=False)


def _mark(session: Session, name: str, element: str, path: str | None, reason: str, *, bad: bool) -> int:
    from forestay.client.api import file_calls

    call = file_calls.mark_replica(_whole(session, name), element, bad=bad, path=path, reason=reason)
    return _file(session, session.client.send(call))


def _whole(session: Session, name: str) -> str:
    """The name of a file with the whole id of its job, if it has one."""
    if not name.startswith("job:"):
        return name
    job, slash, path = name.removeprefix("job:").partition("/")
    return f"job:{session.job(job)}{slash}{path}"


def _file(session: Session, reply: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(reply)
        return ExitCode.OK
    session.out.data(neutral.line(reply["name"]))
    if reply["sha256"]:
        session.out.data(f"  {reply['bytes']} bytes, SHA-256 {reply['sha256']}")
    columns = [Column("ELEMENT"), Column("PATH", flexible=True), Column("SINCE"), Column("STATE", flexible=True)]
    rows = [
        [
            neutral.line(replica["element"]),
            neutral.line(replica["path"]),
            "by rule" if replica["since"] is None else session.when(replica["since"]),
            f"bad since {moment(replica['bad_since'])}: {neutral.line(replica['why'])}" if replica["bad"] else "good",
        ]
        for replica in reply["replicas"]
    ]
    session.out.table(columns, rows)
    return ExitCode.OK
