"""`forestay submit`: submits jobs and prints their ids."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from forestay.apps.cli.amounts import parse_duration, parse_moment, parse_size
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import AcceptedJson, NewJob, SpecificationJson


class CheckpointSignal(StrEnum):
    """What tells a job to write its checkpoint."""

    TERM = "TERM"
    INT = "INT"
    HUP = "HUP"
    USR1 = "USR1"
    USR2 = "USR2"


class ExhaustedAction(StrEnum):
    """What happens to a job whose attempts are used up."""

    FAIL = "fail"
    HOLD = "hold"


def size_option(text: str) -> int:
    return _checked(parse_size, text)


def duration_option(text: str) -> int:
    return _checked(parse_duration, text)


def begin_option(text: str) -> str:
    try:
        return parse_moment(text, datetime.now(UTC), ahead=True)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _checked(parse: Callable[[str], int], text: str) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """`key=value` texts as a dictionary."""
    values: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise typer.BadParameter(f"{what} {text!r} is not of the form name=value")
        values[key] = value
    return values


def submit(
    session: Session,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- CMD ARG…]", help="The command; {index} and {name} are replaced by the job's own values."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the jobs (the command's).")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, metavar="N", help="CPUs.")] = None,
    memory: Annotated[int | None, typer.Option(parser=size_option, metavar="SIZE", help="Memory: 512M, 2G.")] = None,
    disk: Annotated[int | None, typer.Option(parser=size_option, metavar="SIZE", help="Scratch space: 10G.")] = None,
    gpus: Annotated[int | None, typer.Option(min=0, metavar="N", help="GPUs.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, metavar="N", help="Nodes; the other amounts are of each.")] = None,
    container: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE",
            help="Run the command in this image: debian:12, docker://host/name@sha256:…, oci:/folder:tag, /path.",
        ),
    ] = None,
    wall: Annotated[
        int | None,
        typer.Option(
            "--wall", "--time", parser=duration_option, metavar="TIME", help="Time limit of an attempt: 01:30:00, 90m."
        ),
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=-1000, max=1000, metavar="N", help="Higher runs first, from -1000 to 1000.")
    ] = None,
    team: Annotated[str | None, typer.Option(metavar="NAME", help="The team that the jobs are for.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label to find the jobs by; repeatable.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="Environment variable; without a value, yours is used. For secrets use --secret: everyone who sees the job sees its variables. Repeatable.",
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="A file that the job must produce, and that is kept; repeatable."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Attempts of its own before the job fails. Failures of the infrastructure, and one more try of a failure that may pass, are not charged to them.",
        ),
    ] = None,
    retry_wait: Annotated[
        int | None,
        typer.Option(
            parser=duration_option, metavar="TIME", help="Wait before the second attempt, doubled each time: 30s."
        ),
    ] = None,
    when_exhausted: Annotated[
        ExhaustedAction | None, typer.Option(metavar="fail|hold", help="What happens when no attempt is left.")
    ] = None,
    expected_runtime: Annotated[
        int | None,
        typer.Option(parser=duration_option, metavar="TIME", help="Raise an alert for a job that takes longer."),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            parser=begin_option, metavar="TIME", help="Not before this time: 18:00, 2026-05-01T12:30, 2h from now."
        ),
    ] = None,
    callback: Annotated[
        str | None, typer.Option(metavar="URL", help="URL that is called when a job has ended.")
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", "-H", help="Submit held; `forestay release` releases it.")] = False,
    external_effects: Annotated[
        bool,
        typer.Option(
            "--external-effects",
            help="The command mails, pays or posts: an attempt whose pilot lost its lease is killed, and after a stop a person decides.",
        ),
    ] = False,
    resumable: Annotated[
        bool,
        typer.Option(
            "--resumable",
            help="With external effects that a further attempt does not repeat: it runs again after a stop.",
        ),
    ] = False,
    requires: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help='What the pilot must be: gpu.model == "A100" && os == "el9".'),
    ] = None,
    licence: Annotated[
        list[str] | None, typer.Option(metavar="NAME[=N]", help="Seats of a licence while a job runs (1); repeatable.")
    ] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="A variable with a secret of the site, read where the job runs: file:NAME or vault:PATH#KEY; repeatable.",
        ),
    ] = None,
    secret_file: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SOURCE", help="The same, but the variable has the path of a file with the secret."),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="A file from which the next attempt continues; repeatable."),
    ] = None,
    checkpoint_signal: Annotated[
        CheckpointSignal | None,
        typer.Option(metavar="SIGNAL", help="Sent before the time ends (TERM); or INT, HUP, USR1, USR2."),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(parser=duration_option, metavar="TIME", help="Keep the files also while a job runs, so often."),
    ] = None,
    checkpoint_grace: Annotated[
        int | None,
        typer.Option(parser=duration_option, metavar="TIME", help="Time to write the files after the signal (10s)."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option("--count", "-n", min=1, metavar="N", help="An array of N jobs, with {index} from 0."),
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A value for {name} in the command; repeatable.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Jobs as JSON, or one job per line (.jsonl); - reads lines from stdin."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Idempotency key: repeating a submission with the same key adds nothing."),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until they have ended, and show the output of a single job; exit code 8 if a job failed.",
        ),
    ] = False,
) -> int:
    """Submit jobs. Prints their ids, one per line.

    forestay submit --memory 2G --time 30m -- "$PWD/align" "$PWD/sample.bam"
    """
    specification = _specification(
        command, name,
        resources={"cpus": cpus, "memory": memory, "disk": disk, "gpus": gpus, "wall": wall, "nodes": nodes},
        others={
            "environment": _environment(env or ()),
            "outputs": output or None,
            "container": container,
            "effects": "resumable" if resumable else "external" if external_effects else None,
            "max_attempts": max_attempts,
            "retry_wait": retry_wait,
            "when_exhausted": when_exhausted.value if when_exhausted else None,
            "requires": requires,
            "licences": _seats(licence or ()),
            "secrets": _secrets(secret or (), secret_file or ()),
            "checkpoint": _checkpoint(
                checkpoint,
                signal=checkpoint_signal.value if checkpoint_signal else None,
                every=checkpoint_every,
                grace=checkpoint_grace,
            ),
        },
    )  # fmt: skip
    common = _given(
        team=team, labels=pairs(label or (), "--label") or None, priority=priority, expected_runtime=expected_runtime, not_before=begin,
        callback=callback, hold=hold or None, parameters=pairs(param or (), "--param") or None,
    )  # fmt: skip
    if file is not None:
        if count is not None:
            raise typer.BadParameter("--count and --file exclude each other")
        jobs, specification, total = _from_file(file, specification, common | _given(name=name))
    elif specification is None:
        raise typer.BadParameter("nothing to run: end with -- CMD ARG…, or give --file")
    else:
        total = count or 1
        jobs = (cast("NewJob", common | ({} if count is None else {"index": index})) for index in range(total))
    if wait:
        from forestay.client.executor.running import SUBMISSION, SYNCHRONOUS, labelled

        jobs = (labelled(job, SUBMISSION, SYNCHRONOUS) for job in jobs)
    accepted, used = _send(session, jobs, specification, key, total)
    return _answer(session, accepted, used, wait=wait)


def _seats(texts: Sequence[str]) -> dict[str, int] | None:
    seats: dict[str, int] = {}
    for text in texts:
        name, sign, number = text.partition("=")
        if not name or (sign and not number.isdecimal()):
            raise typer.BadParameter(f"--licence {text}: expected NAME or NAME=N")
        seats[name] = int(number) if sign else 1
    return seats or None


def _secrets(variables: Sequence[str], files: Sequence[str]) -> dict[str, Any] | None:
    secrets: dict[str, Any] = dict(pairs(variables, "--secret"))
    for variable, reference in pairs(files, "--secret-file").items():
        source, _, name = reference.partition(":")
        secrets[variable] = {source: name, "as": "file"}
    return secrets or None


def _checkpoint(files: list[str] | None, **others: object) -> dict[str, Any] | None:
    rest = _given(**others)
    if not files:
        if rest:
            raise typer.BadParameter(f"--checkpoint-{next(iter(rest))} needs --checkpoint GLOB")
        return None
    return {"files": files, **rest}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _environment(texts: Sequence[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            if name not in os.environ:
                raise typer.BadParameter(f"--env {name}: you have no such variable; give a value with {name}=…")
            value = os.environ[name]
        values[name] = value
    return values or None


def _specification(
    command: list[str] | None, name: str | None, *, resources: Mapping[str, object], others: Mapping[str, object]
) -> SpecificationJson | None:
    needs, rest = _given(**resources), _given(**others)
    if not command:
        if needs or rest:
            unwanted = ", ".join("--" + option.replace("_", "-") for option in (*needs, *rest))
            raise typer.BadParameter(
                f"{unwanted} describes a command, but there is none; end with -- CMD ARG…, or put it into the file"
            )
        return None
    whole = {"name": name or os.path.basename(command[0]) or "job", "command": command} | rest
    if needs:
        whole["resources"] = needs
    return cast("SpecificationJson", whole)


def _from_file(
    path: Path, specification: SpecificationJson | None, common: dict[str, Any]
) -> tuple[Iterable[NewJob], SpecificationJson | None, int | None]:
    """The jobs of a file, the specification they share, and their number if known."""
    if str(path) == "-":
        return _lines(sys.stdin, "stdin", specification, common), specification, None
    try:
        if path.suffix == ".json":
            whole = json.loads(path.read_text(encoding="utf-8"))
        else:
            with path.open(encoding="utf-8") as file:
                total = sum(1 for line in file if line.strip())
            return _lines_of(path, specification, common), specification, total
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise typer.BadParameter(
            f"{path}, line {error.lineno}: not JSON ({error.msg}); for one job per line, use a .jsonl file"
        ) from error
    if isinstance(whole, dict) and "specification" in whole:
        if specification is not None:
            raise typer.BadParameter(
                f"{path} has a specification, and a command was given as well; use only one of them"
            )
        specification = whole["specification"]
    jobs = whole.get("jobs") if isinstance(whole, dict) else whole
    if not isinstance(jobs, list) or not jobs:
        raise typer.BadParameter(
            f'{path} contains no jobs; write {{"specification": {{…}}, "jobs": [{{…}}, …]}} or a list of jobs'
        )
    return (
        [_job(job, f"{path}, job {place}", specification, common) for place, job in enumerate(jobs)],
        specification,
        len(jobs),
    )


def _lines_of(path: Path, specification: SpecificationJson | None, common: dict[str, Any]) -> Iterator[NewJob]:
    with path.open(encoding="utf-8") as file:
        yield from _lines(file, str(path), specification, common)


def _lines(
    lines: Iterable[str], source: str, specification: SpecificationJson | None, common: dict[str, Any]
) -> Iterator[NewJob]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            job = json.loads(line)
        except json.JSONDecodeError as error:
            raise typer.BadParameter(f"{source}, line {number}: not JSON ({error.msg})") from error
        yield _job(job, f"{source}, line {number}", specification, common)


def _job(job: object, where: str, specification: SpecificationJson | None, common: dict[str, Any]) -> NewJob:
    if not isinstance(job, dict):
        raise typer.BadParameter(f"{where}: a job is a JSON object")
    if specification is None and "specification" not in job:
        raise typer.BadParameter(f"{where}: no specification; give the command after --, or put it into the file")
    return cast("NewJob", common | job)


def _send(
    session: Session,
    jobs: Iterable[NewJob],
    specification: SpecificationJson | None,
    key: str | None,
    total: int | None,
) -> tuple[list[AcceptedJson], str]:
    from forestay.client import ClientError, submit_many
    from forestay.client.api.calls import new_key

    used = key or new_key()
    accepted: list[AcceptedJson] = []
    bar_wanted = total is None or total > 10_000
    try:
        if not bar_wanted:
            for portion in submit_many(session.client, jobs, specification, key=used):
                accepted += portion
        else:
            with session.out.progress("submitting", total) as step:
                for portion in submit_many(session.client, jobs, specification, key=used):
                    accepted += portion
                    step.to(len(accepted))
    except (ClientError, KeyboardInterrupt, typer.BadParameter) as error:
        if accepted or isinstance(error, KeyboardInterrupt) or getattr(error, "outcome_unknown", False):
            # Otherwise nothing was submitted, and there is nothing to continue.
            _tell_of_rest(session, accepted, used, total)
        raise
    if not accepted:
        raise typer.BadParameter("there are no jobs to submit")
    return accepted, used


def _tell_of_rest(session: Session, accepted: Sequence[AcceptedJson], key: str, total: int | None) -> None:
    """Report what was accepted, and how to continue without submitting it twice."""
    if not session.options.as_json:
        for accepted_json in accepted:
            session.out.data(accepted_json["id"])
    many = f"{len(accepted):,} of {total:,}" if total else f"{len(accepted):,}"
    session.out.say(
        f"{many} jobs were accepted. To continue without submitting any twice, repeat the command with --key {key}"
    )


def _answer(session: Session, accepted: list[AcceptedJson], key: str, *, wait: bool) -> int:
    from forestay.apps.cli.jobs.logs import show_output
    from forestay.apps.cli.jobs.wait import exit_code, wait_for

    if not session.out.as_json:
        for accepted_json in accepted:
            session.out.data(accepted_json["id"])
        sys.stdout.flush()
    again = sum(1 for accepted_json in accepted if not accepted_json["created"])
    if again:
        session.out.say(f"{again:,} of {len(accepted):,} jobs existed already, from an earlier request with this key.")
    session.out.detail(f"key {key}")
    if not wait:
        if session.out.as_json:
            session.out.document({"key": key, "jobs": accepted})
        return ExitCode.OK
    ids = [accepted_json["id"] for accepted_json in accepted]
    waiting = wait_for(session, ids)
    if session.out.as_json:
        session.out.document({"key": key, "jobs": accepted, "ended": [waiting.known[name] for name in ids]})
    elif len(ids) == 1:
        show_output(session, ids[0])
    return exit_code(session, waiting)
