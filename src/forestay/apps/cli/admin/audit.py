"""`forestay audit`: who did what, and whether the log is unchanged.

The log is verified on this machine: every hash is computed again from the content of the entry.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

PAGE = 1000


@lists
def list_entries(
    session: Session,
    start: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="Start with the entry of this number.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=PAGE, metavar="N", help="At most this many.")] = 50,
) -> int:
    """Show the last entries of the audit log (operators).

    forestay audit list --limit 10
    """
    from forestay.client.api import safeguard_calls

    reply = session.client.send(safeguard_calls.audit(start=start, limit=limit))
    if session.out.as_json:
        session.out.document(reply)
        return ExitCode.OK
    columns = [
        Column("N", right=True), Column("TIME"), Column("WHO", flexible=True), Column("ACTION"), Column("ON", flexible=True), Column("WHY", flexible=True),
    ]  # fmt: skip
    session.print_list(
        "entries", reply["entries"], columns, key=lambda entry: str(entry["number"]),
        row=lambda entry: [
            str(entry["number"]), session.when(entry["at"]), entry["by"], entry["what"], entry["on"], entry["why"] or "-",
        ],
        empty="There are no entries.",
    )  # fmt: skip
    return ExitCode.OK


def verify(
    session: Session,
    anchor: Annotated[
        str | None,
        typer.Option(metavar="NUMBER:HASH", help="An entry that was noted earlier and must still be there."),
    ] = None,
) -> int:
    """Verify that the audit log is unchanged (operators). Exit code 1 if an entry was changed, removed or inserted.

    Entries that the retention removed from the beginning (`FORESTAY_KEEP_AUDIT_DAYS`) are named by a later entry, and are reported.

    forestay audit verify
    """
    from forestay.client.api import safeguard_calls
    from forestay.formats.rules.audit_json import ChainCheck, CheckedChain

    noted = _anchor(anchor) if anchor else None
    check = ChainCheck()
    while True:
        reply = session.client.send(safeguard_calls.audit(start=check.sound.number + 1, limit=PAGE))
        entries: list[dict[str, Any]] = reply["entries"]
        if noted is not None:
            for entry in entries:
                if entry.get("number") == noted[0] and entry.get("hash") != noted[1]:
                    words = f"entry {noted[0]} is not the one that was noted"
                    return _told(session, CheckedChain(check.sound.number, check.sound.hash, noted[0], words))
        if not check.take(entries):
            return _told(session, check.sound)
        if check.sound.number >= reply["head"]["number"]:
            break
        if not entries:
            missing = check.sound.number + 1
            return _told(session, check.sound._replace(broken=missing, words=f"entry {missing} is missing"))
    sound = check.finish()
    if noted is not None and sound.broken is None and sound.number < noted[0]:
        words = f"the log ends with entry {sound.number}; entry {noted[0]} was noted and is gone"
        return _told(session, sound._replace(broken=sound.number + 1, words=words))
    if noted is not None and sound.broken is None and noted[0] <= sound.removed:
        session.out.say(f"Entry {noted[0]} was removed by the retention; note a later one.")
    return _told(session, sound)


def _told(session: Session, reply: Any) -> int:
    if session.out.as_json:
        session.out.document({
            "sound": reply.broken is None,
            "entries": reply.number,
            "hash": reply.hash,
            "broken": reply.broken,
            "words": reply.words,
            "removed": reply.removed,
        })  # fmt: skip
    elif reply.broken is None:
        removed = f" (1 to {reply.removed:,} removed by the retention)" if reply.removed else ""
        session.out.data(f"{reply.number:,} entries{removed}, all unchanged. The last: {reply.number}:{reply.hash}")
    else:
        session.out.data(f"{session.out.paint('BROKEN', 'red')} {reply.words}. Unchanged up to entry {reply.number}.")
    return ExitCode.OK if reply.broken is None else ExitCode.FAILED


def _anchor(text: str) -> tuple[int, str]:
    number, _, digest = text.partition(":")
    if not number.isdigit() or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise typer.BadParameter("--anchor: write NUMBER:HASH, as `forestay audit verify` prints it")
    return int(number), digest
