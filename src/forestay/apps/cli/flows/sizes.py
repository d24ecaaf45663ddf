"""`forestay sizes`: the resources that jobs would have requested, on the basis of earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting, number_of, size
from forestay.apps.cli.columns import Column, folded, table
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session


def sizes(
    session: Session,
    task: Annotated[
        str, typer.Argument(metavar="[TASK]", help="The name of a task, or of jobs; shows it by input size too.")
    ] = "",
    flow: Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks of this flow.")] = None,
) -> int:
    """Show what jobs would ask for, by what earlier ones used.

    forestay sizes align --flow nightly
    """
    report = session.client.sizes(task=task, flow=flow)
    if session.out.as_json:
        session.out.document(report)
        return ExitCode.OK
    for line in size_lines(report, session.out.page_width, detailed=bool(task)):
        session.out.data(line)
    if not report["tasks"]:
        session.out.say("No finished job has been measured.")
    elif not report["whole"]:
        session.out.say(f"By the {report['read']:,} jobs that ended last.")
    return ExitCode.OK


def size_lines(report: Mapping[str, Any], width: int, *, detailed: bool) -> Iterator[str]:
    """A table of tasks; for each, in a sentence or two, the effect that the sizes would have had."""
    if not report["tasks"]:
        return
    columns = [
        Column("FLOW", flexible=True),
        Column("TASK", flexible=True),
        Column("JOBS", right=True),
        Column("MEMORY", right=True),
        Column("WOULD ASK", right=True),
        Column("WALL", right=True),
        Column("WOULD ASK", right=True),
        Column("WASTE", right=True),
        Column("WOULD FAIL", right=True),
    ]
    yield from table(columns, [_row(sizes) for sizes in report["tasks"]], width=width)
    for task_sizes in report["tasks"] if detailed else ():
        for text in _sentences(task_sizes):
            yield from folded(neutral.line(text), width, 2)


def _row(task_sizes: Mapping[str, Any]) -> list[str]:
    tested = task_sizes["backtest"]
    return [
        task_sizes["flow"] or "-",
        task_sizes["task"],
        f"{task_sizes['jobs']:,}",
        size(task_sizes["asked_memory"]) if task_sizes["asked_memory"] else "-",
        size(task_sizes["memory"]) if task_sizes["memory"] else "-",
        lasting(task_sizes["asked_wall"]) if task_sizes["asked_wall"] else "-",
        lasting(task_sizes["wall"]) if task_sizes["wall"] else "-",
        _waste(tested) if tested else "-",
        f"{tested['failed'] / tested['jobs']:.1%}" if tested else "-",
    ]


def _waste(tested: Mapping[str, Any]) -> str:
    return f"{tested['would_waste'] / tested['wasted'] - 1:+.0%}" if tested["wasted"] else "0%"


def _sentences(task_sizes: Mapping[str, Any]) -> Iterator[str]:
    name, tested = task_sizes["task"], task_sizes["backtest"]
    if task_sizes["memory"] is None:
        killed = task_sizes["out_of_memory"]
        few = f"{killed} of {number_of(task_sizes['jobs'], 'job')} ran out of memory" if killed else "too few jobs"
        yield f"{name}: no figure for memory: {few}"
    elif task_sizes["asked_memory"] > task_sizes["memory"]:
        yield (f"{name}: would have asked {size(task_sizes['memory'])} instead of {size(task_sizes['asked_memory'])}")
    elif task_sizes["asked_memory"]:
        yield f"{name}: asks {size(task_sizes['asked_memory'])}, which is little enough"
    if tested:
        yield (
            f"{name}: {tested['failed']} of the newest {number_of(tested['jobs'], 'job')} would have run out of memory, sized "
            f"by those before them; {tested['would_waste']:,.1f} instead of {tested['wasted']:,.1f} GiB-hours wasted"
        )
    for part in task_sizes["by_input"]:
        memory = size(part["memory"]) if part["memory"] else "no figure"
        yield f"{name}: inputs up to {size(part['up_to'])} ({number_of(part['jobs'], 'job')}): {memory}"
