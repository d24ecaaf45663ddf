"""`forestay plan`: how large an installation must be."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from forestay.apps.cli.amounts import parse_duration
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def plan(
    session: Session,
    jobs_per_day: Annotated[float, typer.Option(metavar="N", min=1, max=1e12, help="Jobs a day: 1e7 may be written.")],
    pilots: Annotated[float, typer.Option(metavar="N", min=0, max=1e9, help="Pilots at the same time.")] = 100,
    peak: Annotated[
        float, typer.Option(metavar="N", min=1, max=1000, help="The busiest minutes, as so many times the mean.")
    ] = 5.0,
    lease: Annotated[str, typer.Option(metavar="TIME", help="How long a silent pilot keeps its claims.")] = "10m",
    faults: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=0.9, help="The share of attempts that fail.")
    ] = 0.05,
    keep_days: Annotated[int, typer.Option(metavar="N", min=1, max=3660, help="Days that ended jobs are kept.")] = 30,
) -> int:
    """Say how large an installation must be. Servers, keepers, workers, nodes and shards of the store, Temporal's history.

    forestay plan --jobs-per-day 1e7 --pilots 1e5
    """
    from forestay.client.api.sizing import MEASURED, Load
    from forestay.client.api.sizing import plan as planned

    out = session.out
    try:
        seconds = parse_duration(lease, bare_seconds=True)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--lease") from error
    if not 2 <= seconds <= 86_400:
        raise typer.BadParameter("a lease is between 2 s and a day", param_hint="--lease")
    load = Load(jobs_per_day, int(pilots), peak, seconds, faults, keep_days)
    made = planned(load)
    if out.as_json:
        out.document({"load": asdict(load), "costs": asdict(MEASURED), "plan": asdict(made)})
        return ExitCode.OK
    rows = [
        (
            "servers",
            str(made.servers),
            f"{made.server_cores:.2f}",
            f"{made.beats:,.0f} beats a second among it; each holds {made.sockets:,} connections of pilots, {made.sockets_one_down:,} with one server down",
        ),
        ("keepers", str(made.keepers), f"{made.keeper_cores:.2f}", f"{load.faults:.0%} of attempts fail"),
        ("workers", str(made.workers), f"{made.worker_cores:.2f}", "if there are flows"),
        ("Temporal", "", f"{made.temporal_cores:.2f}", f"{made.temporal_events_per_day:,.0f} events a day"),
        (
            "store",
            f"{made.store_nodes} nodes",
            f"{made.store_cores:.2f}",
            f"{made.store_cores_each} cores each, {made.shards} shard{'s' * (made.shards > 1)}, {made.store_bytes / 1e9:,.0f} GB for {load.keep_days} days",
        ),
    ]
    out.data(f"{made.mean:,.1f} jobs a second, {made.peak:,.0f} at the peak: the {made.profile} profile.")
    out.data("")
    columns = [Column("PART"), Column("HOW MANY"), Column("CORES AT THE PEAK", right=True), Column("")]
    out.table(columns, rows)
    out.data("")
    out.data(
        f"Half of a core is planned for, and two of each so that one may be down. From costs measured with short jobs on a"
        f" small machine (a job {1e6 * (MEASURED.server_job + MEASURED.store_job + MEASURED.keeper_job):.0f} µs of server, store and keeper; --json has"
        " them all): try a tenth of it before you buy."
    )
    return ExitCode.OK
