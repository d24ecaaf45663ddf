"""`forestay pilots`: lists pilots and what they run; drains and revokes them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import number_of, size
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.session import Session

Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]


@lists
def list_pilots(
    session: Session,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that have ended.")] = False,
) -> None:
    """List pilots and what they do. A pilot is inactive while it waits in its batch system.

    forestay pilots list
    """
    from forestay.client.api import calls

    reply = session.client.send(calls.fleet())
    if not everything:
        reply["pilots"] = [pilot for pilot in reply["pilots"] if pilot.get("state") != "gone"]
    if session.out.as_json:
        session.out.document(reply)
    elif session.out.form == "name":
        for pilot in reply["pilots"]:
            session.out.data(neutral.line(str(pilot["id"])))
    else:
        _show(session, reply)


def drain(
    session: Session,
    reason: Reason,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[PILOT]...", help="Ids of pilots, or the beginnings of them.")
    ] = None,
    site: Annotated[str, typer.Option("--site", metavar="NAME", help="All pilots of a site.")] = "",
    host: Annotated[str, typer.Option("--host", metavar="NAME", help="All pilots on a host.")] = "",
) -> None:
    """Drain pilots (operators). They finish their jobs, take no more, and exit.

    forestay pilots drain --host node7 --reason "disk replacement"
    """
    from forestay.client.api import calls
    from forestay.client.api.naming import PILOT

    if not (names or site or host):
        raise typer.BadParameter("name the pilots, or use --site or --host")
    ids = session.ids(PILOT, names) if names else []
    reply = session.client.send(calls.drain(ids, site=site, host=host, reason=reason))
    if session.out.as_json:
        session.out.document(reply)
        return
    for name in reply["pilots"]:
        session.out.data(str(name))
    session.out.say(f"{number_of(len(reply['pilots']), 'pilot')} will exit when their running jobs have ended.")


def revoke(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="PILOT...", help="Ids of pilots, or the beginnings of them.")],
    reason: Reason,
) -> None:
    """Revoke pilots at once (operators). For example after a token was stolen: servers refuse them; their jobs run again when their leases have expired.

    forestay pilots revoke 3f9a1c7e --reason "stolen token"
    """
    from forestay.client.api import calls
    from forestay.client.api.naming import PILOT

    for name in session.ids(PILOT, names):
        session.client.send(calls.revoke(name, reason=reason))
        session.out.document({"pilot": name}) if session.out.as_json else session.out.data(name)
    session.out.say("Servers now refuse them; their jobs run elsewhere when their leases have expired.")


def _show(session: Session, reply: dict[str, Any]) -> None:
    ids = session.short_ids(
        [
            *(str(pilot.get("id", "")) for pilot in reply["pilots"]),
            *(str(entry["launch"]) for entry in reply.get("inactive") or []),
        ]
    )
    columns = [
        Column("PILOT"), Column("HOST", flexible=True), Column("SITE", flexible=True), Column("STATE", style=_colour), Column("JOBS", right=True), Column("SLOTS", right=True),
        Column("CPUS", right=True), Column("MEMORY", right=True), Column("GPUS", right=True), Column("SINCE"), Column("BATCH JOB"),
    ]  # fmt: skip
    rows = []
    for pilot in reply["pilots"]:
        has = pilot.get("resources") or {}
        rows.append([
            ids.short(str(pilot.get("id", ""))), str(pilot.get("host", "")), str(pilot.get("site") or "-"), _state(pilot), str(pilot.get("claims", "-")),
            str(pilot.get("slots", "")), str(has.get("cpus", "")), size(int(has.get("memory", 0))), str(has.get("gpus", 0)),
            session.when(pilot.get("registered")), str(pilot.get("batch_job") or "-"),
        ])  # fmt: skip
    rows += [
        [
            ids.short(str(launch["launch"])),
            "-",
            str(launch["site"]),
            "inactive",
            *"-----",
            session.when(launch["planned"]),
            str(launch["batch_job"] or "-"),
        ]
        for launch in reply.get("inactive") or []
    ]
    # A terminal has 80 columns: empty columns are not shown.
    shown = [n for n, column in enumerate(columns) if not _spare(column, [row[n] for row in rows])]
    rows = [[row[n] for n in shown] for row in rows]
    if rows:
        session.out.table([columns[n] for n in shown], rows)
    for pilot in reply["pilots"]:
        if pilot.get("drain") and pilot.get("state") != "gone":
            session.out.say(
                f"{ids.short(str(pilot['id']))} is draining, ordered by {neutral.line(str(pilot['drain']))}"
            )
    if not any(pilot.get("state") != "gone" for pilot in reply["pilots"]):
        session.out.say("No pilot is alive, so no job runs. To start one: forestay pilot --help")


def _spare(column: Column, values: list[str]) -> bool:
    return column.heading in ("GPUS", "BATCH JOB") and all(value in ("0", "-") for value in values)


def _state(pilot: dict[str, Any]) -> str:
    """The activity of a living pilot; otherwise its state."""
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
