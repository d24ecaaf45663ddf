"""`forestay audit`: who did what to what is not theirs; and whether the log is as it was written.

The log is checked here, on this machine: every hash is computed anew from what the entry says.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

PAGE = 1000


def audit(
    session: Session,
    action: Annotated[
        str | None, typer.Argument(metavar="[show|verify]", help="Show the last entries, or check all of them.")
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="With show: from the entry of this number on.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=PAGE, metavar="N", help="With show: at most so many.")
    ] = 50,
    anchor: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER:HASH", help="With verify: an entry that was noted down earlier must still be there."
        ),
    ] = None,
) -> int:
    """Show the audit log, or verify it. For operators; `verify` says that no entry was changed, taken out or put in. Exit code 1: it was.

    forestay audit verify
    """
    if action in (None, "show"):
        return _show(session, start, limit)
    if action == "verify":
        return _verify(session, anchor)
    raise typer.BadParameter(f"{action!r} is none of show and verify")


def _show(session: Session, start: int | None, limit: int) -> int:
    from forestay.client.api import brake_calls

    told = session.client.send(brake_calls.audit(start=start, limit=limit))
    if session.out.as_json:
        session.out.document(told)
        return ExitCode.OK
    columns = [Column("N", right=True), Column("TIME"), Column("WHO"), Column("WHAT"), Column("ON"), Column("WHY")]
    rows = [
        [str(one["number"]), moment(one["at"]), one["by"], one["what"], one["on"], one["why"] or "-"]
        for one in told["entries"]
    ]
    session.out.table(columns, rows)
    if not rows:
        session.out.say("There are no entries.")
    return ExitCode.OK


def _verify(session: Session, anchor: str | None) -> int:
    from forestay.client.api import brake_calls
    from forestay.formats.rules.audit_json import Checked, check_public

    noted = _anchor(anchor) if anchor else None
    sound = check_public([])
    while True:
        told = session.client.send(brake_calls.audit(start=sound.number + 1, limit=PAGE))
        entries: list[dict[str, Any]] = told["entries"]
        if noted is not None:
            for one in entries:
                if one.get("number") == noted[0] and one.get("hash") != noted[1]:
                    words = f"entry {noted[0]} is not the one that was noted down"
                    return _told(session, Checked(sound.number, sound.hash, noted[0], words))
        sound = check_public(entries, sound.number, sound.hash)
        if sound.broken is not None:
            return _told(session, sound)
        if sound.number >= told["head"]["number"]:
            break
        if not entries:
            missing = sound.number + 1
            return _told(session, sound._replace(broken=missing, words=f"entry {missing} is missing"))
    if noted is not None and sound.number < noted[0]:
        words = f"the log ends with entry {sound.number}; entry {noted[0]} was noted down and is gone"
        return _told(session, sound._replace(broken=sound.number + 1, words=words))
    return _told(session, sound)


def _told(session: Session, found: Any) -> int:
    if session.out.as_json:
        session.out.document({
            "sound": found.broken is None,
            "entries": found.number,
            "hash": found.hash,
            "broken": found.broken,
            "words": found.words,
        })  # fmt: skip
    elif found.broken is None:
        session.out.data(f"{found.number:,} entries, all as they were written. The last: {found.number}:{found.hash}")
    else:
        session.out.data(f"{session.out.paint('BROKEN', 'red')} {found.words}. Sound up to entry {found.number}.")
    return ExitCode.OK if found.broken is None else ExitCode.FAILED


def _anchor(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(":")
    if not number.isdigit() or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise typer.BadParameter("--anchor wants NUMBER:HASH, as `forestay audit verify` prints it")
    return int(number), digest
