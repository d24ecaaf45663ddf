"""`forestay packs`: the patterns by which causes are found, and the tests of one's own. No server is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.rules.classify import read_all
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.rules.pack_yaml import PackPattern


def packs(
    session: Session,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[list|show|test]", help="What to do: list all patterns, show one, or run the fixtures."
        ),
    ] = None,
    what: Annotated[
        str | None,
        typer.Argument(metavar="PATTERN|FOLDER", help="The pattern to show, or the folder of packs to test."),
    ] = None,
) -> int:
    """The patterns by which causes are found. How many there are, `list` all, `show` one, `test` them or a folder of your own. Nothing is sent anywhere.

    forestay packs test my-packs
    """
    if action is None:
        return _counts(session)
    if action == "list":
        return _list(session)
    if action == "show":
        if not what:
            raise typer.BadParameter("name the pattern to show")
        return _show(session, what)
    if action == "test":
        return _test(session, Path(what) if what else None)
    raise typer.BadParameter(f"{action!r} is none of list, show and test")


def _counts(session: Session) -> int:
    found = read_all(session)
    rows: dict[tuple[str, str], int] = {}
    for file in found.files:
        area = Path(file.file).stem
        rows[(file.read.name, area)] = rows.get((file.read.name, area), 0) + len(file.read.patterns)
    if session.out.as_json:
        areas = [{"pack": pack, "area": area, "patterns": many} for (pack, area), many in rows.items()]
        session.out.document({"packs": areas, "patterns": len(found.patterns)})
        return ExitCode.OK
    columns = [Column("PACK"), Column("AREA"), Column("PATTERNS", right=True)]
    shown = [[pack, area, str(many)] for (pack, area), many in rows.items()]
    session.out.table(columns, shown)
    session.out.say(f"{len(found.patterns)} patterns; `forestay packs list` names them")
    return ExitCode.OK


def _list(session: Session) -> int:
    found = read_all(session).patterns
    if session.out.as_json:
        session.out.documents("patterns", [_short(one) for one in found])
        return ExitCode.OK
    columns = [Column("PATTERN"), Column("CAUSE"), Column("RETRY"), Column("WEIGHT", right=True), Column("SURE", right=True), Column("PACK")]  # fmt: skip
    rows = [
        [one.pattern.name, one.pattern.cause, one.pattern.retry, str(one.pattern.weight), f"{one.pattern.confidence:.0%}", one.pattern.pack]
        for one in found
    ]  # fmt: skip
    session.out.table(columns, rows)
    return ExitCode.OK


def _show(session: Session, name: str) -> int:
    from forestay.formats.rules.pack_yaml import pattern_to_json

    found = [one for one in read_all(session).patterns if one.pattern.name == name]
    if not found:
        session.out.complain(f"there is no pattern {neutral.line(name)}; `forestay packs list` names them all")
        return ExitCode.NOT_FOUND
    plain = pattern_to_json(found[0])
    if session.out.as_json:
        session.out.document(plain)
        return ExitCode.OK
    for line in _lines(plain):
        session.out.data(line)
    return ExitCode.OK


def _lines(value: Any, indent: str = "") -> list[str]:
    """A plain value as a person reads it."""
    found: list[str] = []
    for key, one in value.items() if isinstance(value, dict) else (("-", one) for one in value):
        head = f"{indent}{key}:" if isinstance(value, dict) else f"{indent}-"
        if isinstance(one, dict | list):
            found += [head, *_lines(one, indent + "  ")]
        elif "\n" in str(one):
            found += [head, *(f"{indent}  | {neutral.line(line)}" for line in str(one).split("\n"))]
        else:
            found.append(f"{head} {neutral.line(str(one))}")
    return found


def _test(session: Session, folder: Path | None) -> int:
    from forestay.formats.rules.pack_folder import folders, read_packs

    try:
        # One's own are tried beside all others, as they will be used.
        mine = read_packs([folder], with_shipped=False).patterns if folder else None
        known = [one for one in folders() if folder is None or one.resolve() != folder.resolve()]
        everything = read_packs([*known, *([folder] if folder else [])])
    except OSError as error:
        raise typer.BadParameter(str(error)) from error
    problems = [f"{name}:{problem}" for name, problem in everything.problems]
    failures = everything.failures(mine)
    tested = everything.patterns if mine is None else mine
    fixtures = sum(len(one.fixtures.matches) + len(one.fixtures.passes) for one in tested)
    if session.out.as_json:
        counts = {"patterns": len(tested), "fixtures": fixtures}
        session.out.document(counts | {"problems": problems, "failures": failures})
    else:
        for text in (*problems, *failures):
            session.out.data(neutral.line(text))
        good = (
            session.out.paint("good", "green")
            if not problems and not failures
            else session.out.paint("not good", "red")
        )
        session.out.data(
            f"{len(tested)} patterns, {fixtures} fixtures: {good}"
            + (f", {len(problems)} errors, {len(failures)} failures" if problems or failures else "")
        )
    return ExitCode.FAILED if problems or failures else ExitCode.OK


def _short(one: PackPattern) -> dict[str, Any]:
    pattern = one.pattern
    return {
        "name": pattern.name,
        "pack": pattern.pack,
        "cause": str(pattern.cause),
        "retry": str(pattern.retry),
        "confidence": pattern.confidence,
        "weight": pattern.weight,
        "words": pattern.words,
    }
