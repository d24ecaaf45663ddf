"""`forestay sites`: the batch systems whose agents send pilots, and how each of them stands."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, moment, size
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

Site = dict[str, Any]


def sites(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="[SITE]", help="The site to look at closely.")] = None,
) -> int:
    """Show the sites that send pilots. How many wait, stand idle and are busy, and what troubles a site. With a name, one of them closely.

    forestay sites hall
    """
    from forestay.client.api import site_calls

    if name is not None:
        return _closely(session, session.client.send(site_calls.site(name)))
    found = [session.client.send(site_calls.site(one["site"])) for one in session.client.send(site_calls.sites())]
    if session.out.as_json:
        session.out.document({"sites": found})
        return ExitCode.OK
    rows = [
        [
            one["site"],
            _standing(one),
            str(one["said"]["batch"]),
            *(str(one["demand"]["pilots"][state]) for state in ("inactive", "idle", "busy")),
            f"{one['said']['min_pilots']}-{one['said']['max_pilots']}",
            str(sum(group["tasks"] for group in one["demand"]["groups"])),
            moment(one["seen"]),
            str(one["said"]["trouble"]),
        ]
        for one in found
    ]
    columns = [
        Column("SITE"), Column("AGENT", style=_colour), Column("BATCH"), Column("WAITING", right=True), Column("IDLE", right=True),
        Column("BUSY", right=True), Column("ALLOWED", right=True), Column("QUEUED", right=True), Column("SEEN"), Column("TROUBLE", widest=80),
    ]  # fmt: skip
    if rows:
        session.out.table(columns, rows)
    else:
        session.out.say("No site agent was ever here. `forestay site --help` says how to start one.")
    return ExitCode.OK


def _standing(site: Site) -> str:
    if site["overdue"]:
        return "silent"
    return "troubled" if site["said"]["trouble"] else "well"


def _colour(standing: str) -> str:
    return {"well": "green", "troubled": "yellow", "silent": "red"}.get(standing, "")


def _closely(session: Session, site: Site) -> int:
    if session.out.as_json:
        session.out.document(site)
        return ExitCode.OK
    said, demand = site["said"], site["demand"]
    out = session.out
    out.data(f"Site {neutral.line(site['site'])}: {_standing(site)}")
    out.data(
        f"  agent    on {neutral.line(site['host'])}, seen {moment(site['seen'])}, looks every {lasting(site['every'])}"
    )
    if said["trouble"]:
        out.data(f"  trouble  {neutral.line(said['trouble'])}")
    counts = demand["pilots"]
    out.data(
        f"  pilots   {counts['inactive']} waiting, {counts['idle']} idle, {counts['busy']} busy;"
        f" {said['min_pilots']} to {said['max_pilots']} are allowed, {said['min_idle']} kept idle"
    )
    if said["paced"]:
        out.data(f"  held     {said['paced']} more are wanted and wait for the pace toward the scheduler")
    for group in demand["groups"]:
        fits = "" if group["name"] not in said["unfit"] else "; no pilot of this site can run them"
        out.data(f"  queued   {group['tasks']} jobs with {_need(group['need'])}{fits}")
    launches = [*demand["launches"], *site["ended"]]
    rows = [
        [
            one["launch"][:12],
            one["size"],
            one["state"],
            one["batch_job"] or "-",
            one["pilot"] or "-",
            moment(one["planned"]),
            _end(one["end"]),
        ]
        for one in launches
    ]
    columns = [
        Column("LAUNCH"), Column("SIZE"), Column("STATE"), Column("BATCH JOB"), Column("PILOT"), Column("PLANNED"), Column("END", widest=90),
    ]  # fmt: skip
    if rows:
        out.table(columns, rows)
    return ExitCode.OK


def _need(need: Site) -> str:
    parts = [f"{need['cpus']} cpus"]
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
