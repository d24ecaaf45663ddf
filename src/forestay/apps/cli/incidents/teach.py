"""`forestay inbox teach` and related commands: the cause of an error, what was taught at this site, and its results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.incidents.errors import Error, Reason, fingerprint_of
from forestay.apps.cli.session import Session

Cause = Annotated[
    str, typer.Option("--cause", metavar="CAUSE", help="What it is: node, network, memory, data-missing …")
]
Retry = Annotated[
    str | None,
    typer.Option(
        "--retry", metavar="HOW", help="What another try needs: same, changed, elsewhere or no. Default: by the cause."
    ),
]
SHOWN = 5


def teach(
    session: Session,
    error: Error,
    cause: Cause,
    retry: Retry = None,
    pattern: Annotated[
        str,
        typer.Option(
            "--pattern", metavar="REGEX", help="What a line of each of them matches (RE2). Default: what they share."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the pattern and what it would match.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Teach it although it changes the cause of other errors.")
    ] = False,
    reason: Reason = "",
) -> int:
    """Teach this site which cause an error has. Failures that wait are judged again.

    forestay inbox teach 1-0a1b2c3d4e5f --cause node --retry elsewhere --dry-run
    """
    from forestay.client.api import incident_calls

    name = fingerprint_of(session, error)
    call = incident_calls.teach(
        name, cause, retry=retry, pattern=pattern, dry_run=dry_run, anyway=anyway, reason=reason
    )
    answer = session.client.send(call)
    refused = bool(answer["problems"]) or (not anyway and bool(answer["wrong"] or answer["examples"]))
    if session.out.as_json:
        session.out.document(answer)
    else:
        for line in _told(answer, refused=refused):
            session.out.data(neutral.line(line))
        if refused and not answer["problems"]:
            session.out.say("Narrow it with --pattern, or teach it with --anyway.")
        elif dry_run and not refused:
            session.out.say("Nothing was written; to teach it, leave out --dry-run.")
    return ExitCode.FAILED if refused else ExitCode.OK


def correct(
    session: Session,
    incident: Annotated[str, typer.Argument(metavar="INCIDENT", help="The incident's id, or the beginning of it.")],
    cause: Cause,
    retry: Retry = None,
    reason: Reason = "",
) -> int:
    """Give one failure that waits another cause. Taught patterns are tested by it.

    forestay inbox correct 3f9a1c7e --cause disk
    """
    from forestay.client.api import incident_calls

    name = session.incident(incident)
    answer = session.client.send(incident_calls.correct_cause(name, cause, retry=retry, reason=reason))
    if session.out.as_json:
        session.out.document(answer)
    else:
        session.out.data(neutral.line(f"{name}: {answer['cause']}, {answer['state']}. {answer['note']}"))
    return ExitCode.OK


@lists
def taught(session: Session) -> int:
    """List what was taught at this site, with its score.

    forestay inbox taught
    """
    from forestay.client.api import incident_calls

    answer = session.client.send(incident_calls.taught())
    columns = [
        Column("PATTERN", flexible=True), Column("CAUSE"), Column("RETRY"), Column("SEEN", right=True), Column("HELPED", right=True), Column("BY"), Column("NAME"),
        Column("ERROR", flexible=True, wide=True), Column("WHY", flexible=True, wide=True),
    ]  # fmt: skip
    session.print_list(
        "patterns", answer["patterns"], columns, key=lambda pattern: str(pattern["name"]),
        row=lambda pattern: [
            pattern["pattern"], pattern["cause"], pattern["retry"], f"{pattern['record']['seen']:,}", _helped(pattern), pattern["by"], pattern["name"],
            pattern["title"], pattern["why"],
        ],
        empty="Nothing was taught at this site.",
    )  # fmt: skip
    if any(pattern["loses"] for pattern in answer["patterns"]):
        session.out.say("! Another try mostly did not help. To remove a pattern: forestay inbox forget NAME")
    return ExitCode.OK


def forget(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The taught pattern: taught-1-0a1b2c3d4e5f.")],
) -> int:
    """Remove a taught pattern. What it has named keeps its cause.

    forestay inbox forget taught-1-0a1b2c3d4e5f
    """
    from forestay.client.api import incident_calls

    answer = session.client.send(incident_calls.forget(name))
    if session.out.as_json:
        session.out.document(answer)
    else:
        session.out.data(f"{neutral.line(name)}: removed")
    return ExitCode.OK


def _helped(pattern: dict[str, Any]) -> str:
    record = pattern["record"]
    if not record["retried"]:
        return "-"
    return f"{record['helped']:,}/{record['retried']:,}{' !' if pattern['loses'] else ''}"


def _told(answer: dict[str, Any], *, refused: bool) -> Iterator[str]:
    pattern = answer["pattern"]
    if pattern is not None:
        state = "written" if answer["written"] else "not written" if refused else "draft"
        yield f"{pattern['name']} ({state}): {pattern['cause']}, retry {pattern['retry']}"
        yield f"  {pattern['pattern']}"
        yield from (f"  matches: {example}" for example in pattern["examples"][:1])
    yield from (f"It cannot be taught: {problem}." for problem in answer["problems"])
    if pattern is None or answer["problems"]:
        return
    newest = "" if answer["whole"] else "newest "
    yield f"Tried on {answer['members']:,} failures of this error, and on {answer['errors']:,} errors ({newest}{answer['failures']:,} failures)."
    yield from _errors("It also names", answer["unknown"])
    yield from _errors("It would change", answer["wrong"])
    if answer["examples"]:
        yield f"It would change the cause of examples of {', '.join(answer['examples'][:SHOWN])}."
    if answer["replaces"]:
        yield f"It replaces {', '.join(answer['replaces'])}."
    if answer["written"]:
        rest = "" if answer["judged_whole"] else "; a reconciler goes on with the rest"
        yield f"Judged again: {answer['judged']:,} that waited{rest}."
        if answer["now"]:
            yield f"The error is {answer['now']} from now on."


def _errors(head: str, errors: list[dict[str, Any]]) -> Iterator[str]:
    for error in errors[:SHOWN]:
        yield f"{head}: {error['title']} ({error['cause']}, {error['failures']:,} failures, {error['fingerprint']})"
    if len(errors) > SHOWN:
        yield f"{head}: and {len(errors) - SHOWN} more"
