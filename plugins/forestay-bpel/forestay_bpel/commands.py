"""`forestay bpel`: processes in WS-BPEL 2.0 with jobs in JSDL 1.0: checked, run, and adapted for another engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.run import RUN, Timeout, start
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay_bpel.formats.bpel import BpelText

MAX_BYTES = 1 << 20
FILE = typer.Argument(metavar="FILE", help="The process, - for stdin.")
Jsdl = Annotated[
    list[Path] | None, typer.Option("--jsdl", metavar="FILE", help="A job definition in JSDL; repeatable.")
]
Wsdl = Annotated[
    list[Path] | None, typer.Option("--wsdl", metavar="FILE", help="A WSDL document; repeatable. Nothing is fetched.")
]
Mapping = Annotated[
    Path | None, typer.Option("--mapping", metavar="FILE", help="Which partner link is served by whom, in YAML.")
]
Message = Annotated[
    list[str] | None,
    typer.Option(
        "--message", "-m", metavar="PART=VALUE", help="A part of the message: text, XML, or @FILE; repeatable."
    ),
]


class _Process(NamedTuple):
    """A process and what belongs to it, as read."""

    text: str
    jobs: dict[str, str]
    wsdls: list[str]
    mapping: str
    read: BpelText


def _process(file: str, jsdl: list[Path] | None, wsdl: list[Path] | None, mapping: Path | None) -> _Process:
    from forestay_bpel.formats.bpel import read_bpel

    text = _text(Path(file))
    jobs = {path.name: _text(path) for path in jsdl or []}
    wsdls = [_text(path) for path in wsdl or []]
    partners = _text(mapping) if mapping is not None else ""
    return _Process(text, jobs, wsdls, partners, read_bpel(text, wsdls=wsdls, jobs=jobs, mapping=partners))


def check(
    session: Session, file: Annotated[str, FILE], jsdl: Jsdl = None, wsdl: Wsdl = None, mapping: Mapping = None
) -> int:
    """Check which constructs of a process are supported. Reports each with its line.

    forestay bpel check nightly.bpel
    """
    return _tell(session, file, _process(file, jsdl, wsdl, mapping).read)


def run(
    session: Session,
    file: Annotated[str, FILE],
    jsdl: Jsdl = None,
    wsdl: Wsdl = None,
    mapping: Mapping = None,
    message: Message = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Start the run, print its id, and do not wait.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Idempotency key: repeating a key returns the same run.")
    ] = None,
    timeout: Timeout = None,
) -> int:
    """Run a process and follow it. Ctrl-C leaves it running.

    forestay bpel run nightly.bpel --jsdl fit.jsdl --message part=5
    """
    process = _process(file, jsdl, wsdl, mapping)
    if process.read.flow is None:
        _tell_refused(session, file, process.read)
        return ExitCode.USAGE
    params = {"message": _message(message)} if message else {}
    from forestay_bpel.calls import store_bpel

    call = store_bpel(process.text, wsdls=process.wsdls, jobs=process.jobs, mapping=process.mapping)
    stored = session.client.send(call)
    return start(session, stored["version"], params, key=key, detach=detach, timeout=timeout)


def adapt(
    session: Session,
    file: Annotated[str, FILE],
    partner: Annotated[
        str, typer.Option("--partner", metavar="LINK", help="Only the invokes of this partner link.")
    ] = "",
    proxy: Annotated[
        str, typer.Option("--proxy", metavar="URL", help="Where the proxy is, unless the engine is configured for it.")
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where to write it.")] = None,
    jsdl: Jsdl = None,
    wsdl: Wsdl = None,
    mapping: Mapping = None,
) -> int:
    """Adapt a process for another engine. Its invokes go through the proxy.

    forestay bpel adapt nightly.bpel --out adapted.bpel
    """
    process = _process(file, jsdl, wsdl, mapping)
    if process.read.flow is None:
        _tell_refused(session, file, process.read)
        return ExitCode.USAGE
    return _adapt(session, process.text, partner, proxy, out)


def send(
    session: Session,
    run_id: Annotated[str, RUN],
    partner: Annotated[str, typer.Option("--partner", metavar="LINK", help="The partner link.")] = "",
    operation: Annotated[str, typer.Option("--operation", metavar="NAME", help="The operation.")] = "",
    message: Message = None,
) -> int:
    """Send a message to the process of a run.

    forestay bpel send 4f1c9d2a --partner clerk --operation answer --message part=yes
    """
    from forestay_bpel.calls import send_message

    session.client.send(send_message(session.flow_run(run_id), partner, operation, _message(message or [])))
    session.out.say("The message was sent.")
    return ExitCode.OK


def _text(path: Path) -> str:
    try:
        with path.open("rb") if str(path) != "-" else sys.stdin.buffer as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise typer.BadParameter(f"{path} has more than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not a text in UTF-8") from error


def _message(arguments: list[str]) -> dict[str, object]:
    from forestay_bpel.formats.bpel import XmlRefused, message_plain

    parts: dict[str, str] = {}
    for argument in arguments:
        name, sign, value = argument.partition("=")
        if not sign:
            raise typer.BadParameter(f"{argument!r}: write PART=VALUE", param_hint="--message")
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
            {"line": entry.line, "construct": entry.construct, "fate": entry.fate.value, "note": entry.note}
            for entry in entries
        ]
        session.out.document({"file": file, "name": read.name, "fate": read.report.fate.value, "entries": shown, "other": list(read.other)})  # fmt: skip
        return ExitCode.OK if good else ExitCode.FAILED
    for entry in entries:
        if entry.fate != "imported":
            session.out.data(neutral.line(f"{file}:{entry}"))
    for line in read.other:
        session.out.data(neutral.line(f"{line}"))
    counts = [
        f"{sum(1 for entry in entries if entry.fate == fate)} {fate}" for fate in ("imported", "changed", "refused")
    ]
    session.out.data(neutral.line(f"{file}: {', '.join(counts)}"))
    return ExitCode.OK if good else ExitCode.FAILED


def _tell_refused(session: Session, file: str, read: BpelText) -> None:
    from forestay_bpel.formats.bpel import ImportStatus

    wrong = [f"{file}:{entry}" for entry in read.report.of(ImportStatus.REFUSED)] + list(read.other)
    if session.out.as_json:
        sys.stderr.write(json.dumps({"error": {"message": f"{file} is refused", "exit_code": int(ExitCode.USAGE), "errors": wrong}}) + "\n")  # fmt: skip
        return
    session.out.complain(neutral.line(f"{file}: it is refused"))
    for problem in wrong:
        session.out.say(neutral.line(f"  {problem}"))


def _adapt(session: Session, text: str, partner: str, proxy: str, out: Path | None) -> int:
    from forestay_bpel.formats.bpel import adapt_text

    adapted = adapt_text(text, [partner] if partner else [], proxy)
    if out is not None:
        out.write_text(adapted.text, encoding="utf-8")
        session.out.say(f"{adapted.count} invokes go through the proxy; written to {out}")
    else:
        session.out.data(adapted.text.rstrip("\n"))
    return ExitCode.OK
