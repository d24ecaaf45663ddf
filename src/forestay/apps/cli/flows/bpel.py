"""`forestay bpel`: processes in WS-BPEL 2.0 with jobs in JSDL 1.0: checked, run, and adapted for another engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.run import start
from forestay.apps.cli.session import Session
from forestay.apps.cli.verb import seconds

if TYPE_CHECKING:
    from forestay.formats.bpel import BpelText

ACTIONS = ("check", "run", "adapt", "send")
MAX_BYTES = 1 << 20


def bpel(
    session: Session,
    action: Annotated[str, typer.Argument(metavar="|".join(ACTIONS), help="What to do.")],
    file: Annotated[str, typer.Argument(metavar="FILE|CASE", help="The process; for `send` a case.")],
    jsdl: Annotated[
        list[Path] | None, typer.Option("--jsdl", metavar="FILE", help="A job definition in JSDL; repeatable.")
    ] = None,
    wsdl: Annotated[
        list[Path] | None,
        typer.Option("--wsdl", metavar="FILE", help="A WSDL document; repeatable. Nothing is fetched."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--mapping", metavar="FILE", help="Who the partners are, in YAML.")
    ] = None,
    message: Annotated[
        list[str] | None,
        typer.Option(
            "--message", "-m", metavar="PART=VALUE", help="A part of the message: a text, XML, or @FILE; repeatable."
        ),
    ] = None,
    partner: Annotated[
        str,
        typer.Option("--partner", metavar="LINK", help="For `send`: the partner link; for `adapt`: only its invokes."),
    ] = "",
    operation: Annotated[str, typer.Option("--operation", metavar="NAME", help="For `send`: the operation.")] = "",
    proxy: Annotated[
        str,
        typer.Option(
            "--proxy", metavar="URL", help="For `adapt`: where the proxy is, if the engine is not told otherwise."
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="For `adapt`: where to write it.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="For `run`: start the case, print its id, and do not wait.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="For `run`: the same key again gives the same case.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(parser=seconds, metavar="TIME", help="Exit code 7 after so long; the case goes on.")
    ] = None,
) -> int:
    """Check, run or adapt a process in WS-BPEL 2.0. `check` says of every construct, with its line, what becomes of it.

    forestay bpel check nightly.bpel
    forestay bpel run nightly.bpel --jsdl fit.jsdl --message part=5
    """
    if action not in ACTIONS:
        raise typer.BadParameter(f"say one of {', '.join(ACTIONS)}, not {action!r}")
    if action == "send":
        parts = _message(message or [])
        session.client.send_message(session.case(file), partner, operation, parts)
        session.out.say("sent")
        return ExitCode.OK
    from forestay.formats.bpel import read_bpel

    text = _text(Path(file))
    jobs = {one.name: _text(one) for one in jsdl or []}
    wsdls = [_text(one) for one in wsdl or []]
    who = _text(mapping) if mapping is not None else ""
    read = read_bpel(text, wsdls=wsdls, jobs=jobs, mapping=who)
    if action == "check":
        return _tell(session, file, read)
    if read.flow is None:
        _tell_refused(session, file, read)
        return ExitCode.USAGE
    if action == "adapt":
        return _adapt(session, text, partner, proxy, out)
    version = session.client.store_bpel(text, wsdls=wsdls, jobs=jobs, mapping=who)["version"]
    params = {"message": _message(message)} if message else {}
    return start(session, version, params, key=key, detach=detach, timeout=timeout)


def _text(path: Path) -> str:
    try:
        with path.open("rb") if str(path) != "-" else sys.stdin.buffer as stream:
            found = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    if len(found) > MAX_BYTES:
        raise typer.BadParameter(f"{path} has more than {MAX_BYTES} bytes")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not a text in UTF-8") from error


def _message(given: list[str]) -> dict[str, object]:
    from forestay.formats.bpel import XmlRefused, message_plain

    parts: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign:
            raise typer.BadParameter(f"{one!r}: write PART=VALUE", param_hint="--message")
        parts[name] = _text(Path(value[1:])) if value.startswith("@") else value
    try:
        return message_plain(parts)
    except XmlRefused as error:
        raise typer.BadParameter(str(error), param_hint="--message") from error


def _tell(session: Session, file: str, read: BpelText) -> int:
    entries = sorted(read.report.entries)
    good = read.flow is not None
    if session.out.as_json:
        shown = [
            {"line": one.line, "construct": one.construct, "fate": one.fate.value, "note": one.note} for one in entries
        ]
        session.out.document({"file": file, "name": read.name, "fate": read.report.fate.value, "entries": shown, "other": list(read.other)})  # fmt: skip
        return ExitCode.OK if good else ExitCode.FAILED
    for one in entries:
        if one.fate != "imported":
            session.out.data(neutral.line(f"{file}:{one}"))
    for line in read.other:
        session.out.data(neutral.line(f"{line}"))
    counts = [f"{sum(1 for one in entries if one.fate == fate)} {fate}" for fate in ("imported", "changed", "refused")]
    session.out.data(neutral.line(f"{file}: {', '.join(counts)}"))
    return ExitCode.OK if good else ExitCode.FAILED


def _tell_refused(session: Session, file: str, read: BpelText) -> None:
    from forestay.formats.bpel import Fate

    wrong = [f"{file}:{one}" for one in read.report.of(Fate.REFUSED)] + list(read.other)
    if session.out.as_json:
        sys.stderr.write(json.dumps({"error": {"message": f"{file} is refused", "exit_code": int(ExitCode.USAGE), "errors": wrong}}) + "\n")  # fmt: skip
        return
    session.out.complain(neutral.line(f"{file}: it is refused"))
    for one in wrong:
        session.out.say(neutral.line(f"  {one}"))


def _adapt(session: Session, text: str, partner: str, proxy: str, out: Path | None) -> int:
    from forestay.formats.bpel import adapt_text

    adapted = adapt_text(text, [partner] if partner else [], proxy)
    if out is not None:
        out.write_text(adapted.text, encoding="utf-8")
        session.out.say(f"{adapted.count} invokes go through the proxy; written to {out}")
    else:
        session.out.data(adapted.text.rstrip("\n"))
    return ExitCode.OK
