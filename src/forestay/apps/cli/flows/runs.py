"""`forestay runs list` and `show`: the runs of flows, active and ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import elapsed, read_moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.flows.run import RUN
from forestay.apps.cli.flows.run_tree import COLOURS, Tree
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.paging import newest
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunJson

HELD = "suspended,held,asking"


@lists
def list_runs(
    session: Session,
    name: Annotated[
        str | None, typer.Option("--flow", "-n", metavar="NAME", help="Only of the flow with this name.")
    ] = None,
    version: Annotated[str | None, typer.Option(metavar="HASH", help="Only of this version of a flow.")] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", "-t", metavar="STATE", help="running, suspended, held, completed, failed, …"),
    ] = None,
    owner: Annotated[str | None, typer.Option("--owner", "-u", metavar="NAME", help="Only of this owner.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Only your own.")] = False,
    held: Annotated[bool, typer.Option("--held", help="Only those that wait until somebody decides.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many.")] = 50,
) -> None:
    """List runs, newest first.

    forestay runs list --me --state running
    """
    wanted: dict[str, Any] = {"name": name, "state": HELD if held else state, "owner": owner}
    if version:
        from forestay.client.api.naming import FLOW

        (wanted["version"],) = session.ids(FLOW, [version])
    if me:
        wanted["owner"] = whoami(session)
    filters = {key: value for key, value in wanted.items() if value}
    runs, more = newest(lambda many, cursor: session.client.find_runs(filters, limit=many, cursor=cursor), limit)
    ids = session.short_ids(run["id"] for run in runs)
    columns = [
        Column("RUN"), Column("FLOW", flexible=True), Column("STATE", style=lambda text: COLOURS.get(text.strip(), "")),
        Column("OWNER", flexible=True), Column("STARTED"), Column("TIME", right=True), Column("VERSION", wide=True),
    ]  # fmt: skip
    session.print_list(
        "runs", runs, columns, key=lambda run: run["id"],
        row=lambda run: [
            ids.short(run["id"]), run["name"], run["state"], run["owner"], session.when(run["started"]), _lasted(session, run), run["version"],
        ],
        empty="There are no such runs. To run a flow: forestay run FLOW.yaml",
    )  # fmt: skip
    if held and runs:
        session.out.say("See who can release a run, and how: forestay runs show RUN")
    if more:
        session.out.say(f"These are the newest {len(runs):,}; use -n, -t, -u or --limit to see others.")


def show(session: Session, run: Annotated[str, RUN]) -> None:
    """Show a run with its tasks and their states.

    forestay runs show 4f1c9d2a
    """
    found_run = session.client.run(session.flow_run(run))
    if session.out.as_json:
        session.out.document({"run": found_run})
        return
    out, tree = session.out, Tree(found_run, session.client.now())
    out.data(out.paint(tree.head(), "bold"))
    out.data(out.paint(found_run["id"], "dim"))
    for line in tree.lines((out.width or 200) - 2):
        more = out.paint(line.more, "" if line.colour == "red" else "dim")
        out.data(f"  {out.paint(line.rails, 'dim')}{out.paint(line.mark, line.colour)} {line.text}  {more}".rstrip())
    if found_run["schedule"]:
        out.data(neutral.line(f"  started by the schedule {found_run['schedule']}"))
    for wait in found_run["waits"]:
        out.data(neutral.line(f"  {wait['task'] or 'the run'}: {wait['words']}"))
        out.data(neutral.line(f"    {wait['who']} can release it{': ' if wait['command'] else ''}{wait['command']}"))
    for name, value in found_run["outputs"].items():
        out.data(neutral.line(f"  {name}: {value}"))
    if found_run["reason"]:
        out.data(neutral.line(f"  {found_run['reason']}"))


def _lasted(session: Session, run: RunJson) -> str:
    began, ended = read_moment(run["started"]), read_moment(run["ended"]) or session.client.now()
    return elapsed((ended - began).total_seconds()) if began else "-"
