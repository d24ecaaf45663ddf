"""`forestay logs`: the output of a job."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli import session as session_of_verbs
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.jobs.describe import JOB
from forestay.apps.cli.jobs.wait import wait_for
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job

LAST_LINES = 20


def logs(
    session: Session,
    job: Annotated[str, JOB],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the output until the job ends.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of this attempt (the newest).")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=0, metavar="N", help="Only the last N lines.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print escape sequences unchanged, on a terminal too.")] = False,
) -> int | None:
    """Show the output of a job. On a terminal, escape sequences are removed.

    forestay logs -f 4f1c9d2a
    """
    name = session.job(job)
    if follow:
        _follow(session, name, attempt, raw=raw)
        return None
    from forestay.client import NotFoundError

    try:
        text = session.client.log(name, attempt=attempt)
    except NotFoundError as error:
        found_job = session.client.job(name)  # the job itself may be missing
        session.report(error)
        if found_job["claim"]:
            session.out.say(f"It is running now: forestay logs -f {name}")
        return ExitCode.NOT_FOUND
    if tail is not None:
        text = "".join(text.splitlines(keepends=True)[-tail:]) if tail else ""
    if session.out.as_json:
        session.out.document({"job": name, "attempt": attempt, "log": text})
    else:
        _write(session, text, raw=raw)
    return None


def show_output(session: Session, job: str, *, indent: str = "") -> None:
    """Show the last lines of a job's output, in addition to the requested data."""
    from forestay.client import NotFoundError

    if session.out.quiet:
        return
    try:
        lines = session.client.log(job).splitlines()
    except NotFoundError:
        return
    for line in lines[-LAST_LINES:]:
        session.out.say(neutral.line(f"{indent}{line}"))


def _follow(session: Session, name: str, attempt: int | None, *, raw: bool) -> None:
    """Follow to the end of the attempt. A broken stream is opened again, and output that was shown is skipped."""
    from forestay.client import Unavailable
    from forestay.client.api import calls

    job = session.client.job(name)
    if job["claim"] is None and job["state"] == "available" and attempt is None:
        session.out.say("It has not started yet; waiting for it.")
        job = _started(session, name)
    claim, shown = job["claim"], 0
    while True:
        place = 0
        try:
            with session.client.stream(calls.follow_log(name, attempt=attempt), silence=SILENCE) as stream:
                for event in stream:
                    if event.name == "end":
                        return
                    if event.name == "log":
                        piece = _text(event.data).encode("utf-8", "replace")
                        new = piece[max(0, shown - place) :].decode("utf-8", "replace")
                        place += len(piece)
                        if place > shown:
                            shown = place
                            _piece(session, name, new, raw=raw)
        except Unavailable as error:
            session.out.detail(str(error))
        if claim is None or session.client.job(name)["claim"] != claim:
            session.out.say(f"The stream broke, and the attempt has ended since. The whole log: forestay logs {name}")
            return
        time.sleep(session_of_verbs.REOPEN_AFTER)


def _started(session: Session, name: str) -> Job:
    """Wait for the next attempt of a job that waits now."""
    attempts = session.client.job(name)["attempt"]
    waiting = wait_for(session, [name], states=frozenset({"running"}), attempts=attempts)
    return waiting.known[name]


def _piece(session: Session, name: str, text: str, *, raw: bool) -> None:
    if session.out.as_json:
        session.out.event({"job": name, "text": text})
    else:
        _write(session, text, raw=raw)


SILENCE = 35.0
"""Seconds; a server sends a sign of life in the stream every ten."""


def _text(data: str) -> str:
    try:
        value = json.loads(data)
    except json.JSONDecodeError:
        return data
    return str(value.get("text", "")) if isinstance(value, dict) else data


def _write(session: Session, text: str, *, raw: bool) -> None:
    session.out.raw(text if raw or not session.out.to_terminal else neutral.lines(text))
