"""`forestay sites`: the batch systems whose agents start pilots, and their status."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, size
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

Site = dict[str, Any]


@lists
def list_sites(session: Session) -> int:
    """List sites with their pilots and queued jobs.

    forestay sites list
    """
    from forestay.client.api import site_calls

    replies = [
        session.client.send(site_calls.site(record["site"])) for record in session.client.send(site_calls.sites())
    ]
    columns = [
        Column("SITE"), Column("AGENT", style=_colour), Column("BATCH"), Column("WAITING", right=True), Column("IDLE", right=True),
        Column("BUSY", right=True), Column("ALLOWED", right=True), Column("QUEUED", right=True), Column("SEEN"), Column("TROUBLE", flexible=True),
    ]  # fmt: skip
    session.print_list(
        "sites", replies, columns, lambda site: _row(session, site), key=lambda site: str(site["site"]),
        empty="No site agent has reported yet. To start one: forestay site --help",
    )  # fmt: skip
    return ExitCode.OK


def _row(session: Session, site: Site) -> list[str]:
    return [
        site["site"],
        _status(site),
        str(site["said"]["batch"]),
        *(str(site["demand"]["pilots"][state]) for state in ("inactive", "idle", "busy")),
        f"{site['said']['min_pilots']}-{site['said']['max_pilots']}",
        str(sum(group["tasks"] for group in site["demand"]["groups"])),
        session.when(site["seen"]),
        str(site["said"]["trouble"]),
    ]


def show(session: Session, name: Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]) -> int:
    """Show one site with its launches and problems.

    forestay sites show hall
    """
    from forestay.client.api import site_calls

    return _closely(session, session.client.send(site_calls.site(name)))


def _status(site: Site) -> str:
    if site["overdue"]:
        return "silent"
    return "troubled" if site["said"]["trouble"] else "well"


def _colour(status: str) -> str:
    return {"well": "green", "troubled": "yellow", "silent": "red"}.get(status, "")


def _closely(session: Session, site: Site) -> int:
    if session.out.as_json:
        session.out.document(site)
        return ExitCode.OK
    report, demand = site["said"], site["demand"]
    out = session.out
    out.data(f"Site {neutral.line(site['site'])}: {_status(site)}")
    out.data(
        f"  agent    on {neutral.line(site['host'])}, seen {session.when(site['seen'])}, polls every {lasting(site['every'])}"
    )
    if report["trouble"]:
        out.data(f"  trouble  {neutral.line(report['trouble'])}")
    submitter = "jobs run as the Unix users of those who submitted them"
    own = report.get("run_as") == "submitter"
    out.data(f"  users    {submitter if own else 'all jobs run as one Unix user, that of the agent'}")
    if unmapped := report.get("unmapped"):
        out.data(f"  unmapped {neutral.line(', '.join(unmapped[:20]))}: no Unix user here, so their jobs wait")
    counts = demand["pilots"]
    out.data(
        f"  pilots   {counts['inactive']} waiting, {counts['idle']} idle, {counts['busy']} busy;"
        f" {report['min_pilots']} to {report['max_pilots']} are allowed, {report['min_idle']} kept idle"
    )
    if report["paced"]:
        out.data(f"  held     {report['paced']} more are needed and wait for the submission rate limit")
    for group in demand["groups"]:
        fits = "" if group["name"] not in report["unfit"] else "; no pilot of this site can run them"
        whose = f" of {neutral.line(group['owner'])}" if group.get("owner") else ""
        out.data(f"  queued   {group['tasks']} jobs{whose} with {_need(group['need'])}{fits}")
    launches = [*demand["launches"], *site["ended"]]
    ids = session.short_ids(launch["launch"] for launch in launches)
    rows = [
        [
            ids.short(launch["launch"]),
            "/".join(filter(None, (launch["size"], launch.get("owner", "")))),
            launch["state"],
            launch["batch_job"] or "-",
            short(launch["pilot"]) or "-",
            session.when(launch["planned"]),
            _end(launch["end"]),
        ]
        for launch in launches
    ]
    columns = [
        Column("LAUNCH"), Column("SIZE"), Column("STATE"), Column("BATCH JOB"), Column("PILOT"), Column("PLANNED"), Column("RESULT", flexible=True),
    ]  # fmt: skip
    if rows:
        out.table(columns, rows)
    return ExitCode.OK


def _need(need: Site) -> str:
    nodes = need.get("nodes", 1)
    parts = [f"{nodes} nodes, each {need['cpus']} cpus" if nodes > 1 else f"{need['cpus']} cpus"]
    parts += [f"{size(need[name])} {name}" for name in ("memory", "disk") if need[name]]
    parts += [f"{need['gpus']} gpus"] if need["gpus"] else []
    parts += [f"{lasting(need['wall'])} at most"] if need.get("wall") else []
    return ", ".join(parts)


def _end(end: Site | None) -> str:
    if end is None:
        return "-"
    words = [str(end["word"])]
    if end["exit_code"]:
        words.append(f"exit code {end['exit_code']}")
    if end["reason"]:
        words.append(str(end["reason"]))
    return ", ".join(words)
