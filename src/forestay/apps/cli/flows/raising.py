"""`forestay raise`: tell the rules of something that happened to a case."""

from __future__ import annotations

from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.flows.run import CASE
from forestay.apps.cli.session import Session


def raise_(
    session: Session,
    case: Annotated[str, CASE],
    item: Annotated[str, typer.Option("--item", metavar="ITEM", help="For this work item, not the case.")] = "",
    trigger: Annotated[str, typer.Option("--trigger", metavar="NAME", help="One of those that are offered.")] = "",
    new: Annotated[
        str, typer.Option("--new", metavar="TEXT", help="What happened, if no trigger says it: the case is suspended.")
    ] = "",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="More words; with --new, how it might be handled.")
    ] = "",
) -> None:
    """Raise an exception for a case or a work item. Without --trigger or --new, list the triggers that the rules offer.

    forestay raise 4f1c9d2a --trigger 'band broken up'
    """
    name = session.case(case)
    if trigger and new:
        raise typer.BadParameter("say either --trigger or --new")
    if not trigger and not new:
        _offered(session, name, item)
        return
    answer = session.client.raise_exception(name, trigger=trigger, new=new, item=item, reason=reason)
    if session.out.as_json:
        session.out.document(answer)
        return
    if answer["incident"] is None:
        session.out.say("No rule answers it for this case as it is; nothing was done.")
        return
    session.out.data(answer["incident"])
    if new and answer["verdict"] == "hold":
        session.out.say("The case is suspended, and the administrators are told.")
        session.out.say(f"forestay inbox launch {answer['incident'][:8]} EXLET.yaml answers it.")
    else:
        session.out.say(f"forestay history {name[:8]} tells what is done about it.")


raise_.__name__ = "raise"


def _offered(session: Session, case: str, item: str) -> None:
    found = session.client.triggers(case, item=item)
    if session.out.as_json:
        session.out.document({"triggers": found})
        return
    rows = [
        [neutral.line(one["name"]), "yes" if one["acts"] else "shadow", neutral.line(one["words"])] for one in found
    ]
    columns = [Column("TRIGGER", widest=60), Column("ACTS"), Column("WHAT IT MEANS", widest=80)]
    if rows:
        session.out.table(columns, rows)
    if not found:
        session.out.say("The rules offer no trigger here; --new TEXT tells of something new.")
