"""`forestay safeguards`: what limits rules, and the emergency stop."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

_ID = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
"""Rules are shown by the first characters of their id, as elsewhere."""
_METERS = {
    "global": "all actions",
    "owner": "actions, owner",
    "site": "actions, site",
    "rule": "actions, rule",
    "tenant-hours": "core-hours",
    "owner-hours": "core-hours, owner",
}


Reason = Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")]
Everywhere = Annotated[bool, typer.Option("--everywhere", help="In all tenants (administrators).")]
GROUP = typer.Argument(metavar="GROUP", help="The group of a storm, as `forestay safeguards` shows it.")
Rule = Annotated[
    str,
    typer.Option(
        "--rule", metavar="RULE", help="The rule's id, or the beginning of it; without it the default retry policy."
    ),
]
TriedError = Annotated[
    str,
    typer.Option(
        "--error", metavar="FINGERPRINT", help="Only the failures of this error; without it those of each error."
    ),
]


def show(session: Session) -> int:
    """Show emergency stops, storms and rate limits.

    forestay safeguards show
    """
    from forestay.client.api import safeguard_calls

    return _show(session, session.client.send(safeguard_calls.safeguards()))


def stop(session: Session, reason: Reason, everywhere: Everywhere = False) -> int:
    """Stop all actions of rules. Running jobs continue; failures wait, and none is lost.

    forestay safeguards stop --reason "the file system is being moved"
    """
    from forestay.client.api import safeguard_calls

    return _switched(session, session.client.send(safeguard_calls.stop_acts(reason=reason, everywhere=everywhere)))


def resume(session: Session, reason: Reason, everywhere: Everywhere = False) -> int:
    """Let rules act again after a stop.

    forestay safeguards resume --reason "the file system is back"
    """
    from forestay.client.api import safeguard_calls

    return _switched(session, session.client.send(safeguard_calls.let_acts_go_on(reason=reason, everywhere=everywhere)))


def try_again(
    session: Session, group: Annotated[str, GROUP], reason: Reason, rule: Rule = "", error: TriedError = ""
) -> int:
    """Try a rule again on the first failures of a held group (canary).

    forestay safeguards try cause:node@1 --reason "the node is back"
    """
    return _decide(session, group, rule, error, "try", reason)


def allow(
    session: Session, group: Annotated[str, GROUP], reason: Reason, rule: Rule = "", error: TriedError = ""
) -> int:
    """Let a rule act on all failures of a held group.

    forestay safeguards allow cause:node@1 --reason "checked by hand"
    """
    return _decide(session, group, rule, error, "all", reason)


def _decide(session: Session, group: str, rule: str, error: str, action: str, reason: str) -> int:
    from forestay.client.api import safeguard_calls
    from forestay.client.api.naming import only

    known = {
        other_group["id"]: other_group for other_group in session.client.send(safeguard_calls.safeguards())["groups"]
    }
    group = only(group, {name for name in known if name.startswith(group)}, "group")
    if rule:
        tried = {entry["rule"] for entry in known[group]["tried"]}
        rule = only(rule, {name for name in tried if name == rule or _ids(name, rule)}, "rule")
    reply = session.client.send(
        safeguard_calls.decide_group(group, rule, action, reason=reason, fingerprint=error or None)
    )
    if session.out.as_json:
        session.out.document(reply)
    else:
        session.out.data(f"{neutral.line(reply['id'])} {_tried(reply)}")
    return ExitCode.OK


def _ids(rule: str, beginning: str) -> bool:
    """Whether a rule's id, after the name of its set, has this prefix."""
    return re.split(r"[/#]", rule)[-1].startswith(beginning)


def _switched(session: Session, reply: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(reply)
    else:
        _stops(session, reply["stops"])
    return ExitCode.OK


def _stops(session: Session, stops: list[dict[str, Any]]) -> None:
    if not stops:
        session.out.data("Rules may act.")
    for stop in stops:
        where = "everywhere" if stop["everywhere"] else "here"
        who = f"by {stop['by']} at {moment(stop['at'])}: {stop['why'] or 'no reason was given'}"
        session.out.data(f"{session.out.paint('Stopped', 'red')} {where} {neutral.line(who)}")


def _show(session: Session, reply: dict[str, Any]) -> int:
    if session.out.as_json:
        session.out.document(reply)
        return ExitCode.OK
    _stops(session, reply["stops"])
    if reply["groups"]:
        session.out.data()
        columns = [Column("GROUP"), Column("FAILURES", right=True), Column("SINCE"), Column("TRIED", flexible=True)]
        rows = [
            [group["id"], f"{group['failures']:,}", session.when(group["opened"]), _tried(group)]
            for group in reply["groups"]
        ]
        session.out.table(columns, rows)
    if reply["limits"]:
        session.out.data()
        columns = [
            Column("LIMIT"),
            Column("OF", flexible=True),
            Column("ALLOWED", right=True),
            Column("FREE", right=True),
            Column("IN"),
        ]
        session.out.table(columns, [_limit(limit) for limit in reply["limits"]])
    return ExitCode.OK


def _tried(group: dict[str, Any]) -> str:
    words = {"trying": "being tried", "all": "acts on all", "held": "failed, needs attention"}
    tries: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in group["tried"]:
        tries.setdefault((entry["rule"], entry["state"]), []).append(entry)
    lines = [
        f"{rule or 'default retry policy'}{_on(entries)}: {words[state]}"
        f" ({sum(entry['well'] for entry in entries)} well, {sum(entry['bad'] for entry in entries)} bad)"
        for (rule, state), entries in tries.items()
    ]
    return "; ".join(lines) or "nothing yet"


def _on(entries: list[dict[str, Any]]) -> str:
    """The error that a rule is tried on, or of how many."""
    return f" on {len(entries)} errors" if len(entries) > 1 else f" on {entries[0]['fingerprint']}".removesuffix(" on ")


def _limit(limit: dict[str, Any]) -> list[str]:
    unit = 3600 if limit["meter"].endswith("hours") else 1
    span = "24 h" if limit["seconds"] == 86_400 else f"{limit['seconds'] // 60} min"
    return [
        _METERS.get(limit["meter"], limit["meter"]), _ID.sub(r"\1", limit["key"]) or "-", f"{limit['allowed'] // unit:,}", f"{limit['free'] // unit:,}", span,
    ]  # fmt: skip
