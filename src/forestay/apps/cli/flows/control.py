"""`forestay runs cancel`, `suspend`, `resume`, `retry` and `skip`: what a person can do to a run or one of its tasks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.many_runs import RUN as SOME
from forestay.apps.cli.flows.many_runs import FlowFilter, OwnerFilter, StateFilter, for_each
from forestay.apps.cli.flows.run import RUN, read_params
from forestay.apps.cli.ids import short
from forestay.apps.cli.jobs.queue import whoami
from forestay.apps.cli.session import Session

Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the run's history.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TASK = typer.Argument(metavar="TASK", help="The task, as `forestay runs show RUN --json` names it.")
RESUMED = ("suspended", "failed", "removed")
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="Only this task of the run.")]


def cancel(
    session: Session,
    run: Annotated[str, SOME] = "",
    flow: FlowFilter = "",
    state: StateFilter = "",
    owner: OwnerFilter = "",
    reason: Reason = "",
    yes: Yes = False,
) -> int:
    """Cancel runs. Their jobs are stopped; nothing is compensated.

    forestay runs cancel 4f1c9d2a --reason "wrong input"

    forestay runs cancel --flow nightly --owner ada
    """
    filters = {"name": flow, "state": state, "owner": owner}

    def act(name: str) -> int:
        return _send(session, name, "remove", reason=reason, ask="Cancel" if run else "", yes=yes)

    return for_each(session, run, filters, lambda found: found["ended"] is None, "Cancel", act, yes=yes)


def suspend(
    session: Session,
    run: Annotated[str, SOME] = "",
    task: Task = "",
    flow: FlowFilter = "",
    state: StateFilter = "",
    owner: OwnerFilter = "",
    reason: Reason = "",
    yes: Yes = False,
) -> int:
    """Suspend runs, or a task. Running jobs continue; no new ones start.

    forestay runs suspend 4f1c9d2a --reason "the file system is full"

    forestay runs suspend --owner ada
    """
    filters = {"name": flow, "state": state, "owner": owner}

    def act(name: str) -> int:
        return _send(session, name, "suspend", task, reason=reason)

    return for_each(session, run, filters, lambda found: found["ended"] is None, "Suspend", act, yes=yes)


def resume(
    session: Session,
    run: Annotated[str, SOME] = "",
    task: Task = "",
    flow: FlowFilter = "",
    state: StateFilter = "",
    owner: OwnerFilter = "",
    holder: Annotated[
        str, typer.Option("--holder", metavar="NAME", help="Who suspended it, if it was not you (operators).")
    ] = "",
    first: Annotated[
        str, typer.Option("--from", metavar="TASK", help="Of an ended run: run this task and those after it again.")
    ] = "",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Of an ended run: change a parameter. Repeatable."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of an ended run: only say which tasks would run again.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
) -> int:
    """Resume suspended, failed or cancelled runs, or a task.

    A run that has ended keeps its results. Only what failed, was cancelled or compensated runs again, and what comes after it; of a scatter only those
    elements. If somebody else suspended a run too, it stays suspended until they resume it.

    forestay runs resume 4f1c9d2a --dry-run

    forestay runs resume --flow nightly --state failed
    """
    params = read_params(None, param or [])
    filters = {"name": flow, "state": state, "owner": owner}

    def act(name: str) -> int:
        name = session.flow_run(name)
        if first or params or dry_run or session.client.run(name)["ended"]:
            return _resume_ended(session, name, first, params, reason, dry_run=dry_run, yes=yes)
        return _continue(session, name, task, holder, reason)

    return for_each(session, run, filters, lambda found: found["state"] in RESUMED, "Resume", act, yes=yes or dry_run)


def _continue(session: Session, name: str, task: str, holder: str, reason: str) -> int:
    return _send(session, name, "continue", task, reason=reason, holder=holder or _holder(session, name, task))


def retry(
    session: Session,
    run: Annotated[str, RUN],
    task: Annotated[str, TASK],
    failed_only: Annotated[
        bool, typer.Option("--failed-only", help="Of a scatter: only the elements that failed.")
    ] = False,
    reason: Reason = "",
) -> int:
    """Run a task again, and the tasks after it that had begun.

    forestay runs retry 4f1c9d2a align --failed-only
    """
    return _send(session, run, "redo", task, reason=reason, only_failed=failed_only)


def skip(session: Session, run: Annotated[str, RUN], task: Annotated[str, TASK], reason: Reason = "") -> int:
    """Skip a task. The tasks after it continue.

    forestay runs skip 4f1c9d2a report --reason "not needed today"
    """
    return _send(session, run, "skip", task, reason=reason)


def _resume_ended(
    session: Session, run: str, first: str, params: dict[str, Any], reason: str, *, dry_run: bool, yes: bool
) -> int:
    planned = session.client.resume(run, task=first, params=params, dry_run=True)
    external = [task["task"] for task in planned["again"] if task["external"]]
    if not session.out.as_json:
        for task in planned["again"]:
            session.out.say(f"  again  {neutral.line(task['task'])}{_elements(task)}")
        if planned["kept"]:
            session.out.say(f"  kept   {neutral.line(', '.join(planned['kept']))}")
    if external and not dry_run:
        session.out.say(f"External effects may happen a second time: {neutral.line(', '.join(external))}.")
        if not session.sure("Resume this run?", yes=yes):
            session.out.say("Nothing was changed.")
            return ExitCode.FAILED
    if not dry_run:
        planned = session.client.resume(run, task=first, params=params, reason=reason)
    if session.out.as_json:
        session.out.document({"run": run, **planned})
    elif not dry_run:
        session.out.data(run)
        session.out.say(f"To follow it: forestay watch {short(run)}")
    return ExitCode.OK


def _elements(task: dict[str, Any]) -> str:
    if task["elements"] is None or task["of"] == 1:
        return ""
    return f", {task['elements']:,} of {task['of']:,} elements"


def _holder(session: Session, run: str, task: str) -> str:
    """The holder whose suspension is lifted: the caller, or else the only one. An ambiguous case is reported."""
    found_run = session.client.run(run)
    holders = (
        next((other_task["holders"] for other_task in found_run["tasks"] if other_task["id"] == task), [])
        if task
        else found_run["holders"]
    )
    me = whoami(session)
    if me in holders or not holders:
        return me
    if len(holders) > 1:
        raise typer.BadParameter(f"it was suspended by {', '.join(holders)}; name one of them with --holder")
    return holders[0]


def _send(
    session: Session, run: str, kind: str, task: str = "", *, ask: str = "", yes: bool = False, **more: Any
) -> int:
    from forestay.client.transport.errors import WaitsForApproval

    name = session.flow_run(run)
    if ask and session.out.at_terminal and not yes:
        found_run = session.client.run(name)
        session.out.say(
            f"  {name}  {neutral.line(found_run['name'])} of {neutral.line(found_run['owner'])}, {found_run['state']}"
        )
        if not session.sure(f"{ask} this run?", yes=yes):
            session.out.say("Nothing was changed.")
            return ExitCode.FAILED
    try:
        answer = session.client.verb(name, kind, task=task, **more)
    except WaitsForApproval as waits:
        if session.out.as_json:
            session.out.document({"run": name, "accepted": False, "approval": waits.request})
        else:
            session.out.data(f"{name} {waits}")
        return ExitCode.OK
    if session.out.as_json:
        session.out.document({"run": name, **answer})
    else:
        session.out.data(name)
        if answer.get("detail"):
            session.out.say(neutral.line(str(answer["detail"])))
    return ExitCode.OK
