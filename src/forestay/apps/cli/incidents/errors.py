"""`forestay inbox show` and related commands: one error, which is all failures of one fingerprint, and its triage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.command import seconds
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

Error = Annotated[
    str, typer.Argument(metavar="ERROR", help="A fingerprint, or the id of an incident or job that failed with it.")
]
Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]
SHOWN = 5
"""Values of each tag."""
_FINGERPRINT = re.compile(r"[0-9]+-[0-9a-f]+")
_BARS = "▁▂▃▄▅▆▇█"
_TAGS = {"host": "Hosts", "site": "Sites", "owner": "Owners", "flow": "Flows", "exit_code": "Exit codes"}
_IN_COMMON = {
    "host": "on host {}", "site": "on site {}", "owner": "of {}", "flow": "of flow {}", "exit_code": "with exit code {}",
}  # fmt: skip


def show(session: Session, error: Error) -> int:
    """Show one error: since when, how often, where and whose. Also what its failures have in common.

    forestay inbox show 1-0a1b2c3d4e5f
    """
    from forestay.client.api import incident_calls

    answer = session.client.send(incident_calls.error(fingerprint_of(session, error)))
    if session.out.as_json:
        session.out.document(answer)
        return ExitCode.OK
    for line in _told(session, answer):
        session.out.data(line)
    session.out.say(
        f"See why: forestay explain {short(answer['newest'])}. List them: forestay inbox --each --fingerprint {answer['fingerprint']}"
    )
    return ExitCode.OK


def acknowledge(session: Session, error: Error, reason: Reason = "") -> int:
    """Say that an error has been seen.

    forestay inbox acknowledge 1-0a1b2c3d4e5f
    """
    return _say(session, error, "acknowledge", reason)


def assign(
    session: Session,
    error: Error,
    who: Annotated[str, typer.Argument(metavar="NAME", help="Who takes it; nobody: nobody has it any more.")],
    reason: Reason = "",
) -> int:
    """Say who takes care of an error.

    forestay inbox assign 1-0a1b2c3d4e5f olga
    """
    return _say(session, error, "assign", reason, assignee="" if who == "nobody" else who)


def snooze(
    session: Session,
    error: Error,
    time: Annotated[float, typer.Argument(parser=seconds, metavar="TIME", help="For how long: 4h, 2d.")],
    reason: Reason = "",
) -> int:
    """Leave an error out of the inbox for some time. Its jobs stay as they are.

    forestay inbox snooze 1-0a1b2c3d4e5f 2d --reason "the disk is ordered"
    """
    return _say(session, error, "snooze", reason, length=max(1, round(time)))


def resolve(session: Session, error: Error, reason: Reason = "") -> int:
    """Say that an error is fixed. If it happens again, it is shown as regressed.

    forestay inbox resolve 1-0a1b2c3d4e5f --reason "release 4.2"
    """
    return _say(session, error, "resolve", reason)


def reopen(session: Session, error: Error, reason: Reason = "") -> int:
    """Undo acknowledge, snooze or resolve.

    forestay inbox reopen 1-0a1b2c3d4e5f
    """
    return _say(session, error, "reopen", reason)


def _say(session: Session, error: str, act: str, reason: str, *, assignee: str = "", length: int = 0) -> int:
    from forestay.client.api import incident_calls

    name = fingerprint_of(session, error)
    answer = session.client.send(incident_calls.triage(name, act, assignee=assignee, seconds=length, reason=reason))
    if session.out.as_json:
        session.out.document(answer)
    else:
        session.out.data(f"{name}: {_stands(session, answer)}")
    return ExitCode.OK


def fingerprint_of(session: Session, error: str) -> str:
    if _FINGERPRINT.fullmatch(error):
        return error
    fingerprint: str = session.client.incident(session.incident(error))["fingerprint"]
    if not fingerprint:
        raise typer.BadParameter("it was recorded before errors had fingerprints")
    return fingerprint


def _stands(session: Session, error: dict[str, Any]) -> str:
    """Its state and its assignee, in words."""
    words = error["state"]
    if error["until"]:
        words += f" until {session.when(error['until'])}"
    words += f", assigned to {error['assignee']}" if error["assignee"] else ", assigned to nobody"
    return neutral.line(words)


def _told(session: Session, error: dict[str, Any]) -> Iterator[str]:
    paint = session.out.paint
    yield paint(neutral.line(error["title"]), "bold")
    where = [error["cause"], *([f"task {error['task']}"] if error["task"] else []), _stands(session, error)]
    yield neutral.line(" · ".join(where))
    if error["why"]:
        yield neutral.line(f"{error['by']}: {error['why']}")
    # Servers of earlier releases count what was answered, and all of it.
    recovered = "recovered" if error.get("recovered_whole", True) else "or more recovered"
    ended = [
        f"{error[name]:,} {words}"
        for name, words in (("waiting", "waiting"), ("recovered", recovered), ("given_up", "given up"))
        if error[name]
    ]
    many = f"{error['count']:,} failure{'' if error['count'] == 1 else 's'}"
    yield f"{many} since {session.when(error['first_seen'])}, the last {session.when(error['last_seen'])}: {', '.join(ended) or 'none open'}"
    if error["retry_record"]:
        yield neutral.line(f"{'Retries':<13}  {error['retry_record']['words']}")
    if sum(error["hours"]):
        yield f"Last 24 hours  {_chart(error['hours'])}  {sum(error['hours']):,}"
    for common in error["common"]:
        words = _IN_COMMON[common["tag"]].format(common["value"])
        share = "All" if common["share"] == 1 else f"{common['share']:.0%}"
        yield neutral.line(
            f"{share} of the last seven days {words}; {common['share_of_others']:.0%} of the other failures"
        )
    for tag, head in _TAGS.items():
        counts = error["tags"].get(tag, {})
        if counts:
            shown = ", ".join(f"{value} {many:,}" for value, many in list(counts.items())[:SHOWN])
            more = f", and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
            yield neutral.line(f"{head:<13}  {shown}{more}")
    for sample in error["samples"][:1]:
        yield from _log(session, sample)


def _log(session: Session, sample: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield neutral.line(
        f"The end of the log of {short(sample['job'] or sample['incident'])}, {session.when(sample['at'])}:"
    )
    for line in sample["log"][-8:]:
        mark = ">" if line in sample["deciding"] else " "
        yield neutral.line(f"{mark} {line}")


def _chart(hours: list[int]) -> str:
    most = max(hours)
    return "".join(_BARS[round(many / most * (len(_BARS) - 1))] if many else " " for many in hours)
