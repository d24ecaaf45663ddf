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
    jobs_per_day: Annotated[float, typer.Option(metavar="N", min=1, max=1e12, help="Jobs per day, such as 1e7.")],
    pilots: Annotated[float, typer.Option(metavar="N", min=0, max=1e9, help="Pilots at the same time.")] = 100,
    peak: Annotated[
        float,
        typer.Option(metavar="N", min=1, max=1000, help="Load of the busiest minutes, as a multiple of the mean."),
    ] = 5.0,
    lease: Annotated[
        str, typer.Option(metavar="TIME", help="Time after which a silent pilot loses its claims.")
    ] = "10m",
    failures: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=0.9, help="Share of attempts that fail.")
    ] = 0.05,
    keep_days: Annotated[
        int, typer.Option(metavar="N", min=1, max=3660, help="Days that finished jobs are kept.")
    ] = 30,
    keep_incidents_days: Annotated[
        int, typer.Option(metavar="N", min=1, max=36_500, help="Days that closed incidents are kept.")
    ] = 730,
    keep_keys_days: Annotated[
        int, typer.Option(metavar="N", min=1, max=36_500, help="Days that idempotency keys are kept.")
    ] = 365,
    jobs_each_request: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Jobs of one submission.")
    ] = 100,
) -> int:
    """Calculate how large an installation must be. Servers, reconcilers, orchestrators, nodes and shards of the store, Temporal's history.

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
    load = Load(
        jobs_per_day,
        int(pilots),
        peak,
        seconds,
        failures,
        keep_days,
        keep_incidents_days,
        keep_keys_days,
        jobs_each_request,
    )
    made = planned(load)
    if out.as_json:
        out.document({"load": asdict(load), "costs": asdict(MEASURED), "plan": asdict(made)})
        return ExitCode.OK
    rows = [
        (
            "servers",
            str(made.servers),
            f"{made.server_cores:.2f}",
            f"{made.heartbeats:,.0f} heartbeats per second included; each holds {made.sockets:,} connections of pilots, {made.sockets_one_down:,} with one server down",
        ),
        ("reconcilers", str(made.reconcilers), f"{made.reconciler_cores:.2f}", f"{load.failures:.0%} of attempts fail"),
        ("orchestrators", str(made.orchestrators), f"{made.orchestrator_cores:.2f}", "if flows are used"),
        ("Temporal", "", f"{made.temporal_cores:.2f}", f"{made.temporal_events_per_day:,.0f} events per day"),
        (
            "store",
            f"{made.store_nodes} nodes",
            f"{made.store_cores:.2f}",
            f"{made.store_cores_each} cores each, {made.shards} shard{'s' * (made.shards > 1)}, {made.store_bytes / 1e9:,.0f} GB for jobs of {load.keep_days} days, incidents of {max(load.keep_days, load.keep_incidents_days)}, keys of {max(load.keep_days, load.keep_keys_days)}",
        ),
    ]
    out.data(f"{made.mean:,.1f} jobs per second, {made.peak:,.0f} at the peak: the {made.profile} profile.")
    out.data("")
    columns = [Column("COMPONENT"), Column("NUMBER"), Column("CORES AT THE PEAK", right=True), Column("")]
    out.table(columns, rows)
    out.data("")
    out.data(
        f"Cores are planned at half load, and there are two of each so that one may fail. Calculated from costs measured with short jobs on a"
        f" small machine (a job {1e6 * (MEASURED.server_job + MEASURED.store_job + MEASURED.reconciler_job):.0f} µs of server, store and reconciler; --json has"
        " them all): try a tenth of it before you buy."
    )
    return ExitCode.OK
