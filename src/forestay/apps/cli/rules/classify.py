"""`forestay classify`: find causes from evidence of failures. No server is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.rules.pack_folder import Packs

_COLOURS = {"no": "red", "changed": "yellow", "elsewhere": "yellow", "same": "green"}
_WORDS = {
    "same": "a retry may help",
    "changed": "retry with changes",
    "elsewhere": "retry elsewhere",
    "no": "a retry will not help",
}


def classify(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Evidence, one JSON record per line; - or nothing for stdin."),
    ] = None,
) -> int:
    """Find causes from evidence, without a server. Reads one JSON record of evidence per line, and prints one result per line, in the same order.

    forestay classify --json failures.jsonl
    """
    packs = read_all(session)
    if file is None or str(file) == "-":
        return _run(session, sys.stdin.buffer, packs)
    try:
        with file.open("rb") as source:
            return _run(session, source, packs)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error


def read_all(session: Session) -> Packs:
    """The packs that come with Forestay and those of FORESTAY_PACKS; errors of one are reported, and the others are used."""
    from forestay.formats.rules.pack_folder import folders, read_packs

    try:
        packs = read_packs(folders())
    except OSError as error:
        raise typer.BadParameter(f"FORESTAY_PACKS: {error}") from error
    for name, problem in packs.problems:
        session.out.complain(f"{neutral.line(name)}:{neutral.line(str(problem))}")
    return packs


def _run(session: Session, source: BinaryIO, packs: Packs) -> int:
    from forestay.formats.rules.classified import answers

    out = session.out
    wrong = done = 0
    with out.progress("records") if not out.to_terminal else _no_bar() as step:
        for done, answer in enumerate(answers(source, packs.classifier()), 1):
            wrong += "error" in answer
            if out.as_json:
                out.event(answer)
            else:
                _tell(session, done, answer)
            if step is not None and done % 100 == 0:
                step.to(done)
    if wrong:
        out.say(f"{wrong} of {done} line{'' if done == 1 else 's'} could not be read")
    return ExitCode.OK


def _no_bar() -> Any:
    from contextlib import nullcontext

    return nullcontext(None)


def _tell(session: Session, number: int, reply: dict[str, Any]) -> None:
    from forestay.formats.rules.classified import verdict_text

    out = session.out
    if "error" in reply:
        out.data(f"{number}: {out.paint('not read', 'red')}: {neutral.line(reply['error'])}")
        return
    sure = f"{reply['confidence']:.0%}"
    by = f", by {reply['pattern']}" if reply["pattern"] else ""
    often = f": {verdict_text(reply)}" if reply["tries"] else ""
    retry = out.paint(_WORDS[reply["retry"]] + often, _COLOURS[reply["retry"]])
    out.data(f"{number}: {out.paint(reply['cause'], 'bold')} ({sure}{by}); {retry}")
    for text in (reply["words"], reply["advice"]):
        if text:
            out.folded(f"   {neutral.line(text)}", 3)
    for line in reply["lines"]:
        out.data(out.paint(f"   | {neutral.line(line)}", "dim"))
    if reply["also"]:
        others = ", ".join(
            f"{finding['cause']} ({finding['pattern']}, {finding['confidence']:.0%})" for finding in reply["also"]
        )
        out.folded(f"   Also seen: {neutral.line(others)}.", 3)
