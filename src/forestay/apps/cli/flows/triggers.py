"""`forestay runs raise` and `forestay runs event`: report to the rules, or to waiting tasks, what happened outside."""

from __future__ import annotations

from typing import Annotated

import typer

from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.run import RUN, read_params
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session


@lists
def raise_exception(
    session: Session,
    run: Annotated[str, RUN],
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="For this task, not for the whole run.")] = "",
    trigger: Annotated[
        str, typer.Option("--trigger", metavar="NAME", help="One of the triggers that the rules offer.")
    ] = "",
    new: Annotated[
        str,
        typer.Option("--new", metavar="TEXT", help="What happened, if no trigger describes it; the run is suspended."),
    ] = "",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Details; with --new, how it might be handled.")
    ] = "",
) -> None:
    """Raise an exception for a run or a task. Without --trigger or --new, list the triggers that the rules offer.

    forestay runs raise 4f1c9d2a --trigger 'band broken up'
    """
    name = session.flow_run(run)
    if trigger and new:
        raise typer.BadParameter("use either --trigger or --new")
    if not trigger and not new:
        _offered(session, name, task)
        return
    answer = session.client.raise_exception(name, trigger=trigger, new=new, task=task, reason=reason)
    if session.out.as_json:
        session.out.document(answer)
        return
    if answer["incident"] is None:
        session.out.say("No rule answers it for this run in its present state; nothing was done.")
        return
    session.out.data(answer["incident"])
    if new and answer["verdict"] == "hold":
        session.out.say("The run is suspended, and the administrators are notified.")
        session.out.say(f"To answer it: forestay inbox launch {short(answer['incident'])} PLAYBOOK.yaml")
    else:
        session.out.say(f"To see what is done about it: forestay runs history {short(name)}")


def send_event(
    session: Session,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The event's name, as tasks wait for it.")],
    key: Annotated[str, typer.Option("--key", metavar="TEXT", help="Which of the events of this name.")] = "",
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="Data; the value is JSON or text. Repeatable."),
    ] = None,
    id_: Annotated[
        str, typer.Option("--id", metavar="ID", help="The event's id: the same again is the same event.")
    ] = "",
) -> int:
    """Send an event to the runs that wait for it.

    If none does, it is kept for a week for the first that will.

    forestay runs event detector-ready --key 7 --param file=7.raw
    """
    from forestay.client.api import run_calls

    data = read_params(None, param or [])
    sent = session.client.send(run_calls.send_event(event, key=key, data=data, id_=id_))
    if session.out.as_json:
        session.out.document(sent)
        return ExitCode.OK
    session.out.data(sent["id"])
    many = len(sent["runs"])
    if sent["repeated"]:
        session.out.say("This event was sent before; nothing was changed.")
    elif many:
        session.out.say(f"{many} run{'' if many == 1 else 's'} waited for it.")
    else:
        session.out.say("No run waits for it; it is kept for a week for the first that does.")
    return ExitCode.OK


def _offered(session: Session, run: str, task: str) -> None:
    triggers = session.client.triggers(run, task=task)
    session.print_list(
        "triggers", triggers,
        [Column("TRIGGER", flexible=True), Column("ACTS"), Column("MEANING", flexible=True)],
        lambda trigger: [trigger["name"], "yes" if trigger["acts"] else "shadow", trigger["words"]],
        key=lambda trigger: str(trigger["name"]),
        empty="The rules offer no trigger here; use --new TEXT to report something new.",
    )  # fmt: skip
