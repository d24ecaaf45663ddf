"""`forestay playbooks`: look at playbooks, check them, and store them under their names for rules to start."""

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

if TYPE_CHECKING:
    from forestay.formats.rules.exlet_json import ExletText

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
    found = session.client.exlets()
    ids = session.short_ids(one["version"] for one in found)
    session.print_list(
        "playbooks", found, columns, key=lambda one: str(one["name"]),
        row=lambda one: [one["name"], ids.short(one["version"]), ", ".join(one["steps"]), one["description"]],
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
    from forestay.client.api.naming import is_whole, only

    if version is not None and not is_whole(version):
        known = {str(one["version"]) for one in session.client.exlet(name, None)["versions"]}
        version = only(version, {one for one in known if one.startswith(version.lower())}, "version")
    return _show(session, session.client.exlet(name, version))


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


def _read(file: Path, type_: str | None) -> ExletText:
    from forestay.formats.rules.exlet_files import TYPES, read_exlet_of_type

    if type_ and type_ not in TYPES:
        raise typer.BadParameter(f"{type_!r} is none of {', '.join(TYPES)}")
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error
    return read_exlet_of_type(text, type_)


def _check(session: Session, read: list[tuple[Path, ExletText]]) -> int:
    if session.out.as_json:
        session.out.document({"playbooks": [_checked(file, one) for file, one in read]})
    else:
        for file, one in read:
            _tell(session, file, one)
    return ExitCode.OK if all(one.exlet is not None for _, one in read) else ExitCode.FAILED


def _checked(file: Path, read: ExletText) -> dict[str, Any]:
    shown: dict[str, Any] = {"file": str(file), "problems": [one._asdict() for one in read.problems]}
    return shown | ({"name": read.exlet.name} if read.exlet is not None else {})


def _tell(session: Session, file: Path, read: ExletText) -> None:
    name = neutral.line(str(file))
    if read.exlet is not None:
        steps = f"{len(read.exlet.steps)} action{'' if len(read.exlet.steps) == 1 else 's'}"
        session.out.data(f"{name}: {session.out.paint('good', 'green')}: {neutral.line(read.exlet.name)}, {steps}")
    for one in read.problems:
        session.out.data(f"{name}:{neutral.line(str(one))}")


def _add(session: Session, read: list[tuple[Path, ExletText]], type_: str | None) -> int:
    """All of them, or none where one is wrong."""
    from forestay.formats.rules.exlet_files import with_versions
    from forestay.formats.rules.exlet_json import write_exlet_text

    wrong = [(file, one) for file, one in read if one.exlet is None]
    if wrong:
        _complain(session, wrong)
        return ExitCode.USAGE
    kept: list[dict[str, Any]] = []
    for file, one in read:
        versions = _versions(session, file, one)
        if versions is None or one.exlet is None:
            return ExitCode.USAGE
        text = write_exlet_text(with_versions(one.exlet, versions))
        kept.append(session.client.put_exlet(one.exlet.name, text, type_=type_))
    if session.out.as_json:
        session.out.document({"playbooks": kept})
    else:
        for shown in kept:
            session.out.data(f"{shown['name']}  {shown['version'][:12]}")
    return ExitCode.OK


def _complain(session: Session, wrong: list[tuple[Path, ExletText]]) -> None:
    for file, one in wrong:
        session.out.complain(f"{neutral.line(str(file))}: {len(one.problems)} error(s)")
        for problem in one.problems:
            session.out.say(f"  {neutral.line(str(file))}:{neutral.line(str(problem))}")


def ready_text(session: Session, file: Path) -> str | None:
    """The text of a playbook in a file, with its worklets stored; None: it has errors, and they were reported."""
    from forestay.formats.rules.exlet_files import with_versions
    from forestay.formats.rules.exlet_json import write_exlet_text

    read = _read(file, None)
    if read.exlet is None:
        _complain(session, [(file, read)])
        return None
    versions = _versions(session, file, read)
    return None if versions is None else write_exlet_text(with_versions(read.exlet, versions))


def _versions(session: Session, file: Path, read: ExletText) -> dict[str, str] | None:
    """The versions of the worklets that are named by their files, which are stored first; None: one of them is no flow."""
    from forestay.formats.flows.yaml_flow import write_flow_text
    from forestay.formats.rules.exlet_files import worklet_files

    assert read.exlet is not None  # noqa: S101 - looked at before
    versions: dict[str, str] = {}
    for name in worklet_files(read.exlet):
        flow = read_flow(file.parent / name)
        if flow.flow is None:
            refuse_flow(session, name, flow)
            return None
        versions[name] = session.client.store_flow(write_flow_text(flow.flow))["version"]
    return versions


def _show(session: Session, found: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(found)
        return ExitCode.OK
    session.out.data(
        session.out.paint(f"# version {found['version']}, by {neutral.line(found['by'])}, {found['at']}", "dim")
    )
    for line in found["text"].splitlines():
        session.out.data(neutral.line(line))
    for one in found["versions"][1:]:
        session.out.say(neutral.line(f"earlier: {one['version']}  {one['at']}  {one['by']}"))
    return ExitCode.OK
