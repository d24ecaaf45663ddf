"""`forestay exlets`: look at exlets, check them, and keep them under their names for rules to conclude."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.check import read_flow, refuse_flow
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.rules.exlet_json import ExletText

ACTIONS = ("list", "show", "add", "check")


def exlets(
    session: Session,
    action: Annotated[str, typer.Argument(metavar="|".join(ACTIONS), help="What to do.")] = "list",
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME|FILE…", help="The exlet to show, or the files to add or check."),
    ] = None,
    type_: Annotated[
        str | None,
        typer.Option("--type", metavar="TYPE", help="For `add` and `check`: the type of exception it is to answer."),
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="DIGEST", help="For `show`: this version.")
    ] = None,
) -> int:
    """Show, check and add exlets. `list` them, `show` one, `check` files without a server, `add` them.

    A worklet may be named by a file beside that of the exlet: its flow is stored first, and the exlet gets the version.

    forestay exlets add change-venue.yaml
    """
    words = what or []
    match action:
        case "list":
            return _list(session)
        case "show":
            if len(words) != 1:
                raise typer.BadParameter("name one exlet to show")
            return _show(session, words[0], version)
        case "add" | "check":
            if not words:
                raise typer.BadParameter(f"name the files to {action}")
            read = [(Path(word), _read(Path(word), type_)) for word in words]
            return _check(session, read) if action == "check" else _add(session, read, type_)
        case _:
            raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}")


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
        session.out.document({"exlets": [_checked(file, one) for file, one in read]})
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
        steps = f"{len(read.exlet.steps)} step{'' if len(read.exlet.steps) == 1 else 's'}"
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
        session.out.document({"exlets": kept})
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
    """The text of an exlet in a file, with its worklets stored; None: it is wrong, and that was said."""
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


def _list(session: Session) -> int:
    found = session.client.exlets()
    if session.out.as_json:
        session.out.document({"exlets": found})
        return ExitCode.OK
    columns = [Column("NAME"), Column("VERSION"), Column("STEPS", widest=60), Column("DESCRIPTION", widest=60)]
    rows = [[one["name"], one["version"][:12], ", ".join(one["steps"]), one["description"]] for one in found]
    session.out.table(columns, rows)
    if not rows:
        session.out.say("There are no exlets yet. To keep one: forestay exlets add FILE")
    return ExitCode.OK


def _show(session: Session, name: str, version: str | None) -> int:
    found = session.client.exlet(name, version)
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
