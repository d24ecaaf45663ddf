"""`forestay playbooks`: shows playbooks, checks them, and stores them under their names for rules to start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.check import read_flow, refuse_flow
from forestay.apps.cli.session import Session
from forestay.apps.cli.text_file import read_text_file
from forestay.apps.cli.versioned_text import show_versioned

if TYPE_CHECKING:
    from forestay.formats.rules.playbook_json import PlaybookText

FILES = typer.Argument(metavar="FILE…", help="Playbooks in YAML or JSON.")
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="The exception type that it is to answer.")]


@lists
def list_playbooks(session: Session) -> int:
    """List the stored playbooks.

    forestay playbooks list
    """
    columns = [
        Column("NAME"),
        Column("VERSION"),
        Column("ACTIONS", flexible=True),
        Column("DESCRIPTION", flexible=True),
    ]
    playbooks = session.client.playbooks()
    ids = session.short_ids(playbook["version"] for playbook in playbooks)
    session.print_list(
        "playbooks", playbooks, columns, key=lambda fields: str(fields["name"]),
        row=lambda fields: [fields["name"], ids.short(fields["version"]), ", ".join(fields["steps"]), fields["description"]],
        empty="There are no playbooks yet. To add one: forestay playbooks add FILE",
    )  # fmt: skip
    return ExitCode.OK


def show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The playbook's name.")],
    version: Annotated[
        str | None, typer.Option("--version", metavar="DIGEST", help="This version, or the beginning of it.")
    ] = None,
) -> int:
    """Show a playbook, and its earlier versions.

    forestay playbooks show change-venue
    """
    return show_versioned(session, lambda version: session.client.playbook(name, version), version)


def add(session: Session, files: Annotated[list[Path], FILES], type_: Type = None) -> int:
    """Store playbooks under their names, for rules to start.

    A worklet may be named by a file beside that of the playbook: its flow is stored first, and the playbook gets its version.

    forestay playbooks add change-venue.yaml
    """
    return _add(session, [(file, _read(file, type_)) for file in files], type_)


def check(session: Session, files: Annotated[list[Path], FILES], type_: Type = None) -> int:
    """Check playbooks and report every error with its line. No server is needed.

    forestay playbooks check change-venue.yaml
    """
    return _check(session, [(file, _read(file, type_)) for file in files])


def _read(file: Path, type_: str | None) -> PlaybookText:
    from forestay.formats.rules.playbook_files import TYPES, read_playbook_of_type

    if type_ and type_ not in TYPES:
        raise typer.BadParameter(f"{type_!r} is none of {', '.join(TYPES)}")
    return read_playbook_of_type(read_text_file(file), type_)


def _check(session: Session, read: list[tuple[Path, PlaybookText]]) -> int:
    if session.out.as_json:
        session.out.document({"playbooks": [_checked(file, text) for file, text in read]})
    else:
        for file, text in read:
            _tell(session, file, text)
    return ExitCode.OK if all(text.playbook is not None for _, text in read) else ExitCode.FAILED


def _checked(file: Path, read: PlaybookText) -> dict[str, Any]:
    shown: dict[str, Any] = {"file": str(file), "problems": [problem._asdict() for problem in read.problems]}
    return shown | ({"name": read.playbook.name} if read.playbook is not None else {})


def _tell(session: Session, file: Path, read: PlaybookText) -> None:
    name = neutral.line(str(file))
    if read.playbook is not None:
        steps = f"{len(read.playbook.steps)} action{'' if len(read.playbook.steps) == 1 else 's'}"
        session.out.data(f"{name}: {session.out.paint('good', 'green')}: {neutral.line(read.playbook.name)}, {steps}")
    for problem in read.problems:
        session.out.data(f"{name}:{neutral.line(str(problem))}")


def _add(session: Session, read: list[tuple[Path, PlaybookText]], type_: str | None) -> int:
    """Store all of them, or none if one is invalid."""
    from forestay.formats.rules.playbook_files import with_versions
    from forestay.formats.rules.playbook_json import write_playbook_text

    wrong = [(file, text) for file, text in read if text.playbook is None]
    if wrong:
        _complain(session, wrong)
        return ExitCode.USAGE
    kept: list[dict[str, Any]] = []
    for file, playbook_text in read:
        versions = _versions(session, file, playbook_text)
        if versions is None or playbook_text.playbook is None:
            return ExitCode.USAGE
        text = write_playbook_text(with_versions(playbook_text.playbook, versions))
        kept.append(session.client.put_playbook(playbook_text.playbook.name, text, type_=type_))
    if session.out.as_json:
        session.out.document({"playbooks": kept})
    else:
        for shown in kept:
            session.out.data(f"{shown['name']}  {shown['version'][:12]}")
    return ExitCode.OK


def _complain(session: Session, wrong: list[tuple[Path, PlaybookText]]) -> None:
    for file, text in wrong:
        session.out.complain(f"{neutral.line(str(file))}: {len(text.problems)} error(s)")
        for problem in text.problems:
            session.out.say(f"  {neutral.line(str(file))}:{neutral.line(str(problem))}")


def ready_text(session: Session, file: Path) -> str | None:
    """The text of a playbook in a file, with its worklets stored; None: it has errors, and they were reported."""
    from forestay.formats.rules.playbook_files import with_versions
    from forestay.formats.rules.playbook_json import write_playbook_text

    read = _read(file, None)
    if read.playbook is None:
        _complain(session, [(file, read)])
        return None
    versions = _versions(session, file, read)
    return None if versions is None else write_playbook_text(with_versions(read.playbook, versions))


def _versions(session: Session, file: Path, read: PlaybookText) -> dict[str, str] | None:
    """The versions of the worklets that are named by their files, which are stored first; None: one of them is not a flow."""
    from forestay.formats.flows.yaml_flow import write_flow_text
    from forestay.formats.rules.playbook_files import worklet_files

    assert read.playbook is not None  # noqa: S101 - looked at before
    versions: dict[str, str] = {}
    for name in worklet_files(read.playbook):
        flow = read_flow(file.parent / name)
        if flow.flow is None:
            refuse_flow(session, name, flow)
            return None
        versions[name] = session.client.store_flow(write_flow_text(flow.flow))["version"]
    return versions
