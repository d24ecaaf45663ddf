"""Actions on many runs at once: those that a filter finds, listed before anything is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.paging import newest
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunJson

RUN = typer.Argument(
    metavar="[RUN]", help="A run's id, or the beginning of it; or choose several by --flow, --state or --owner."
)
FlowFilter = Annotated[str, typer.Option("--flow", metavar="NAME", help="All runs of the flow with this name.")]
StateFilter = Annotated[str, typer.Option("--state", metavar="STATE", help="All runs in this state.")]
OwnerFilter = Annotated[str, typer.Option("--owner", metavar="NAME", help="All runs of this owner.")]
MOST = 1000
SHOWN = 10


def for_each(
    session: Session,
    run: str,
    filters: dict[str, str],
    fits: Callable[[RunJson], bool],
    what: str,
    act: Callable[[str], int],
    *,
    yes: bool,
) -> int:
    """Act on the named run, or on all that the filters find and that ``fits``, after a person has seen them."""
    wanted: dict[str, Any] = {name: value for name, value in filters.items() if value}
    if run and wanted:
        raise typer.BadParameter("name a run, or choose several by --flow, --state or --owner; not both")
    if run:
        return act(run)
    if not wanted:
        raise typer.BadParameter("name a run, or choose several by --flow, --state or --owner")
    found, more = newest(lambda many, cursor: session.client.find_runs(wanted, limit=many, cursor=cursor), MOST)
    runs = [summary for summary in found if fits(summary)]
    if not runs:
        session.out.say("There are no such runs. Nothing was changed.")
        return ExitCode.OK
    for summary in runs[:SHOWN]:
        session.out.say(
            f"  {summary['id']}  {neutral.line(summary['name'])} of {neutral.line(summary['owner'])}, {summary['state']}"
        )
    if len(runs) > SHOWN:
        session.out.say(f"  … and {len(runs) - SHOWN:,} more")
    if more:
        session.out.say(f"Only the newest {MOST:,} runs that match were looked at; repeat the command for the others.")
    if not session.sure(f"{what} {'this run' if len(runs) == 1 else f'these {len(runs):,} runs'}?", yes=yes):
        session.out.say("Nothing was changed.")
        return ExitCode.FAILED
    return max(_tried(session, act, summary["id"]) for summary in runs)


def _tried(session: Session, act: Callable[[str], int], run: str) -> int:
    """A refusal does not stop the others."""
    from forestay.client.transport.errors import ConflictError, NotAllowed, NotFoundError

    try:
        return act(run)
    except (ConflictError, NotAllowed, NotFoundError) as refused:
        session.out.say(f"{run}: {neutral.line(str(refused))}")
        return ExitCode.FAILED
