"""`forestay runs history`: what happened to a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, read_moment
from forestay.apps.cli.flows.case_tree import COLOURS, word
from forestay.apps.cli.flows.run import RUN
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.answers import CaseWhole, StoryLine

PAGE = 1000
BAD = frozenset({"refused", "trouble", "incident"})
TOLD = frozenset({"report", "Verb", "decision", "order", "audit"})


def history(
    session: Session,
    run: Annotated[str, RUN],
    item: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only of this task.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many lines.")] = 1000,
) -> None:
    """Show the event log of a run, of any engine. Its engine's log, failures, decisions, actions, and requests by people.

    forestay runs history 4f1c9d2a
    """
    name = session.flow_run(run)
    found, more = _read(session, name, item, limit)
    if session.out.as_json:
        session.out.document({"run": name, "history": found, "more": more})
        return
    whole = session.client.case(name)
    for line in _narrated(session, whole, found):
        session.out.data(line)
    if more:
        session.out.say(f"There is more; use --limit to see more than {limit:,} lines.")


def _read(session: Session, case: str, item: str | None, limit: int) -> tuple[list[StoryLine], bool]:
    found: list[StoryLine] = []
    cursor: str | None = None
    while True:
        page = session.client.case_story(case, limit=min(PAGE, limit), cursor=cursor)
        found += [one for one in page.story if item is None or one["item"] == item]
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return found[:limit], cursor is not None or len(found) > limit


def _narrated(session: Session, case: CaseWhole, found: list[StoryLine]) -> Iterator[str]:
    paint = session.out.paint
    state = paint(word(case), COLOURS.get(case["state"], ""))
    yield f"{paint(neutral.line(case['name']), 'bold')} of {neutral.line(case['owner'])}: {state}"
    yield paint(case["id"], "dim")
    yield ""
    day = ""
    for one in found:
        then = read_moment(one["at"])
        at = then.astimezone() if then else None
        if at is not None and at.strftime("%Y-%m-%d") != day:
            day = at.strftime("%Y-%m-%d")
            yield paint(day, "dim")
        clock = at.strftime("%H:%M:%S") if at else "-" * 8
        colour = "red" if one["kind"] in BAD else "yellow" if one["kind"] in TOLD else ""
        yield f"  {paint(clock, 'dim')}  {paint(neutral.line(one['words']), colour)}"
    yield ""
    for item in case["items"]:
        began, ended = read_moment(item.get("began")), read_moment(item.get("finished"))
        took = f" in {lasting((ended - began).total_seconds())}" if began and ended else ""
        why = f": {item['reason']}" if item["reason"] else ""
        yield f"  {neutral.line(item['id'])}: {item['state'].replace('_', ' ')}{took}{neutral.line(why)}"
    if case["ended"] is None:
        yield ""
        yield f"It is still running: forestay watch {short(case['id'])}"
