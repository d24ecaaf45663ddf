"""`forestay packs`: the patterns that determine causes, and tests of a site's own. No server is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.rules.classify import read_all
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.rules.pack_yaml import PackPattern


@lists
def list_packs(session: Session) -> int:
    """List packs with the number of their patterns.

    forestay packs list
    """
    packs = read_all(session)
    rows: dict[tuple[str, str], int] = {}
    for file in packs.files:
        area = Path(file.file).stem
        rows[(file.read.name, area)] = rows.get((file.read.name, area), 0) + len(file.read.patterns)
    areas = [{"pack": pack, "area": area, "patterns": many} for (pack, area), many in rows.items()]
    if session.out.as_json:
        session.out.document({"packs": areas, "patterns": len(packs.patterns)})
        return ExitCode.OK
    session.print_list(
        "packs", areas, [Column("PACK", flexible=True), Column("AREA", flexible=True), Column("PATTERNS", right=True)],
        lambda area: [str(area["pack"]), str(area["area"]), str(area["patterns"])],
        key=lambda area: f"{area['pack']}/{area['area']}",
    )  # fmt: skip
    session.out.say(f"{len(packs.patterns)} patterns; to list them: forestay packs patterns")
    return ExitCode.OK


@lists
def patterns(session: Session) -> int:
    """List the patterns of all packs.

    forestay packs patterns
    """
    columns = [
        Column("PATTERN", flexible=True), Column("CAUSE"), Column("RETRY"), Column("WEIGHT", right=True), Column("CONFIDENCE", right=True),
        Column("PACK", flexible=True),
    ]  # fmt: skip
    session.print_list(
        "patterns", [_short(pattern) for pattern in read_all(session).patterns], columns, key=lambda fields: str(fields["name"]),
        row=lambda fields: [fields["name"], fields["cause"], fields["retry"], str(fields["weight"]), f"{fields['confidence']:.0%}", fields["pack"]],
    )  # fmt: skip
    return ExitCode.OK


def show(session: Session, name: Annotated[str, typer.Argument(metavar="PATTERN", help="The pattern's name.")]) -> int:
    """Show a pattern with its tests.

    forestay packs show exit-kill
    """
    from forestay.formats.rules.pack_yaml import pattern_to_json

    patterns = [pack_pattern for pack_pattern in read_all(session).patterns if pack_pattern.pattern.name == name]
    if not patterns:
        session.out.complain(f"there is no pattern {neutral.line(name)}; `forestay packs patterns` lists them")
        return ExitCode.NOT_FOUND
    plain = pattern_to_json(patterns[0])
    if session.out.as_json:
        session.out.document(plain)
        return ExitCode.OK
    for line in _lines(plain):
        session.out.data(line)
    return ExitCode.OK


def _lines(value: Any, indent: str = "") -> list[str]:
    """A plain value in readable form."""
    lines: list[str] = []
    for key, inner in value.items() if isinstance(value, dict) else (("-", other_inner) for other_inner in value):
        head = f"{indent}{key}:" if isinstance(value, dict) else f"{indent}-"
        if isinstance(inner, dict | list):
            lines += [head, *_lines(inner, indent + "  ")]
        elif "\n" in str(inner):
            lines += [head, *(f"{indent}  | {neutral.line(line)}" for line in str(inner).split("\n"))]
        else:
            lines.append(f"{head} {neutral.line(str(inner))}")
    return lines


def run_fixtures(
    session: Session,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="A folder of packs; without it all packs in use.")
    ] = None,
) -> int:
    """Test patterns against the examples that come with them. No server is needed.

    forestay packs test my-packs
    """
    from forestay.formats.rules.pack_folder import folders, read_packs

    try:
        # A site's own patterns are tested together with all others, as they will be used.
        mine = read_packs([folder], with_shipped=False).patterns if folder else None
        known = [path for path in folders() if folder is None or path.resolve() != folder.resolve()]
        everything = read_packs([*known, *([folder] if folder else [])])
    except OSError as error:
        raise typer.BadParameter(str(error)) from error
    problems = [f"{name}:{problem}" for name, problem in everything.problems]
    failures = everything.failures(mine)
    tested = everything.patterns if mine is None else mine
    fixtures = sum(len(pattern.fixtures.matches) + len(pattern.fixtures.passes) for pattern in tested)
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


def _short(pack_pattern: PackPattern) -> dict[str, Any]:
    pattern = pack_pattern.pattern
    return {
        "name": pattern.name,
        "pack": pattern.pack,
        "cause": str(pattern.cause),
        "retry": str(pattern.retry),
        "confidence": pattern.confidence,
        "weight": pattern.weight,
        "words": pattern.words,
    }
