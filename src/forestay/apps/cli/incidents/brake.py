"""`forestay brake`: what holds the rules back, and the switch that stops them all."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

_ID = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
"""Rules are named by what stands before their first dash, here as elsewhere."""
_METERS = {
    "global": "all acts",
    "owner": "acts, owner",
    "site": "acts, site",
    "rule": "acts, rule",
    "tenant-hours": "core-hours",
    "owner-hours": "core-hours, owner",
}


def brake(
    session: Session,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[show|stop|go|try|all]",
            help="Show what brakes; stop all acts of rules or let them go on; try a rule on a held group again, or let it act on all.",
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why; kept in the audit log.")
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="With stop and go: in all tenants (administrators of the house).")
    ] = False,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="With try and all: the group of a storm.")
    ] = None,
    rule: Annotated[
        str, typer.Option("--rule", metavar="RULE", help="With try and all: the rule; without it the house's ladder.")
    ] = "",
) -> int:
    """Show what holds rules back; stop them, or let them go on. `stop` ends all their acts, `go` lets them go on. Jobs run on; faults wait, and none is lost.

    forestay brake stop --reason "the file system is being moved"
    """
    from forestay.client.api import brake_calls

    if action in (None, "show"):
        return _show(session, session.client.send(brake_calls.brakes()))
    if action not in ("stop", "go", "try", "all"):
        raise typer.BadParameter(f"{action!r} is none of show, stop, go, try and all")
    if not reason:
        raise typer.BadParameter(f"{action} wants --reason: others will ask why")
    if action in ("try", "all"):
        if not group:
            raise typer.BadParameter(f"{action} wants --group; `forestay brake` shows the groups")
        told = session.client.send(brake_calls.decide_group(group, rule, action, reason=reason))
        if session.out.as_json:
            session.out.document(told)
        else:
            session.out.data(f"{neutral.line(told['id'])} {_tried(told)}")
        return ExitCode.OK
    call = brake_calls.stop_acts if action == "stop" else brake_calls.let_acts_go_on
    told = session.client.send(call(reason=reason, everywhere=everywhere))
    if session.out.as_json:
        session.out.document(told)
    else:
        _stops(session, told["stops"])
    return ExitCode.OK


def _stops(session: Session, stops: list[dict[str, Any]]) -> None:
    if not stops:
        session.out.data("Rules may act.")
    for one in stops:
        where = "everywhere" if one["everywhere"] else "here"
        who = f"by {one['by']} at {moment(one['at'])}: {one['why'] or 'no reason was given'}"
        session.out.data(f"{session.out.paint('Stopped', 'red')} {where} {neutral.line(who)}")


def _show(session: Session, told: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(told)
        return ExitCode.OK
    _stops(session, told["stops"])
    if told["groups"]:
        session.out.data()
        columns = [Column("GROUP"), Column("FAULTS", right=True), Column("SINCE"), Column("TRIED")]
        rows = [[one["id"], f"{one['faults']:,}", moment(one["opened"]), _tried(one)] for one in told["groups"]]
        session.out.table(columns, rows)
    if told["limits"]:
        session.out.data()
        columns = [
            Column("LIMIT"),
            Column("OF"),
            Column("ALLOWED", right=True),
            Column("FREE", right=True),
            Column("IN"),
        ]
        session.out.table(columns, [_limit(one) for one in told["limits"]])
    return ExitCode.OK


def _tried(group: dict[str, Any]) -> str:
    words = {"trying": "being tried", "all": "acts on all", "held": "failed, waits for a person"}
    said = [
        f"{one['rule'] or 'the ladder'}: {words[one['state']]} ({one['well']} well, {one['bad']} bad)"
        for one in group["tried"]
    ]
    return "; ".join(said) or "nothing yet"


def _limit(one: dict[str, Any]) -> list[str]:
    unit = 3600 if one["meter"].endswith("hours") else 1
    span = "24 h" if one["seconds"] == 86_400 else f"{one['seconds'] // 60} min"
    return [
        _METERS.get(one["meter"], one["meter"]), _ID.sub(r"\1", one["key"]) or "-", f"{one['allowed'] // unit:,}", f"{one['free'] // unit:,}", span,
    ]  # fmt: skip
