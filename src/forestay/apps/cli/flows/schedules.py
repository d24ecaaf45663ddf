"""`forestay schedules`: runs that are started at set times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.check import read_flow, refuse_flow
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session
from forestay.apps.cli.text_file import read_text_file

if TYPE_CHECKING:
    from forestay.formats.flows.schedule_yaml import SchedulesText

NAME = typer.Argument(metavar="SCHEDULE", help="The schedule's name.")
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]


@lists
def list_schedules(session: Session) -> int:
    """List schedules.

    forestay schedules list
    """
    from forestay.client.api import run_calls

    found = session.client.send(run_calls.schedules())
    columns = [
        Column("SCHEDULE", flexible=True), Column("FLOW", flexible=True), Column("CRON", flexible=True), Column("TIME ZONE"), Column("STATE"), Column("NEXT"),
        Column("LAST RUN"), Column("OWNER", wide=True), Column("OVERLAP", wide=True), Column("CATCH-UP", wide=True), Column("MISSED", right=True, wide=True),
        Column("SKIPPED", right=True, wide=True),
    ]  # fmt: skip
    session.print_list(
        "schedules", found, columns, key=lambda schedule: str(schedule["name"]),
        row=lambda schedule: [
            schedule["name"], schedule["flow_name"], ", ".join(schedule["cron"]), schedule["time_zone"], "paused" if schedule["paused"] else "active",
            _moment(schedule["next"]), short(schedule["recent"][0]["run"]) if schedule["recent"] else "-", schedule["owner"], schedule["overlap"],
            f"{schedule['catch_up']} s", str(schedule["missed"]), str(schedule["skipped"]),
        ],
        empty="There are no schedules. To make one: forestay schedules apply -f FILE.yaml",
    )  # fmt: skip
    return ExitCode.OK


def _moment(times: list[str]) -> str:
    from forestay.apps.cli.amounts import moment

    return moment(times[0]) if times else "-"


def show(session: Session, schedule: Annotated[str, NAME]) -> int:
    """Show a schedule, its next times and its last runs.

    forestay schedules show nightly
    """
    from forestay.client.api import run_calls

    _print(session, session.client.send(run_calls.schedule(schedule)))
    return ExitCode.OK


def apply(
    session: Session,
    file: Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="A file of schedules in YAML or JSON.")],
) -> int:
    """Create or change the schedules of a file; others stay as they are.

    forestay schedules apply -f schedules.yaml
    """
    from forestay.client.api import run_calls
    from forestay.formats.flows.schedule_yaml import read_schedules

    read = read_schedules(read_text_file(file))
    if read.problems:
        return _refuse(session, file, read)
    applied = []
    for schedule in read.schedules:
        version = schedule.flow
        flow = file.parent / schedule.flow
        if flow.is_file():
            known = read_flow(flow)
            if known.flow is None:
                return refuse_flow(session, str(flow), known)
            version = session.client.store_flow(known.text)["version"]
        body = {
            "flow": version, "cron": list(schedule.cron), "params": dict(schedule.params), "time_zone": schedule.time_zone, "catch_up": schedule.catch_up,
            "overlap": schedule.overlap.value, "paused": schedule.paused, "note": schedule.note,
        }  # fmt: skip
        reply = session.client.send(run_calls.put_schedule(schedule.name, body))
        applied.append(reply)
        if not session.out.as_json:
            session.out.data(f"{neutral.line(reply['name'])}: next {_moment(reply['next'])}")
    if session.out.as_json:
        session.out.document({"schedules": applied})
    return ExitCode.OK


def pause(session: Session, schedule: Annotated[str, NAME], reason: Reason = "") -> int:
    """Pause a schedule; its runs continue.

    forestay schedules pause nightly --reason "the detector is off"
    """
    return _act(session, schedule, "pause", reason)


def resume(session: Session, schedule: Annotated[str, NAME], reason: Reason = "") -> int:
    """Start runs of a schedule again, from its next time on.

    forestay schedules resume nightly
    """
    return _act(session, schedule, "resume", reason)


def run(session: Session, schedule: Annotated[str, NAME], reason: Reason = "") -> int:
    """Start a run of a schedule now.

    forestay schedules run nightly
    """
    return _act(session, schedule, "run", reason)


def delete(
    session: Session,
    schedule: Annotated[str, NAME],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> int:
    """Delete a schedule; its runs continue.

    forestay schedules delete nightly
    """
    from forestay.client.api import run_calls

    if not session.sure(f"Delete the schedule {schedule}?", yes=yes):
        session.out.say("Nothing was changed.")
        return ExitCode.FAILED
    reply = session.client.send(run_calls.delete_schedule(schedule))
    if session.out.as_json:
        session.out.document(reply)
    else:
        session.out.data(f"{neutral.line(reply['name'])} deleted")
    return ExitCode.OK


def _act(session: Session, schedule: str, act: str, reason: str) -> int:
    from forestay.client.api import run_calls

    reply = session.client.send(run_calls.steer_schedule(schedule, act, reason=reason))
    if session.out.as_json:
        session.out.document(reply)
    else:
        words = {"pause": "paused", "resume": "active", "run": "a run is started"}[act]
        session.out.data(f"{neutral.line(reply['name'])}: {words}")
    return ExitCode.OK


def _print(session: Session, known: dict[str, Any]) -> None:
    out = session.out
    if out.as_json:
        out.document(known)
        return
    state = "paused" if known["paused"] else "active"
    note = f" ({known['note']})" if known["note"] else ""
    lines = [
        f"{known['name']}: {state}{note}",
        f"  flow: {known['flow_name']} {known['flow'][:12]}, params {json.dumps(known['params'])}",
        f"  cron: {', '.join(known['cron'])} ({known['time_zone']})",
        f"  overlap: {known['overlap']}; catch-up: {known['catch_up']} s; left out: {known['missed']} too late, {known['skipped']} by overlap",
        f"  owner: {known['owner']}",
    ]
    lines += [f"  next: {_moment([at])}" for at in known["next"][:3]]
    lines += [
        f"  run: {short(started['run'])} planned for {_moment([started['at']])}" for started in known["recent"][:5]
    ]
    for line in lines:
        out.data(neutral.line(line))


def _refuse(session: Session, file: Path, read: SchedulesText) -> int:
    many = len(read.problems)
    session.out.complain(f"{neutral.line(str(file))}: {many} error{'' if many == 1 else 's'}")
    for problem in read.problems:
        session.out.say(f"  {neutral.line(str(file))}:{neutral.line(str(problem))}")
    return ExitCode.USAGE
