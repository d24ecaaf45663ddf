"""`forestay try`: what failures cost in the last weeks, from existing records. No server is needed."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import number_of
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.rules.classify import read_all
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.accounting.lookback import Attempts

OUT = Path("forestay-try.html")


def try_out(
    session: Session,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Kept output of `sacct --parsable2` or `condor_history -json`, a Nextflow trace or log, a Snakemake log, or a folder of a flow. Repeatable. "
            "Without it, sacct and condor_history are asked and the current folder is searched.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3660, help="How far to look back.")] = 30,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page to write.")] = OUT,
    no_logs: Annotated[bool, typer.Option("--no-logs", help="Do not read the logs of failed jobs.")] = False,
    redact_names: Annotated[
        bool, typer.Option("--redact-names", help="Leave out users, hosts, job ids and lines of logs.")
    ] = False,
) -> int:
    """Show what failures cost, before you install anything. Reads the accounting of Slurm or HTCondor and the logs of Nextflow and Snakemake, finds the causes, and writes one HTML page. Nothing leaves the machine.

    forestay try --from sacct.txt
    """
    from importlib.metadata import version

    from forestay.formats.accounting.lookback import Lookback
    from forestay.formats.accounting.loss_page import loss_page

    silent: list[str] = []
    planned = list(_sources(session, sources, days, silent, logs=not no_logs))
    if not planned:
        session.out.complain("nothing to read: there is no sacct and no condor_history here; name files with --from")
        return ExitCode.NOT_FOUND
    lookback = Lookback(read_all(session).classifier())
    since = time.time() - days * 86_400 if sources is None else 0.0
    with session.out.progress("attempts") as bar:
        for name, attempts in planned:
            session.out.detail(f"reading {name}")
            for count in lookback.add(attempts, since):
                if count % 1000 == 0:
                    bar.to(count)
    if silent and not lookback.losses.attempts:
        session.out.complain(f"nothing was read from {' and '.join(silent)}; name files with kept output with --from")
        return ExitCode.FAILED
    findings = lookback.report(redact_names=redact_names)
    made = f"Made by Forestay {version('forestay')} on {datetime.now().astimezone():%Y-%m-%d %H:%M}."
    try:
        out.write_text(loss_page(findings, made), encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{out} cannot be written: {error.strerror}") from error
    if session.out.as_json:
        session.out.document({**findings, "page": str(out)})
    else:
        _show(session, findings)
        session.out.say(f"The whole report: {neutral.line(str(out))}")
    return ExitCode.OK


def _sources(
    session: Session, named: list[Path] | None, days: int, silent: list[str], *, logs: bool
) -> Iterator[tuple[str, Attempts]]:
    """The sources, by name. Failed commands are added to ``silent`` after they have been read."""
    from forestay.formats.accounting.lookback import UnknownSource, find_files, kind_of, read_file

    if named is None:
        if shutil.which("sacct"):
            yield "sacct", _from_sacct(session, days, silent, logs=logs)
        if shutil.which("condor_history"):
            yield "condor_history", _from_condor(session, days, silent, logs=logs)
    for path in named if named is not None else [Path()]:
        try:
            files = find_files(path) if path.is_dir() else [path]
            for file in files:
                kind_of(file)
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint="--from") from error
        except UnknownSource as error:
            raise typer.BadParameter(str(error), param_hint="--from") from error
        for file in files:
            yield str(file), read_file(file, logs=logs)


def _from_sacct(session: Session, days: int, silent: list[str], *, logs: bool) -> Attempts:
    from forestay.formats.accounting.lookback import columns_known, environment_of_sacct
    from forestay.formats.accounting.past_log import read_tail
    from forestay.formats.accounting.sacct import COLUMNS, NotSacct, read_sacct

    environment = environment_of_sacct(os.environ)
    known = subprocess.run(["sacct", "--helpformat"], env=environment, capture_output=True, text=True, check=False)  # noqa: S607
    # No name of a job can contain the separator of the columns.
    between = f"~{secrets.token_hex(6)}~"
    words = [
        "sacct", "--allusers", "--duplicates", "--parsable2", f"--delimiter={between}", f"--starttime=now-{days}days",
        f"--format={','.join(columns_known(known.stdout, COLUMNS))}",
    ]  # fmt: skip
    with _output(session, words, environment, silent) as lines, suppress(NotSacct):  # its error messages are reported
        yield from read_sacct(lines, delimiter=between, read_log=read_tail if logs else lambda *_: "")


def _from_condor(session: Session, days: int, silent: list[str], *, logs: bool) -> Attempts:
    from forestay.formats.accounting.condor_history import ATTRIBUTES, read_condor_history
    from forestay.formats.accounting.lookback import CHUNK
    from forestay.formats.accounting.past_log import read_tail

    words = ["condor_history", "-json", "-attributes", ",".join(ATTRIBUTES), "-completedsince", str(int(time.time()) - days * 86_400)]  # fmt: skip
    with _output(session, words, os.environ, silent) as out:
        chunks = iter(lambda: out.read(CHUNK), "")
        yield from read_condor_history(chunks, read_log=read_tail if logs else lambda *_: "")


@contextmanager
def _output(session: Session, words: list[str], environment: Mapping[str, str], silent: list[str]) -> Iterator[IO[str]]:
    """The output of a batch system's command, as it comes; its error messages are reported at its end."""
    with TemporaryFile("w+", errors="replace") as complaints:
        with subprocess.Popen(  # noqa: S603 - a command of the batch system
            words, env=environment, stdout=subprocess.PIPE, stderr=complaints, text=True, errors="replace"
        ) as process:
            if process.stdout is None:
                raise RuntimeError("the command has no output")
            yield process.stdout
        complaints.seek(0)
        text = complaints.read(300).strip()
    if process.returncode or "error" in text:
        silent.append(words[0])
        text = neutral.line(text).removeprefix(f"{words[0]}: ")
        session.out.complain(f"{words[0]}: {text or f'ended with {process.returncode}'}")


def _show(session: Session, report: dict[str, Any]) -> None:
    from forestay.formats.accounting.loss_page import between, hours

    out, failed = session.out, report["failed"]
    if not report["attempts"]:
        out.say("No job has ended in this period.")
        return
    share = failed["core_hours"] / report["core_hours"] if report["core_hours"] else 0.0
    out.data(
        f"{number_of(report['attempts'], 'attempt')}, {hours(report['core_hours'])} core-hours, {report['from']} to {report['to']}"
    )
    lost = f"{number_of(failed['attempts'], 'failed attempt')}: {hours(failed['core_hours'])} core-hours lost ({share:.1%})"
    out.data(out.paint(lost, "bold"))
    if not failed["attempts"]:
        return
    out.data()
    out.table(
        [
            Column("CAUSE"),
            Column("FAILURES", right=True),
            Column("CORE-HOURS", right=True),
            Column("CONFIDENCE", right=True),
        ],
        [
            [row["cause"], f"{row['failures']:,}", hours(row["core_hours"]), f"{row['confidence']:.0%}"]
            for row in report["causes"]
        ],
    )
    for title, name in (("OWNER", "owners"), ("HOST", "hosts")):
        out.data()
        out.table(
            [Column(title, flexible=True), Column("FAILURES", right=True), Column("CORE-HOURS", right=True)],
            [[neutral.line(row["name"]), f"{row['failures']:,}", hours(row["core_hours"])] for row in report[name][:5]],
        )
    out.data()
    out.table(
        [Column("STARTER RULE"), Column("WOULD RETRY", right=True), Column("RECOVERED (95 %)", right=True), Column("SUCCEEDED WHEN RUN AGAIN", right=True)],
        [
            [row["rule"], f"{row['failures']:,}", between(*row["recovered"]), f"{row['succeeded']:,} of {row['run_again']:,}"]
            for row in report["rules"]
        ],
    )  # fmt: skip
