"""`forestay graph`: a flow, or a run and the states of its tasks, as text or as a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import cells
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.check import read_flow, refuse_flow
from forestay.apps.cli.flows.run_tree import MARKS, Tree
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunDetails
    from forestay.formats.flows.flow_graph import Row

VERSION = re.compile(r"[0-9a-f]{64}")


def graph(
    session: Session,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FLOW|RUN", help="A flow file (- for stdin), the version of a stored flow, or a run's id."
        ),
    ],
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write a picture to this file; - for stdout.")
    ] = None,
) -> int:
    """Draw a flow, or a run with the states of its tasks. A flow in a file needs no server.

    forestay graph nightly.yaml --svg nightly.svg
    """
    run: RunDetails | None = None
    flow: Mapping[str, Any] | None
    if what == "-" or Path(what).is_file():
        read = read_flow(Path(what))
        if read.flow is None:
            return refuse_flow(session, what, read)
        flow, name = read.plain, read.flow.name
    elif VERSION.fullmatch(what):
        flow, name = _stored(session, what)
    elif what.endswith((".yaml", ".yml", ".json")) or "/" in what:
        raise typer.BadParameter(f"there is no file {what}")
    else:
        run = session.client.run(session.flow_run(what))
        flow, name = _stored(session, run["version"])
    tasks: Sequence[Mapping[str, Any]] = run["tasks"] if run else ()
    if svg is not None:
        _picture(session, svg, flow, tasks, f"{name} {short(run['id'])}" if run else name)
        return ExitCode.OK
    from forestay.formats.flows.flow_graph import flow_graph

    rows = flow_graph(flow, tasks)
    if session.out.as_json:
        shown = [
            {
                "task": row.name,
                "kind": row.kind,
                "instance": dict(row.task) if row.task else None,
                "also_after": list(row.also),
            }
            for row in rows
        ]
        session.out.document({"name": name, "run": run["id"] if run else None, "tasks": shown})
        return ExitCode.OK
    session.out.data(session.out.paint(neutral.line(name), "bold"))
    tree = Tree(run, session.client.now()) if run else None
    widest = max((_width(row) for row in rows), default=0)
    for row in rows:
        session.out.data(_line(session, row, tree, min(widest, 60) + 2))
    return ExitCode.OK


def _stored(session: Session, version: str) -> tuple[Mapping[str, Any] | None, str]:
    """A stored flow in its plain form; a Python flow has none."""
    from forestay.formats.flows.yaml_flow import read_flow_text

    flow = session.client.flow(version)
    return read_flow_text(flow["text"]).plain or None, str(flow["name"])


def _picture(
    session: Session, file: Path, flow: Mapping[str, Any] | None, tasks: Sequence[Mapping[str, Any]], title: str
) -> None:
    from forestay.formats.flows.flow_picture import flow_picture

    text = flow_picture(flow, tasks, title=title)
    if str(file) == "-":
        session.out.raw(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint="--svg") from error
    session.out.say(f"The picture was written to {neutral.line(str(file))}")


def _line(session: Session, row: Row, tree: Tree | None, wide: int) -> str:
    paint = session.out.paint
    parts = [paint(row.rails, "dim")]
    if row.task is not None:
        mark, colour = MARKS.get(str(row.task["state"]), ("?", ""))
        parts.append(paint(f"{mark} ", colour))
    parts.append(neutral.line(row.name))
    lines = []
    if row.task is not None and tree is not None:
        lines.append(tree.told(row.task))  # type: ignore[arg-type]  # a task as the interface shows it
    if row.kind:
        lines.append(neutral.line(row.kind))
    if row.also:
        lines.append(neutral.line("also after " + ", ".join(row.also)))
    if lines:
        parts.append(" " * max(2, wide - _width(row)) + paint("; ".join(lines), "dim"))
    return "".join(parts).rstrip()


def _width(row: Row) -> int:
    return cells(row.rails) + cells(neutral.line(row.name)) + (2 if row.task is not None else 0)
