"""`forestay rules replay` and `promote`: what rules would have decided on past incidents, and the promotion of which that is a part."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment, parse_moment
from forestay.apps.cli.columns import Column, table
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

MOST_GROUPS = 20
MOST_WRONG = 10
_CAME = {
    "mended": "ended well by a later try",
    "by-hand": "ended well after a person acted",
    "again": "failed again the same way",
    "otherwise": "failed again in another way",
    "given-up": "not tried again, failed",
    "forced": "counted as done by a person",
    "cancelled": "cancelled",
    "open": "not over yet",
    "unknown": "not known",
}
_WRONG = {
    "stops": "would stop a job that a further try mended",
    "counts": "would count a job as done that only a further try completed",
    "in-vain": "would try again what was tried and failed the same way",
}


def read_record(file: Path) -> dict[str, Any]:
    """One record of a file as JSON or YAML; - is stdin."""
    from forestay.formats.text.yaml_text import MAX_BYTES, read_yaml

    text = sys.stdin.read(MAX_BYTES + 1) if str(file) == "-" else file.read_text(encoding="utf-8")
    found = read_yaml(text)
    if found.findings or not isinstance(found.value, dict):
        why = found.findings[0].message if found.findings else "there is no record in it"
        raise typer.BadParameter(f"{file}: {why}")
    return found.value


def replay_question(
    session: Session,
    since: str | None,
    until: str | None,
    drafts: list[Path],
    *,
    acting: bool,
    version: int | None,
    most: int | None,
) -> dict[str, Any]:
    """What is asked; what was not said is left out."""
    now = datetime.now(UTC)
    asked: dict[str, Any] = {"version": version, "most": most, "acting": acting or None}
    try:
        asked["since"] = parse_moment(since, now) if since is not None else None
        asked["until"] = parse_moment(until, now) if until is not None else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    asked["rules"] = [read_record(file) for file in drafts] or None
    if not session.out.as_json:
        asked["show"] = MOST_WRONG
    return {name: value for name, value in asked.items() if value is not None}


def replay(session: Session, rule_set: str, question: dict[str, Any]) -> int:
    """Show what would have differed. Exit code 1 where a verdict would be wrong or a condition errs."""
    with session.out.progress("incidents") as bar:
        found = session.client.replay_rules(rule_set, question, progress=bar.of)
    if session.out.as_json:
        session.out.document(found)
    else:
        for line in _lines(session, found):
            session.out.data(line)
    return ExitCode.FAILED if found["wrong"] or found["errors"] else ExitCode.OK


def promote(session: Session, rule_set: str, rule: str, *, yes: bool, why: str) -> dict[str, Any]:
    """Replay a rule and let it act. With --yes and a reason also where the replay speaks against it."""
    if yes and not why:
        raise typer.BadParameter("to promote a rule against its replay, say why with --because")
    with session.out.progress("replaying") as bar:
        return session.client.set_rule_state(
            rule_set, rule, "active", confirmed=yes, reason=why if yes else "", progress=bar.of
        )


def propose(session: Session, rule_set: str, question: dict[str, Any]) -> int:
    """Show rules that follow from recorded faults, each with the line that adds it as a shadow."""
    asked: dict[str, Any] = {name: question[name] for name in ("since", "until", "most") if name in question}
    with session.out.progress("incidents") as bar:
        found = session.client.propose_rules(rule_set, asked, progress=bar.of)
    if session.out.as_json:
        session.out.document(found)
        return ExitCode.OK
    for number, one in enumerate(found["proposals"], 1):
        rule, replayed = one["rule"], one["replay"]
        session.out.data(session.out.paint(f"{number}. {neutral.line(' '.join(one['words']))}", "bold"))
        session.out.data(
            f"   Over all incidents it would answer {replayed['incidents']:,}, {replayed['differs']:,} otherwise than then; "
            f"{replayed['wrong']:,} wrong, core-hours saved {replayed['core_hours_saved']:,.1f}, spent {replayed['core_hours_spent']:,.1f}."
        )
        steps = json.dumps(rule["conclusion"]["steps"])
        words = [
            "forestay",
            "rules",
            "add",
            found["rule_set"],
            "--from",
            rule["cornerstone"],
            "--if",
            rule["condition"],
        ]
        session.out.data("   " + neutral.line(shlex.join([*words, "--then", steps, "--because", rule["description"]])))
    if not found["proposals"]:
        session.out.say(
            f"Nothing is proposed: in {found['incidents']:,} incidents nothing helped at least three times that the rules do not say already."
        )
    return ExitCode.OK


def promoted_in_words(summary: dict[str, Any]) -> str:
    """The replay of a promotion in a line."""
    own = summary.get("rule", {})
    which = "every recorded incident" if summary.get("all", True) else "the newest incidents"
    return (
        f"replayed over {which} ({summary['incidents']:,}): it would have answered {own.get('answered', 0):,}, "
        f"{own.get('differs', 0):,} otherwise than then; {own.get('wrong', 0):,} wrong, {own.get('errors', 0):,} errors"
    )


def _lines(session: Session, found: dict[str, Any]) -> list[str]:
    paint = session.out.paint
    which = "" if found["all"] else ", the newest only"
    span = f" from {moment(found['first'])} to {moment(found['last'])}" if found["incidents"] else ""
    lines = [
        paint(
            f"{found['rule_set']}, version {found['version']}: {found['incidents']:,} incidents{span}{which}", "bold"
        ),
        f"same answer {found['same']:,}, another {found['differs']:,}; by a rule {found['by_rule']:,}, by the house the rest",
        f"core-hours saved {found['core_hours_saved']:,.1f}, spent {found['core_hours_spent']:,.1f}",
        f"at most {found['peak_hour']:,} acts of rules in an hour; the limit would have put off {found['put_off']:,}",
    ]
    if found["errors"]:
        lines.append(paint(f"errors {found['errors']:,}: a condition erred, and nothing would act", "red"))
        lines += [
            neutral.line(f"  {one['rule']} on {one['incident']}: {one['message']}") for one in found["messages"][:5]
        ]
    if found["wrong"]:
        lines.append(paint(f"wrong verdicts {found['wrong']:,}", "red"))
        lines += [f"  {many:,} {_WRONG.get(kind, kind)}" for kind, many in found["wrong_by"].items()]
        lines += [
            neutral.line(
                f"  {one['incident']}  {one['cause']}  then {one['then']['way']}, now {one['now']['way']} by {one['now']['by']}"
            )
            for one in found["examples"]
            if one["wrong"]
        ]
    elif found["by_rule"]:
        lines.append(paint("no wrong verdicts", "green"))
    if found["groups"]:
        columns = [
            Column("BY", widest=40), Column("CAUSE"), Column("THEN"), Column("NOW"), Column("INCIDENTS", right=True),
            Column("WRONG", right=True), Column("WHAT CAME OF THEM", widest=60),
        ]  # fmt: skip
        rows = [
            [
                one["by"],
                one["cause"],
                one["then"],
                one["now"],
                f"{one['count']:,}",
                f"{one['wrong']:,}",
                _came(one["came"]),
            ]
            for one in found["groups"][:MOST_GROUPS]
        ]
        lines += ["", *table(columns, rows, paint=paint)]
        left = len(found["groups"]) - MOST_GROUPS
        if left > 0 or found["more_groups"]:
            lines.append(f"and {max(0, left):,} more groups; --json has them")
    return lines


def _came(came: dict[str, int]) -> str:
    return ", ".join(f"{many:,} {_CAME.get(kind, kind)}" for kind, many in came.items())
