"""`forestay queue`: the queue in squeue's format."""

from __future__ import annotations

import sys
import time
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli.command import seconds
from forestay.apps.cli.ids import ShortIds
from forestay.apps.cli.jobs import squeue
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

SHOWN = 1000
"""The number of jobs shown unless more are requested."""


def queue(
    session: Session,
    me: Annotated[bool, typer.Option("--me", help="Only your own jobs.")] = False,
    user: Annotated[
        str | None, typer.Option("--user", "-u", metavar="USERS", help="Only jobs of these users (a,b).")
    ] = None,
    states: Annotated[
        str | None,
        typer.Option(
            "--states", "-t", metavar="STATES", help="PD, R, SE, CD, F, CA, H or names; `all` (not yet ended)."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-n", metavar="NAMES", help="Only jobs with these names (a,b).")
    ] = None,
    account: Annotated[
        str | None, typer.Option("--account", "-A", metavar="TEAMS", help="Only jobs of these teams.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="CLASSES", help="Only jobs of these resource classes.")
    ] = None,
    host: Annotated[
        str | None, typer.Option("--nodelist", "-w", metavar="HOSTS", help="Only jobs on these hosts.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", "-o", metavar="FORMAT", help='squeue\'s format, such as "%.10i %j %T"; or json, name, wide.'
        ),
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Waiting jobs with their earliest start time.")] = False,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Whole ids and names, states in words, time limits.")
    ] = False,
    iterate: Annotated[
        float | None,
        typer.Option("--iterate", "-i", parser=seconds, metavar="SECONDS", help="Repeat at this interval."),
    ] = None,
    noheader: Annotated[bool, typer.Option("--noheader", "-h", help="Omit the headings.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many jobs.")] = SHOWN,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All jobs, however many.")] = False,
) -> None:
    """Show the queue in squeue's columns.

    forestay queue --me -t PD,R
    """
    if form in {"json", "name", "wide"}:
        session.out.as_json = session.out.as_json or form == "json"
        long = long or form == "wide"
        form = {"json": None, "name": "%i", "wide": None}[form]
        noheader = noheader or form == "%i"
        long = long or form == "%i"
    filters: dict[str, Any] = {
        "owner": _several(user), "name": _several(name), "team": _several(account),
        "resource_class": _several(partition), "host": _several(host),
    }  # fmt: skip
    if me:
        filters["owner"] = [whoami(session)]
    filters = {key: value for key, value in filters.items() if value}
    wanted: tuple[str, ...] = squeue.OPEN_STATES
    try:
        if states is not None:
            wanted = squeue.states_named(states)
            filters |= {"held": True} if squeue.only_held(states) else {}
        elif start:
            wanted = ("available",)
        if form is not None:
            squeue.formatted(form, [], heading=False)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    most = None if everything else limit
    while True:
        _show(
            session,
            wanted,
            filters,
            most,
            form=form,
            start=start,
            long=long,
            heading=not noheader,
            again=iterate is not None,
        )
        if iterate is None:
            return
        time.sleep(iterate)


def _several(text: str | None) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()] if text else []


def _show(
    session: Session, states: tuple[str, ...], filters: dict[str, Any], most: int | None,
    *, form: str | None, start: bool, long: bool, heading: bool, again: bool,
) -> None:  # fmt: skip
    out, client = session.out, session.client
    found_chain = chain.from_iterable(
        client.all_jobs({**filters, "state": state}, sort=_order(state), most=most) for state in states
    )
    jobs: list[Job] = list(islice(found_chain, most))
    if out.as_json:
        if again:
            out.event({"jobs": jobs})
        else:
            out.documents("jobs", jobs)
    else:
        now, names = client.now(), ShortIds((job["id"] for job in jobs), whole=long)
        shown = [squeue.QueueEntry(job, now, names) for job in jobs]
        if form is not None:
            lines = squeue.formatted(form, shown, heading=heading)
        else:
            width = None if long else out.width
            lines = squeue.queue_table(shown, long=long, starts=start, heading=heading, paint=out.paint, width=width)
        if again:
            lines.insert(0, now.astimezone().strftime("%a %b %d %H:%M:%S %Y"))
            if out.to_terminal:
                lines[0] = "\x1b[H\x1b[2J" + lines[0]
        for line in lines:
            out.data(line)
        sys.stdout.flush()
    if most is not None and len(jobs) >= most:
        counts = client.count_jobs("state", {**filters, "state": states})
        total = sum(counts.values())
        if total > len(jobs):
            out.say(
                f"{len(jobs):,} of {total:,} jobs are shown; use --all for all of them, `forestay jobs --by state` to count them."
            )


def _order(state: str) -> str:
    """Waiting jobs in the order of their turn; the others newest first."""
    return "rank" if state == "available" else "-changed"


def whoami(session: Session) -> str:
    """The identity of the token, as reported by the server."""
    from forestay.client.transport.errors import BadAnswer

    you = session.client.status().get("you")
    subject = you.get("subject") if isinstance(you, dict) else None
    if not subject:
        raise BadAnswer("the server does not say who you are; use -u NAME")
    return str(subject)
