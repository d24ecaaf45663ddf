"""`forestay check`: the errors of flows, before anyone runs them. No server is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.output import as_json
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.flows.yaml_flow import FlowText


def check(
    session: Session,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Flows in YAML or JSON; - reads one from stdin.")
    ],
) -> int:
    """Check flows and report every error with its line. No server is needed.

    forestay check align.yaml
    """
    flows = [(str(file), read_flow(file)) for file in files]
    if session.out.as_json:
        session.out.document({"flows": [_shown(name, read) for name, read in flows]})
    else:
        for name, read in flows:
            _tell(session, name, read)
    return ExitCode.OK if all(read.flow is not None for _, read in flows) else ExitCode.FAILED


def read_flow(file: Path) -> FlowText:
    from forestay.formats.flows.yaml_flow import read_flow_text
    from forestay.formats.text.yaml_text import MAX_BYTES

    try:
        # One character more than allowed shows that there are too many.
        if str(file) == "-":
            text = sys.stdin.read(MAX_BYTES + 1)
        else:
            with file.open(encoding="utf-8") as stream:
                text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file} is not a text in UTF-8") from error
    if len(text) > MAX_BYTES:
        raise typer.BadParameter(
            f"{file} has more than {MAX_BYTES} characters; put long lists into files and scatter over their lines"
        )
    return read_flow_text(text)


def _tell(session: Session, name: str, read: FlowText) -> None:
    if read.flow is not None:
        tasks = f"{read.tasks} task{'' if read.tasks == 1 else 's'}"
        good = session.out.paint("good", "green")
        session.out.data(
            f"{neutral.line(name)}: {good}: {neutral.line(read.flow.name)}, {tasks}, version {read.version[:12]}"
        )
        return
    for problem in read.problems:
        session.out.data(f"{neutral.line(name)}:{neutral.line(str(problem))}")
    session.out.say(f"{neutral.line(name)}: {_errors(read)}")


def refuse_flow(session: Session, name: str, read: FlowText) -> ExitCode:
    """Report the errors of a flow on stderr, for commands that need a valid one."""
    if session.out.as_json:
        problem = {"message": f"{name}: {_errors(read)}", "exit_code": int(ExitCode.USAGE)}
        sys.stderr.write(
            as_json({"error": problem | {"errors": [text_problem._asdict() for text_problem in read.problems]}}) + "\n"
        )
        return ExitCode.USAGE
    session.out.complain(f"{neutral.line(name)}: {_errors(read)}")
    for text_problem in read.problems:
        session.out.say(f"  {neutral.line(name)}:{neutral.line(str(text_problem))}")
    return ExitCode.USAGE


def _errors(read: FlowText) -> str:
    return f"{len(read.problems)} error{'' if len(read.problems) == 1 else 's'}"


def _shown(name: str, read: FlowText) -> dict[str, Any]:
    shown: dict[str, Any] = {"file": name, "problems": [problem._asdict() for problem in read.problems]}
    if read.flow is not None:
        shown |= {"name": read.flow.name, "tasks": read.tasks, "version": read.version}
    return shown
