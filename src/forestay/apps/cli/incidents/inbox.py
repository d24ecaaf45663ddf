"""`forestay inbox`: the failures that need attention, grouped by error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column, cut
from forestay.apps.cli.command import lists, seconds
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.jobs.jobs import moment_option, print_counts
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.paging import newest
from forestay.apps.cli.rules.playbooks import ready_text
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentJson

WAITING = "held"
NOTHING = "No failures need attention."
LOOK_EVERY = 0.5
"""Seconds between two polls."""
OWNER_SHOWN = 12
"""The width of an owner's name beside an error; `-o wide` shows all of it."""
_ELSEWHERE = {"forestay approvals": "To approve", "forestay safeguards": "What a storm's first retries came to"}
"""Groups that are answered by other commands."""
_STATES = {"an approval": "approval", "the first retries": "canary", "a person, for the group": "storm"}
"""What a group waits for, in short: it says more than the state of its error."""
_FILES = frozenset({".yaml", ".yml", ".json"})


@lists
def list_inbox(
    session: Session,
    cause: Annotated[str | None, typer.Option(metavar="CAUSE", help="Only of this cause: memory, node, …")] = None,
    owner: Annotated[str | None, typer.Option("--owner", "-u", metavar="NAME", help="Only of this owner.")] = None,
    me: Annotated[bool, typer.Option("--me", help="Only your own.")] = False,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Only on this host; lists every incident.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", "-S", parser=moment_option, metavar="TIME", help="Only since then: 2026-05-01, 12:30, 2h."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by", metavar="FIELD", help="Count all failures instead: by cause, owner, host, site, exit-code …"
        ),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", "-t", metavar="STATE", help="held, or other states, separated by commas.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="FINGERPRINT", help="Only of this error; lists every incident.")
    ] = None,
    snoozed: Annotated[bool, typer.Option("--snoozed", help="Also errors that are snoozed.")] = False,
    each: Annotated[bool, typer.Option("--each", help="List every incident instead of groups.")] = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many incidents.")] = 1000,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until there is something to list.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(parser=seconds, metavar="TIME", help="With --wait: exit with code 7 after this time."),
    ] = None,
) -> int:
    """List failures that need attention, by error.

    \b
    forestay inbox list --me
    forestay inbox --cause memory --owner ada --since 1d --by host
    """
    wanted: dict[str, Any] = {
        "state": state, "cause": cause, "owner": whoami(session) if me else owner, "fingerprint": fingerprint, "host": host, "since": since,
    }  # fmt: skip
    filters = {key: value for key, value in wanted.items() if value}
    if by is not None:
        _show_counts(session, by, filters)
        return ExitCode.OK
    filters.setdefault("state", WAITING)
    if wait:
        _wait(session, filters, timeout)
    groups = not each and not filters.keys() & {"fingerprint", "host", "since"} and filters["state"] == WAITING
    if groups and not session.out.as_json and session.out.form != "name":
        _show_groups(session, cause, filters.get("owner"), snoozed=snoozed)
        return ExitCode.OK
    incidents, more = newest(
        lambda many, cursor: session.client.find_incidents(filters, limit=many, cursor=cursor), limit
    )
    _show_each(session, incidents)
    if more:
        session.out.say(f"These are the newest {len(incidents):,}; use --cause, -u or --limit to see others.")
    elif incidents and not session.out.as_json:
        session.out.say("See why: forestay explain INCIDENT. Retry: forestay retry JOB")
    return ExitCode.OK


def launch(
    session: Session,
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help="The incident's id, or the beginning of it.")],
    playbook: Annotated[
        str, typer.Argument(metavar="PLAYBOOK", help="A playbook's file, or the name of a stored one.")
    ],
) -> int:
    """Carry out a playbook for an incident.

    forestay inbox launch 3f9a1c7e refund.yaml
    """
    name = session.incident(incident)
    if Path(playbook).suffix in _FILES:
        text = ready_text(session, Path(playbook))
        if text is None:
            return ExitCode.USAGE
        answer = session.client.launch_playbook(name, text=text)
    else:
        answer = session.client.launch_playbook(name, playbook=playbook)
    if session.out.as_json:
        session.out.document(answer)
    else:
        session.out.data(name)
        session.out.say(f"The playbook is {answer['outcome']}: {neutral.line(answer['detail'])}")
    return ExitCode.OK if answer["outcome"] in {"begun", "done"} else ExitCode.FAILED


def _wait(session: Session, filters: dict[str, Any], timeout: float | None) -> None:
    from forestay.client import TimedOut

    until = None if timeout is None else time.monotonic() + timeout
    while not session.client.find_incidents(filters, limit=1).incidents:
        if until is not None and time.monotonic() >= until:
            raise TimedOut("still no failures need attention")
        time.sleep(LOOK_EVERY)


def _show_counts(session: Session, by: str, filters: dict[str, Any]) -> None:
    """The number of failures, whatever they wait for."""
    from forestay.client.api import incident_calls

    counts = session.client.send(incident_calls.count_incidents(by.replace("-", "_"), filters))
    if session.out.as_json:
        session.out.document({"counts": counts})
        return
    print_counts(session, "FAILURES", by, counts)


def _show_groups(session: Session, cause: str | None, owner: str | None, *, snoozed: bool) -> None:
    """The groups as the server has them: one for each error."""
    from forestay.client.api import incident_calls

    reply = session.client.send(incident_calls.inbox(cause=cause, owner=owner, snoozed=snoozed))
    columns = [
        Column("COUNT", right=True), Column("ERROR", flexible=True), Column("CAUSE"), Column("OWNER", flexible=True), Column("LAST"),
        Column("STATE"), Column("ID"), Column("NEXT", wide=True), Column("OLDEST", wide=True), Column("HOST", wide=True), Column("WAITS FOR", wide=True), Column("CORE-HOURS", right=True, wide=True), Column("WHY", flexible=True, wide=True),
        Column("FINGERPRINT", wide=True),
    ]  # fmt: skip
    session.print_list(
        "groups", reply["groups"], columns, key=lambda group: str(group["group"]),
        row=lambda group: [
            f"{group['count']:,}", _error(group), group["cause"], _owner(group, whole=session.out.wide), session.when(group["last_seen"]),
            _state(group, whole=session.out.wide), short(group["job"] or group["incident"]), group["next"], session.when(group["oldest"]), group["host"] or "-", group["waits_for"], f"{group['core_hours']:,.1f}", group["note"], group.get("fingerprint") or "-",
        ],
        empty=NOTHING,
    )  # fmt: skip
    if reply["more"]:
        session.out.say("Only the most expensive groups are shown; use --cause or -u to see others.")
    elif reply["groups"]:
        session.out.say("See why: forestay explain ID. Retry: forestay retry ID. One error: forestay inbox show ID")
        for command, what in _ELSEWHERE.items():
            if any(group["next"].startswith(command) for group in reply["groups"]):
                session.out.say(f"{what}: {command}")
    _tell_of_questions(session)
    if reply["snoozed"]:
        session.out.say(f"{reply['snoozed']:,} snoozed; to see them: forestay inbox --snoozed")
    if held := reply["held_runs"]:
        session.out.say(f"{held:,} {'run is' if held == 1 else 'runs are'} held: forestay runs list --held")


def _tell_of_questions(session: Session) -> None:
    from forestay.client.api import run_calls

    waiting = len(session.client.send(run_calls.questions()))
    if waiting:
        words = "1 run asks a question" if waiting == 1 else f"{waiting:,} questions of runs wait for an answer"
        session.out.say(f"{words}: forestay inbox questions")


def _error(group: dict[str, Any]) -> str:
    """The error in one line; for a group from before there were fingerprints the reason why it waits."""
    title = str(group.get("title") or group["note"])
    return f"[storm] {title}" if group.get("storm", group["group"]) else title


def _owner(group: dict[str, Any], *, whole: bool) -> str:
    owner = group["owner"] or f"{group['owners']:,} owners"
    return owner if whole else cut(owner, OWNER_SHOWN)


def _state(group: dict[str, Any], *, whole: bool) -> str:
    """The state of the error; its assignee says more than an acknowledgement."""
    state, assignee = _STATES.get(group["waits_for"], str(group["state"])), str(group["assignee"])
    if not assignee:
        return state
    return f"{state}, {assignee}" if whole else cut(assignee if state == "acknowledged" else state, OWNER_SHOWN)


def _show_each(session: Session, incidents: list[IncidentJson]) -> None:
    ids = session.short_ids(incident["id"] for incident in incidents)
    columns = [
        Column("INCIDENT"), Column("CAUSE"), Column("OWNER", flexible=True), Column("AT"), Column("JOB"), Column("TASK", wide=True),
        Column("WHY", flexible=True),
    ]  # fmt: skip
    session.print_list(
        "incidents", incidents, columns, key=lambda incident: incident["id"],
        row=lambda incident: [
            ids.short(incident["id"]), incident["cause"], incident["owner"], session.when(incident["at"]),
            _about(incident, whole=session.out.wide), incident["task"] or "-", incident["note"],
        ],
        empty=NOTHING,
    )  # fmt: skip


def _about(incident: IncidentJson, *, whole: bool) -> str:
    """The job, or else the run; `explain` takes both."""
    name = incident["job"] or incident["run"] or "-"
    return name if whole else short(name)
