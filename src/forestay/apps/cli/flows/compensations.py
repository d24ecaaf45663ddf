"""`forestay compensations`: how actions are undone, registered apart from the flows; and which version a run uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session
from forestay.apps.cli.text_file import read_text_file
from forestay.apps.cli.versioned_text import show_versioned, whole_version

if TYPE_CHECKING:
    from forestay.formats.flows.compensation_yaml import CompensationText

FILES = typer.Argument(metavar="FILE…", help="Compensations in YAML or JSON.")
DIGEST = typer.Option("--version", metavar="DIGEST", help="This version, or the beginning of it.")


@lists
def list_compensations(
    session: Session,
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="The stack of this run, instead of the library.")
    ] = "",
) -> int:
    """List the compensation library, or the stack of a run.

    forestay compensations list

    forestay compensations list --run 4f1c9d2a
    """
    return _list_stack(session, run) if run else _list_library(session)


def _list_library(session: Session) -> int:
    columns = [Column("ACTION"), Column("VERSION"), Column("BY"), Column("DESCRIPTION", flexible=True)]
    compensations = session.client.compensations()
    ids = session.short_ids(compensation["version"] for compensation in compensations)
    session.print_list(
        "compensations", compensations, columns, key=lambda fields: str(fields["action"]),
        row=lambda fields: [fields["action"], ids.short(fields["version"]), fields["by"], fields["description"]],
        empty="The library is empty. To add a compensation: forestay compensations add FILE",
    )  # fmt: skip
    return ExitCode.OK


def _list_stack(session: Session, run: str) -> int:
    name = session.flow_run(run)
    columns = [
        Column("NUMBER"), Column("TASK"), Column("ACTION"), Column("VERSION"), Column("STATE"), Column("REBOUND BY"), Column("REASON", flexible=True),
    ]  # fmt: skip
    entries = session.client.compensation_stack(name)
    session.print_list(
        "compensations", entries, columns, key=lambda fields: str(fields["number"]),
        row=lambda fields: [
            str(fields["number"]), fields["task"], fields["action"] or "(of the flow)", fields["version"][:12], fields["state"], fields["rebound_by"],
            fields["reason"],
        ],
        empty="Nothing of this run can be undone.",
    )  # fmt: skip
    return ExitCode.OK


def show(
    session: Session,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="The action, or a task as FLOW:TASK.")],
    version: Annotated[str | None, DIGEST] = None,
) -> int:
    """Show what compensates an action, and its earlier versions.

    forestay compensations show reserve-slot
    """
    return show_versioned(session, lambda version: session.client.compensation(action, version), version)


def add(session: Session, files: Annotated[list[Path], FILES]) -> int:
    """Register compensations for their actions.

    Tasks that complete from now on are undone by them. What has completed keeps its version; `rebind` changes that for one run.

    forestay compensations add release-slot.yaml
    """
    read = [(file, _read(file)) for file in files]
    wrong = [(file, text) for file, text in read if text.registered is None]
    for file, text in wrong:
        session.out.complain(f"{neutral.line(str(file))}: {len(text.problems)} error(s)")
        for problem in text.problems:
            session.out.say(f"  {neutral.line(str(file))}:{neutral.line(str(problem))}")
    if wrong:
        return ExitCode.USAGE
    kept = [_put(session, text) for _, text in read]
    if session.out.as_json:
        session.out.document({"compensations": kept})
    else:
        for shown in kept:
            session.out.data(f"{shown['action']}  {shown['version'][:12]}")
    return ExitCode.OK


def rebind(
    session: Session,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.")],
    number: Annotated[
        int, typer.Argument(metavar="NUMBER", help="The number on its stack: forestay compensations list --run RUN.")
    ],
    version: Annotated[
        str | None, typer.Option("--version", metavar="DIGEST", help="This version; the newest if it is left out.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Recorded in the audit log.")] = "",
) -> int:
    """Have a run undo a task by another version of its compensation.

    It is recorded in the run and in the audit log. A compensation that failed and waits for a person runs again.

    forestay compensations rebind 4f1c9d2a 3 --reason "the old one left the lock"
    """
    from forestay.client.api.calls import new_key

    name = session.flow_run(run)
    if version is not None:
        entries = session.client.compensation_stack(name)
        action = next((str(entry["action"]) for entry in entries if entry["number"] == number), "")
        version = whole_version(lambda: session.client.compensation(action), version) if action else version
    answer = session.client.rebind_compensation(name, number, key=new_key(), version=version, reason=reason)
    if session.out.as_json:
        session.out.document({"run": name, **answer})
    else:
        session.out.data(name)
        session.out.say(neutral.line(str(answer["detail"])))
    return ExitCode.OK


def _read(file: Path) -> CompensationText:
    from forestay.formats.flows.compensation_yaml import read_compensation_text

    return read_compensation_text(read_text_file(file))


def _put(session: Session, text: CompensationText) -> dict[str, Any]:
    from forestay.formats.flows.compensation_yaml import write_compensation_text

    assert text.registered is not None  # noqa: S101 - looked at before
    return session.client.put_compensation(text.registered.action, write_compensation_text(text.registered))
