"""`forestay cases`: the flows that run and ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli.amounts import elapsed, moment, read_moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.flows.case_tree import COLOURS
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.paging import newest
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.answers import Case


def cases(
    session: Session,
    name: Annotated[
        str | None, typer.Option("--flow", "-n", metavar="NAME", help="Of the flow with this name.")
    ] = None,
    version: Annotated[str | None, typer.Option(metavar="HASH", help="Of this version of a flow.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", "-t", metavar="STATE", help="running, suspended, completed, failed, …")
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", "-u", metavar="NAME", help="Of this owner.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Your own.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 50,
    ids: Annotated[bool, typer.Option("--ids", help="Ids alone, one a line.")] = False,
) -> None:
    """List cases, the newest first.

    forestay cases --me --state running
    """
    wanted: dict[str, Any] = {"name": name, "version": version, "state": state, "owner": owner}
    if me:
        wanted["owner"] = whoami(session)
    filters = {key: value for key, value in wanted.items() if value}
    found, more = newest(lambda many, cursor: session.client.find_cases(filters, limit=many, cursor=cursor), limit)
    if session.out.as_json:
        session.out.document({"cases": found})
        return
    if ids:
        for one in found:
            session.out.data(one["id"])
        return
    columns = [
        Column("CASE"), Column("FLOW", widest=40), Column("STATE", style=lambda text: COLOURS.get(text.strip(), "")),
        Column("OWNER", widest=20), Column("STARTED"), Column("TIME", right=True),
    ]  # fmt: skip
    rows = [
        [one["id"][:8], one["name"], one["state"], one["owner"], moment(one["started"]), _lasted(session, one)]
        for one in found
    ]
    session.out.table(columns, rows)
    if not rows:
        session.out.say("There are no such cases. To run a flow: forestay run FLOW.yaml")
    elif more:
        session.out.say(f"These are the newest {len(rows):,}; -n, -t, -u and --limit choose others.")


def _lasted(session: Session, case: Case) -> str:
    began, ended = read_moment(case["started"]), read_moment(case["ended"]) or session.client.now()
    return elapsed((ended - began).total_seconds()) if began else "-"
