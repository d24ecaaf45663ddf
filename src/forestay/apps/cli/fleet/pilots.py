"""`forestay pilots`: which pilots there are and what they do, the order to drain, and a right that is taken away."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment, size
from forestay.apps.cli.columns import Column
from forestay.apps.cli.session import Session


def pilots(
    session: Session,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[show|drain|revoke]",
            help="Show pilots, order some to take no more jobs, or take the right of some away.",
        ),
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PILOT]...", help="With drain and revoke: these.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that are gone.")] = False,
    site: Annotated[str, typer.Option("--site", metavar="NAME", help="With drain: all of a site.")] = "",
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="With drain: all on a host.")] = "",
    reason: Annotated[
        str | None,
        typer.Option("--reason", "-r", metavar="TEXT", help="With drain and revoke: why; kept in the audit log."),
    ] = None,
) -> None:
    """Show the pilots that run jobs; drain or revoke some. They are `idle`, `busy`, or `inactive` while they wait in their batch system. `drain` orders some to end what
    they run, take no more, and go (operators). `revoke` takes the right of those named away at once, as for a token that was stolen: servers refuse
    all they say, and their jobs run again when their leases have ended.

    forestay pilots drain --host node7 --reason "a disk is being replaced"
    """
    from forestay.client.api import calls

    if action == "drain":
        if not reason:
            raise typer.BadParameter("drain wants --reason: others will ask why")
        if not (names or site or host):
            raise typer.BadParameter("drain wants the names of pilots, --site or --host")
        told = session.client.send(calls.drain(names or [], site=site, host=host, reason=reason))
        if session.out.as_json:
            session.out.document(told)
        else:
            for name in told["pilots"]:
                session.out.data(str(name))
            session.out.say(f"{len(told['pilots'])} pilots take no more jobs; each goes when what it runs has ended.")
        return
    if action == "revoke":
        if not (names and reason) or site or host:
            raise typer.BadParameter("revoke wants the names of pilots, and --reason: others will ask why")
        for name in names:
            session.client.send(calls.revoke(name, reason=reason))
            session.out.document({"pilot": name}) if session.out.as_json else session.out.data(name)
        session.out.say("Refused from now on; what they run goes elsewhere when their leases have ended.")
        return
    if action not in (None, "show"):
        raise typer.BadParameter(f"{action!r} is neither show, drain nor revoke")
    told = session.client.send(calls.fleet())
    if not everything:
        told["pilots"] = [one for one in told["pilots"] if one.get("state") != "gone"]
    if session.out.as_json:
        session.out.document(told)
        return
    _show(session, told)


def _show(session: Session, told: dict[str, Any]) -> None:
    columns = [
        Column("PILOT"), Column("HOST"), Column("SITE"), Column("STATE", style=_colour), Column("JOBS", right=True), Column("SLOTS", right=True),
        Column("CPUS", right=True), Column("MEMORY", right=True), Column("GPUS", right=True), Column("SINCE"), Column("BATCH JOB"),
    ]  # fmt: skip
    rows = []
    for one in told["pilots"]:
        has = one.get("resources") or {}
        rows.append([
            str(one.get("id", "")), str(one.get("host", "")), str(one.get("site") or "-"), _state(one), str(one.get("claims", "-")),
            str(one.get("slots", "")), str(has.get("cpus", "")), size(int(has.get("memory", 0))), str(has.get("gpus", 0)),
            moment(one.get("registered")), str(one.get("batch_job") or "-"),
        ])  # fmt: skip
    rows += [
        [
            str(one["launch"]),
            "-",
            str(one["site"]),
            "inactive",
            *"-----",
            moment(one["planned"]),
            str(one["batch_job"] or "-"),
        ]
        for one in told.get("inactive") or []
    ]
    # A terminal has 80 columns: what nobody has is not shown.
    shown = [n for n, column in enumerate(columns) if not _spare(column, [row[n] for row in rows])]
    rows = [[row[n] for n in shown] for row in rows]
    if rows:
        session.out.table([columns[n] for n in shown], rows)
    for one in told["pilots"]:
        if one.get("drain") and one.get("state") != "gone":
            session.out.say(f"{one['id']} was told to drain by {neutral.line(str(one['drain']))}")
    if not any(one.get("state") != "gone" for one in told["pilots"]):
        session.out.say("No pilot is alive, so nothing runs. `forestay pilot --help` says how to start one.")


def _spare(column: Column, values: list[str]) -> bool:
    return column.heading in ("GPUS", "BATCH JOB") and all(value in ("0", "-") for value in values)


def _state(pilot: dict[str, Any]) -> str:
    """What a living one does; otherwise how it stands."""
    if pilot.get("state") != "alive":
        return str(pilot.get("state", ""))
    if pilot.get("revoked"):
        return "revoked"
    return "draining" if pilot.get("drain") else str(pilot.get("activity") or "alive")


def _colour(state: str) -> str:
    return {
        "busy": "green",
        "alive": "green",
        "silent": "red",
        "revoked": "red",
        "draining": "yellow",
        "gone": "dim",
        "inactive": "dim",
    }.get(state, "")
