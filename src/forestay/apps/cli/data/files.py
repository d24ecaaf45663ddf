"""`forestay files`: where files are, and what is known about their replicas."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def files(
    session: Session,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[list|where|add|remove|bad|good]",
            help="List files with a document; where a file is; add or remove a replica; say that one is bad, or good again.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="lfn:NAME, or job:ID/PATH; with list a part of the name.")
    ] = None,
    element: Annotated[
        str | None, typer.Argument(metavar="ELEMENT", help="With add, remove, bad and good: the storage element.")
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="The path on the element, where no rule says it.")
    ] = None,
    size: Annotated[int | None, typer.Option("--size", metavar="BYTES", min=0, help="With add: its size.")] = None,
    sha256: Annotated[str | None, typer.Option("--sha256", metavar="HEX", help="With add: its digest.")] = None,
    site: Annotated[
        str, typer.Option("--site", metavar="SITE", help="With where: in the order in which a pilot there tries them.")
    ] = "",
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; kept in the audit log.")] = "",
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="With list: at most so many.")
    ] = 100,
) -> int:
    """Show where a file is, and which of its replicas are good. Add, remove and mark replicas.

    forestay files where lfn:/store/run7/a.root --site north
    """
    from forestay.client.api import file_calls

    if action in (None, "list"):
        return _list(session, session.client.send(file_calls.files(name or "", limit=limit)))
    if action not in ("where", "add", "remove", "bad", "good"):
        raise typer.BadParameter(f"{action!r} is none of list, where, add, remove, bad and good")
    if not name:
        raise typer.BadParameter(f"{action} wants the NAME of a file, such as lfn:/store/a.root")
    if action == "where":
        return _file(session, session.client.send(file_calls.where(name, site=site)))
    if not element:
        raise typer.BadParameter(f"{action} wants the ELEMENT that has the replica")
    if action == "add":
        call = file_calls.add_replica(name, element, path=path, size=size, sha256=sha256, reason=reason)
    elif action == "remove":
        call = file_calls.remove_replica(name, element, path=path, reason=reason)
    else:
        call = file_calls.mark_replica(name, element, bad=action == "bad", path=path, reason=reason)
    return _file(session, session.client.send(call))


def _list(session: Session, told: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(told)
        return ExitCode.OK
    columns = [Column("NAME"), Column("BYTES", right=True), Column("REPLICAS", right=True), Column("BAD", right=True)]
    rows = [
        [
            neutral.line(one["name"]),
            "" if one["bytes"] is None else str(one["bytes"]),
            str(len(one["replicas"])),
            str(sum(1 for replica in one["replicas"] if replica["bad"])),
        ]
        for one in told["files"]
    ]
    session.out.table(columns, rows)
    if told["more"]:
        session.out.say("There are more; name a part of the NAME, or raise --limit.")
    return ExitCode.OK


def _file(session: Session, told: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(told)
        return ExitCode.OK
    session.out.data(neutral.line(told["name"]))
    if told["sha256"]:
        session.out.data(f"  {told['bytes']} bytes, SHA-256 {told['sha256']}")
    columns = [Column("ELEMENT"), Column("PATH"), Column("SINCE"), Column("STATE")]
    rows = [
        [
            neutral.line(one["element"]),
            neutral.line(one["path"]),
            "by rule" if one["since"] is None else moment(one["since"]),
            f"bad since {moment(one['bad_since'])}: {neutral.line(one['why'])}" if one["bad"] else "good",
        ]
        for one in told["replicas"]
    ]
    session.out.table(columns, rows)
    return ExitCode.OK
