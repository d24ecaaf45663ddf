"""The commands that inspect the installation: alerts, events, status, config."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli import session as session_of_verbs
from forestay.apps.cli.amounts import moment, number_of
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.ids import short
from forestay.apps.cli.jobs import squeue
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.transport.event_stream import StreamEvent


@lists
def alerts(
    session: Session, limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most this many.")] = 50
) -> None:
    """List alerts, newest first.

    forestay alerts
    """
    alerts = session.client.alerts(limit=limit)
    ids = session.short_ids(str(alert.get("job") or "-") for alert in alerts)
    session.print_list(
        "alerts", alerts, [Column("TIME"), Column("ALERT"), Column("JOB"), Column("MESSAGE", flexible=True)],
        lambda alert: [
            session.when(alert.get("at")), str(alert.get("alert", "")), ids.short(str(alert.get("job") or "-")) or "-", str(alert.get("words", "")),
        ],
        key=lambda alert: str(alert.get("id", "")), empty="There are no alerts.",
    )  # fmt: skip


def events(
    session: Session,
    job: Annotated[
        list[str] | None, typer.Option("--job", "-j", metavar="JOB", help="Only these jobs; repeatable.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--states", "-t", metavar="STATES", help="Only changes into these states.")
    ] = None,
    owner: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="NAME", help="Only jobs of these owners; repeatable.")
    ] = None,
    me: Annotated[bool, typer.Option("--me", help="Only your own jobs.")] = False,
    team: Annotated[
        list[str] | None, typer.Option("--team", metavar="NAME", help="Only jobs of these teams; repeatable.")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", "-n", metavar="NAME", help="Only jobs with these names; repeatable.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Only jobs with this label.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, metavar="N", help="Exit after this many events.")
    ] = None,
) -> None:
    """Follow events of jobs, until Ctrl-C.

    forestay events --me
    """
    from forestay.client import Unavailable
    from forestay.client.api import calls

    filters: dict[str, Any] = {"owner": owner, "team": team, "name": name, "label": label}
    if job:
        filters["id"] = session.jobs(job)
    if me:
        filters["owner"] = [*(owner or []), whoami(session)]
    if state:
        try:
            filters["state"] = squeue.states_named(state)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    filters = {key: value for key, value in filters.items() if value}
    seen, last_id = 0, ""
    session.client.status()  # a wrong address or token is reported at once
    while True:
        try:
            with session.client.stream(calls.events(filters), last_id=last_id) as stream:
                for event in stream:
                    last_id = event.id or last_id
                    seen += _show(session, event)
                    if count is not None and seen >= count:
                        return
        except Unavailable as error:
            session.out.say(f"{neutral.line(str(error))}; reconnecting. Events in between are not shown.")
        time.sleep(session_of_verbs.REOPEN_AFTER)
        session.client.status()


def _show(session: Session, event: StreamEvent) -> int:
    """Show an event of a job; returns how many were shown."""
    import json

    if event.name == "lost":
        session.out.say("Events came faster than they were read; some are missing.")
    if event.name != "job":
        return 0
    body = json.loads(event.data)
    if session.out.as_json:
        session.out.event(body)
        return 1
    job, line = body["job"], body["transition"]
    at, paint = moment(line["at"]), session.out.paint
    state = paint(f"{line['state']:<9}", {"failed": "red", "faulted": "red", "running": "green"}.get(line["state"], ""))
    name = neutral.line(f"{job['name']}" + ("" if job["index"] is None else f"[{job['index']}]"))
    session.out.raw(f"{paint(at, 'dim')} {short(job['id'])} {state} {name}: {neutral.line(line['words'])}\n")
    return 1


def status(session: Session) -> None:
    """Show servers, store, open jobs and outcomes of failures.

    forestay status
    """
    status = session.client.status()
    if session.out.as_json:
        session.out.document(status)
        return
    you = status.get("you") or {}
    rows = [
        ("Server", f"{session.client.server} (version {status.get('version')}, {status.get('server')})"),
        ("Store", str(status.get("store"))),
        ("Lease", f"{status.get('lease')} s"),
        (
            "Pilots here",
            f"{status.get('channels')} connected by channels, {status.get('requests_waiting')} polling for jobs",
        ),
    ]
    if you:
        rows.insert(
            1, ("You", f"{you.get('subject')} of tenant {you.get('tenant')} ({', '.join(you.get('roles', []))})")
        )
    for label, value in rows:
        session.out.data(f"{session.out.paint(f'{label:<12}', 'bold')} {neutral.line(value)}")
    session.out.data()
    servers = [
        [str(server.get("name")), str(server.get("url")), str(server.get("slots"))]
        for server in status.get("servers", [])
    ]
    session.out.table([Column("SERVER"), Column("URL"), Column("SLOTS", right=True)], servers)
    session.out.data()
    jobs: dict[str, int] = status.get("jobs") or {}
    counted = [[f"{many:,}", state] for state, many in sorted(jobs.items(), key=lambda job: -job[1])]
    session.out.table([Column("OPEN JOBS", right=True), Column("STATE")], counted)
    fates = session.client.overview("day").get("fates") or {}
    if fates.get("jobs"):
        session.out.data()
        for line in _failures(fates):
            session.out.data(line)


def _failures(fates: dict[str, Any]) -> list[str]:
    """The jobs that had a failure, and their outcomes, one in a line."""
    jobs, recovered = fates["jobs"], fates["recovered"]
    parts = [f"{recovered:,} ({100 * recovered / jobs:.0f} %) recovered automatically"]
    for key, words in (("by_hand", "recovered by a person"), ("not_well", "not recovered"), ("open", "not finished")):
        parts += [f"{fates[key]:,} {words}"] if fates[key] else []
    return [f"{number_of(jobs, 'job')} with a failure in the last 24 hours:", *(f"  {part}" for part in parts)]


def link(session: Session) -> None:
    """Print a link that logs a browser in as you. It works once, within ten minutes. The browser has your rights, for at most 12 hours.

    forestay link
    """
    made = session.client.login_link()
    if session.out.as_json:
        session.out.document(made)
    else:
        session.out.data(made["url"])


def revoke(
    session: Session,
    subjects: Annotated[list[str], typer.Argument(metavar="WHO...", help="People or programs of your tenant.")],
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")],
) -> None:
    """Revoke all tokens and sessions of people (administrators).

    Tokens that are created later are valid.

    forestay revoke bob --reason "lost laptop"
    """
    from forestay.client.api import calls

    for subject in subjects:
        session.client.send(calls.revoke_tokens(subject, reason=reason))
        session.out.document({"subject": subject}) if session.out.as_json else session.out.data(subject)
    session.out.say("Servers refuse their tokens from now on; `forestay token` creates new ones.")


def config(session: Session) -> None:
    """Show which server and token are used, and why. The token itself is not shown.

    forestay config
    """
    from forestay.client import BadSettings
    from forestay.client.transport.settings import find_server, places, project_file

    where = places(os.environ)
    files: dict[str, Path | None] = {
        "project": project_file(Path.cwd()), "user": where.user, "system": where.system, "dev": where.dev, "token": where.user_token,
    }  # fmt: skip
    problem = server = token = None
    try:
        server = find_server(session.options.server, os.environ, Path.cwd(), where)
        token = session.settings.token
    except BadSettings as error:
        problem = str(error)
    if session.out.as_json:
        session.out.document({
            "server": {"value": server.value, "source": server.source} if server else None,
            "token": {"source": token.source} if token else None,
            "files": {name: {"path": str(path), "exists": path.exists()} for name, path in files.items() if path},
            "problem": problem,
        })  # fmt: skip
        return
    rows = [
        ["server", server.value if server else "-", server.source if server else "-"],
        ["token", "known" if token else "-", token.source if token else "-"],
    ]
    session.out.table([Column("SETTING"), Column("VALUE"), Column("SOURCE")], rows)
    session.out.data()
    matching_rows = [[name, str(path), "" if path.exists() else "(missing)"] for name, path in files.items() if path]
    session.out.table([Column("FILE"), Column("PATH"), Column("")], matching_rows)
    if problem:
        session.out.say(problem)
