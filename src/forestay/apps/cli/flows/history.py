"""`forestay runs history`: what happened to a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, read_moment
from forestay.apps.cli.flows.run import RUN
from forestay.apps.cli.flows.run_tree import COLOURS, word
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunDetails, StoryLine

PAGE = 1000
BAD = frozenset({"refused", "trouble", "incident"})
TOLD = frozenset({"report", "Verb", "decision", "order", "audit"})


def history(
    session: Session,
    run: Annotated[str, RUN],
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only of this task.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most this many lines.")] = 1000,
) -> None:
    """Show the event log of a run, of any engine. Its engine's log, failures, decisions, actions, and requests by people.

    forestay runs history 4f1c9d2a
    """
    name = session.flow_run(run)
    lines, more = _read(session, name, task, limit)
    if session.out.as_json:
        session.out.document({"run": name, "history": lines, "more": more})
        return
    whole = session.client.run(name)
    for line in _narrated(session, whole, lines):
        session.out.data(line)
    if more:
        session.out.say(f"There is more; use --limit to see more than {limit:,} lines.")


def _read(session: Session, run: str, task: str | None, limit: int) -> tuple[list[StoryLine], bool]:
    lines: list[StoryLine] = []
    cursor: str | None = None
    while True:
        page = session.client.run_story(run, limit=min(PAGE, limit), cursor=cursor)
        lines += [line for line in page.story if task is None or line["task"] == task]
        cursor = page.cursor
        if cursor is None or len(lines) >= limit:
            return lines[:limit], cursor is not None or len(lines) > limit


def _narrated(session: Session, run: RunDetails, lines: list[StoryLine]) -> Iterator[str]:
    paint = session.out.paint
    state = paint(word(run), COLOURS.get(run["state"], ""))
    yield f"{paint(neutral.line(run['name']), 'bold')} of {neutral.line(run['owner'])}: {state}"
    yield paint(run["id"], "dim")
    yield ""
    day = ""
    for line in lines:
        then = read_moment(line["at"])
        at = then.astimezone() if then else None
        if at is not None and at.strftime("%Y-%m-%d") != day:
            day = at.strftime("%Y-%m-%d")
            yield paint(day, "dim")
        clock = at.strftime("%H:%M:%S") if at else "-" * 8
        colour = "red" if line["kind"] in BAD else "yellow" if line["kind"] in TOLD else ""
        yield f"  {paint(clock, 'dim')}  {paint(neutral.line(line['words']), colour)}"
    yield ""
    for task in run["tasks"]:
        began, ended = read_moment(task.get("began")), read_moment(task.get("finished"))
        took = f" in {lasting((ended - began).total_seconds())}" if began and ended else ""
        why = f": {task['reason']}" if task["reason"] else ""
        yield f"  {neutral.line(task['id'])}: {task['state'].replace('_', ' ')}{took}{neutral.line(why)}"
    if run["ended"] is None:
        yield ""
        yield f"It is still running: forestay watch {short(run['id'])}"
