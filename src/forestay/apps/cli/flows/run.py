"""`forestay run` and `forestay watch`: start a run, and follow it until it has ended."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.command import seconds
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.flows.check import read_flow, refuse_flow
from forestay.apps.cli.flows.dry_run import show_dry_run
from forestay.apps.cli.flows.run_view import follow
from forestay.apps.cli.ids import short
from forestay.apps.cli.incidents.decided import what_was_decided, who_decided, why_decided
from forestay.apps.cli.jobs.logs import show_output
from forestay.apps.cli.jobs.squeue import cause
from forestay.apps.cli.session import Session
from forestay.apps.cli.text_file import read_text_file

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunDetails

RUN = typer.Argument(metavar="RUN", help="A run's id, or the beginning of it.")
SHOWN = 5
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}|[0-9a-f]{64}")
"""The name of a Python flow, or the version of a stored flow."""
SHORT_VERSION = re.compile(r"(?=.*[0-9])[0-9a-f]{8,63}")
Timeout = Annotated[
    float | None,
    typer.Option(parser=seconds, metavar="TIME", help="Exit with code 7 after this time; the run continues."),
]


def run(
    session: Session,
    flow: Annotated[
        str,
        typer.Argument(
            metavar="FLOW",
            help="A flow file in YAML or JSON, - for stdin; the name of a Python flow on the server; or the version of a stored flow.",
        ),
    ],
    param: Annotated[
        list[str] | None,
        typer.Option("--param", "-p", metavar="NAME=VALUE", help="A parameter; the value is JSON or text. Repeatable."),
    ] = None,
    params: Annotated[
        Path | None, typer.Option("--params", metavar="FILE", help="A file with parameters, YAML or JSON.")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Start the run, print its id, and do not wait.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Idempotency key: repeating a key returns the same run.")
    ] = None,
    timeout: Timeout = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what would run: jobs, resources, missing inputs, reused results."),
    ] = False,
) -> int:
    """Run a flow and follow it. Ctrl-C leaves it running.

    forestay run nightly.yaml --param day=2026-05-01
    """
    given_params = read_params(params, param or [])
    if flow == "-" or Path(flow).is_file():
        read = read_flow(Path(flow))
        if read.flow is None:
            return refuse_flow(session, flow, read)
        if dry_run:
            return show_dry_run(session, session.client.dry_run(text=read.text, params=given_params))
        version = session.client.store_flow(read.text)["version"]
    elif SHORT_VERSION.fullmatch(flow):
        from forestay.client.api.naming import FLOW

        (version,) = session.ids(FLOW, [flow])
    elif NAME.fullmatch(flow):
        version = flow
    else:
        raise typer.BadParameter(f"there is no file {flow}")
    if dry_run:
        return show_dry_run(session, session.client.dry_run(version, params=given_params))
    return start(session, version, given_params, key=key, detach=detach, timeout=timeout)


def start(
    session: Session, version: str, params: dict[str, Any], *, key: str | None, detach: bool, timeout: float | None
) -> int:
    """Start a run and follow it, or only print its id."""
    started = session.client.start_run(version, params, key=key)
    if detach:
        if session.out.as_json:
            session.out.document({"id": started["id"], "created": started["created"], "flow": version})
        else:
            session.out.data(started["id"])
        return ExitCode.OK
    return ended_words(session, follow(session, started["id"], timeout=timeout))


def watch(session: Session, run: Annotated[str, RUN], timeout: Timeout = None) -> int:
    """Follow a run until it has ended. Ctrl-C stops watching, not the run.

    forestay watch 4f1c9d2a
    """
    return ended_words(session, follow(session, session.flow_run(run), timeout=timeout))


def ended_words(session: Session, run: RunDetails) -> int:
    from forestay.client.api.answers import RUN_WELL

    out = session.out
    well = run["state"] in RUN_WELL
    if out.as_json:
        out.document({"run": run})
    else:
        out.data(f"{run['id']} {run['state']}")
        for name, value in run["outputs"].items():
            out.data(neutral.line(f"{name}: {value if isinstance(value, str) else json.dumps(value)}"))
    _tell_retried(session, run["id"], well=well)
    if not well and run["reason"]:
        out.say(neutral.line(f"Why: {run['reason']}"))
    if not well or any(task["bad"] for task in run["tasks"]):
        _tell_failed_jobs(session, run["id"])
    if not well:
        out.say(f"More: forestay runs history {short(run['id'])}")
    return ExitCode.OK if well else ExitCode.JOB_FAILED


def _tell_retried(session: Session, run: str, *, well: bool) -> None:
    """Report failures that were answered without a person, with the rule or policy that answered: otherwise they would go unnoticed."""
    if session.out.quiet or session.out.as_json:
        return
    page = session.client.find_incidents({"run": run, "state": "complete"}, limit=SHOWN)
    for incident in page.incidents:
        decisions = session.client.incident(incident["id"])["decisions"]
        if not decisions:
            continue
        decision, what = decisions[-1], incident["task"] or incident["title"] or short(incident["job"])
        words = f"{'Recovered' if well else 'Retried'}: {what}, cause {incident['cause']}; {what_was_decided(decision)}, by {who_decided(decision['by'])}"
        why = why_decided(decision)
        session.out.say(neutral.line(f"{words}: {why}" if why else words))
    if page.cursor:
        session.out.say(f"There are more: forestay runs history {short(run)}")


def _tell_failed_jobs(session: Session, run: str) -> None:
    job_list = session.client.find_jobs({"run": run, "state": ["failed", "faulted"]}, sort="-changed", limit=SHOWN)
    for job in job_list.jobs:
        why = f": {cause(job['last'])}" if job["last"] else ""
        element = "" if job["index"] is None else f"[{job['index']}]"
        words = f"Job {job['name']}{element} {job['state']}{why}. See: forestay explain {short(job['id'])}"
        session.out.say(neutral.line(words))
        show_output(session, job["id"], indent="  | ")
    if job_list.cursor:
        session.out.say(f"There are more: forestay jobs --run {short(run)}")


def read_params(file: Path | None, pairs: list[str]) -> dict[str, Any]:
    params_file: dict[str, Any] = _params_file(file) if file else {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name:
            raise typer.BadParameter(f"{pair!r}: write NAME=VALUE", param_hint="--param")
        try:
            params_file[name] = json.loads(text)
        except ValueError:
            params_file[name] = text
    return params_file


def _params_file(file: Path) -> dict[str, Any]:
    from forestay.formats.text.yaml_text import read_yaml

    read = read_yaml(read_text_file(file, hint="--params"))
    if read.findings or not isinstance(read.value, dict):
        why = read.findings[0].message if read.findings else "a mapping of names to values is expected"
        raise typer.BadParameter(f"{file}: {why}", param_hint="--params")
    return {str(name): value for name, value in read.value.items()}
