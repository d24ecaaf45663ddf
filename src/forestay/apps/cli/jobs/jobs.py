"""`forestay jobs`: search and count jobs by any of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli.amounts import lasting, parse_moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.jobs import squeue
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.jobs.submit import duration_option, pairs, size_option
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job


def moment_option(text: str) -> str:
    try:
        return parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


_Many = list[str] | None


@lists
def jobs(
    session: Session,
    state: Annotated[
        _Many,
        typer.Option("--state", "-t", metavar="STATE", help="State, ours or squeue's; repeatable, as are those below."),
    ] = None,
    owner: Annotated[_Many, typer.Option("--owner", "-u", metavar="NAME", help="Owner.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Only your own jobs.")] = False,
    team: Annotated[_Many, typer.Option("--team", metavar="NAME", help="Team.")] = None,
    name: Annotated[_Many, typer.Option("--name", "-n", metavar="NAME", help="Name.")] = None,
    specification: Annotated[_Many, typer.Option("--specification", metavar="ID", help="Specification.")] = None,
    pilot: Annotated[_Many, typer.Option("--pilot", metavar="ID", help="Pilot.")] = None,
    host: Annotated[_Many, typer.Option("--host", "-w", metavar="NAME", help="Host.")] = None,
    label: Annotated[_Many, typer.Option("--label", metavar="KEY=VALUE", help="Label.")] = None,
    resource_class: Annotated[_Many, typer.Option("--resource-class", metavar="CLASS", help="Resource class.")] = None,
    flow_run: Annotated[_Many, typer.Option("--run", metavar="RUN", help="Run.")] = None,
    held: Annotated[bool | None, typer.Option("--held/--not-held", help="Held by someone, or not.")] = None,
    min_priority: Annotated[int | None, typer.Option(metavar="N", help="Priority from.")] = None,
    max_priority: Annotated[int | None, typer.Option(metavar="N", help="Priority up to.")] = None,
    min_expected_runtime: Annotated[
        int | None, typer.Option(parser=duration_option, metavar="TIME", help="Expected runtime from.")
    ] = None,
    max_expected_runtime: Annotated[
        int | None, typer.Option(parser=duration_option, metavar="TIME", help="Expected runtime up to.")
    ] = None,
    min_retries: Annotated[int | None, typer.Option(metavar="N", help="Retried at least this often.")] = None,
    min_cpus: Annotated[int | None, typer.Option(metavar="N", help="CPUs from.")] = None,
    max_cpus: Annotated[int | None, typer.Option(metavar="N", help="CPUs up to.")] = None,
    min_memory: Annotated[int | None, typer.Option(parser=size_option, metavar="SIZE", help="Memory from.")] = None,
    max_memory: Annotated[int | None, typer.Option(parser=size_option, metavar="SIZE", help="Memory up to.")] = None,
    min_gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs from.")] = None,
    created_after: Annotated[
        str | None,
        typer.Option(
            "--created-after",
            "--since",
            "-S",
            parser=moment_option,
            metavar="TIME",
            help="Submitted after: 2026-05-01, 12:30, 2h.",
        ),
    ] = None,
    created_before: Annotated[
        str | None,
        typer.Option(
            "--created-before", "--until", "-E", parser=moment_option, metavar="TIME", help="Submitted before."
        ),
    ] = None,
    changed_after: Annotated[
        str | None,
        typer.Option("--changed-after", parser=moment_option, metavar="TIME", help="Changed after."),
    ] = None,
    exit_code: Annotated[
        int | None, typer.Option("--exit-code", metavar="N", help="The last attempt ended with this code.")
    ] = None,
    other: Annotated[
        _Many, typer.Option("--filter", metavar="NAME=VALUE", help="Any other filter of the interface; repeatable.")
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="FIELD", help="Field to sort by; with a leading - in descending order.")
    ] = "-created",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many.")] = 100,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All that match.")] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="FIELD", help="Count instead: by state, owner, team, name, host …")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Only ids, as with -o name.")] = False,
) -> None:
    """Search jobs, newest first, or count them.

    forestay jobs --state failed --since 2h --by host
    """
    filters: dict[str, Any] = {
        "state": _states(state or []), "owner": owner, "team": team, "name": name, "specification": _ids(session, "SPECIFICATION", specification), "pilot": _ids(session, "PILOT", pilot),
        "host": host, "label": label, "resource_class": resource_class, "held": held, "min_priority": min_priority,
        "run": [session.flow_run(other_name) for other_name in flow_run or ()], "max_priority": max_priority, "min_expected_runtime": min_expected_runtime, "max_expected_runtime": max_expected_runtime,
        "min_retries": min_retries, "min_cpus": min_cpus, "max_cpus": max_cpus, "min_memory": min_memory, "max_memory": max_memory,
        "min_gpus": min_gpus, "created_after": created_after, "created_before": created_before, "changed_after": changed_after,
    }  # fmt: skip
    if me:
        filters["owner"] = [*(owner or []), whoami(session)]
    if exit_code is not None:
        filters |= {"min_exit_code": exit_code, "max_exit_code": exit_code}
    filters = {key: value for key, value in filters.items() if value not in (None, [])} | pairs(other or (), "--filter")
    if by is not None:
        _count(session, by, filters)
        return
    out, client = session.out, session.client
    most = None if everything else limit
    form = "name" if ids else out.form
    if form == "name" or (out.as_json and everything):
        jobs = client.all_jobs(filters, sort=sort, most=most)
        if form == "name":
            for job in jobs:
                out.data(job["id"])
        else:
            out.documents("jobs", jobs)
        return
    rows = list(client.all_jobs(filters, sort=sort, most=most))
    if out.as_json:
        out.documents("jobs", rows)
    else:
        _table(session, rows)
    if most is not None and len(rows) == most:
        out.say(f"The first {most:,} are shown; there may be more: use --limit N or --all.")


def _ids(session: Session, kind: str, names: list[str] | None) -> list[str] | None:
    from forestay.client.api import naming

    return session.ids(getattr(naming, kind), names) if names else None


def _states(words: list[str]) -> list[str]:
    try:
        return list(dict.fromkeys(state for word in words for state in squeue.states_named(word)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _count(session: Session, by: str, filters: dict[str, Any]) -> None:
    counts = session.client.count_jobs(by.replace("-", "_"), filters)
    if session.out.as_json:
        session.out.document({"counts": counts})
        return
    print_counts(session, "JOBS", by, counts)


def print_counts(session: Session, what: str, by: str, counts: Mapping[str, int]) -> None:
    """Print the number of jobs for each value, the largest first."""
    rows = [
        [f"{many:,}", value or "-"] for value, many in sorted(counts.items(), key=lambda count: (-count[1], count[0]))
    ]
    rows.append([f"{sum(counts.values()):,}", "in all"])
    session.out.table([Column(what, right=True), Column(by.upper())], rows)


def _table(session: Session, jobs: list[Job]) -> None:
    ids, now = session.short_ids(job["id"] for job in jobs), session.client.now()
    columns = [
        Column("JOBID"), Column("NAME", flexible=True), Column("OWNER", flexible=True), Column("STATE", style=_colour), Column("TRY", right=True),
        Column("EXIT", right=True), Column("RAN", right=True), Column("SUBMITTED"), Column("HOST", flexible=True), Column("RUN", wide=True),
    ]  # fmt: skip
    rows = [
        [
            ids.short(job["id"]),
            job["name"] + ("" if job["index"] is None else f"[{job['index']}]"),
            job["owner"],
            job["state"] + (" (held)" if job["held"] else ""),
            f"{job['attempt']}/{max(job['attempt'], job['max_attempts'])}",  # a rule or a person may have increased it
            _exit(job),
            lasting(used) if (used := squeue.time_used(job, now)) else "-",
            session.when(job["created"]),
            job["claim"]["host"] if job["claim"] else (job["last"] or {}).get("host", ""),
            str(job.get("run") or "-"),
        ]
        for job in jobs
    ]
    session.out.table(columns, rows)


def _exit(job: Job) -> str:
    last = job["last"]
    if not last:
        return "-"
    return (
        f"sig {last['signal']}"
        if last.get("signal")
        else "-"
        if last.get("exit_code") is None
        else str(last["exit_code"])
    )


def _colour(state: str) -> str:
    return {"running": "green", "faulted": "red", "failed": "red", "completed": "", "cancelled": "dim"}.get(
        state.split()[0], ""
    )
