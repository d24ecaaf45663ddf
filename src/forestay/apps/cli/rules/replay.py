"""`forestay rules replay` and `propose`: what rules would have decided on past incidents, and rules that follow from them."""

from __future__ import annotations

import json
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import moment, parse_moment
from forestay.apps.cli.columns import Column, table
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.session import Session

DEFAULT_SET = "domain/site"
MOST_GROUPS = 20
MOST_WRONG = 10
MOST_FIELDS = 6
_CAME = {
    "recovered": "succeeded at a later attempt",
    "by-hand": "succeeded after a person acted",
    "again": "failed again the same way",
    "otherwise": "failed again in another way",
    "given-up": "failed, not retried",
    "forced": "forced complete by a person",
    "cancelled": "cancelled",
    "open": "not ended yet",
    "unknown": "not known",
}
_WRONG = {
    "stops": "would stop a job that succeeded at a further attempt",
    "counts": "would complete a job that only a further attempt completed",
    "in-vain": "would retry what was retried and failed the same way",
}


def set_named(name: str) -> str:
    """The name of a rule set, checked."""
    if "/" not in name:
        raise typer.BadParameter(f"{name!r} is not a rule set; write {DEFAULT_SET}, flow/NAME or pack/NAME")
    return name


def read_record(file: Path) -> dict[str, Any]:
    """One record of a file as JSON or YAML; - is stdin."""
    from forestay.formats.text.yaml_text import MAX_BYTES, read_yaml

    text = sys.stdin.read(MAX_BYTES + 1) if str(file) == "-" else file.read_text(encoding="utf-8")
    document = read_yaml(text)
    if document.findings or not isinstance(document.value, dict):
        why = document.findings[0].message if document.findings else "it contains no record"
        raise typer.BadParameter(f"{file}: {why}")
    return document.value


Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only incidents since then, such as 30d.")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only incidents before then.")]
Most = Annotated[int | None, typer.Option("--most", metavar="N", help="Only the newest so many incidents.")]
RuleSet = Annotated[str, typer.Option("--set", metavar="SET", help="The rule set, such as flow/NAME or pack/NAME.")]


def _span(since: str | None, until: str | None, most: int | None) -> dict[str, Any]:
    now = datetime.now(UTC)
    asked: dict[str, Any] = {"most": most}
    try:
        asked["since"] = parse_moment(since, now) if since is not None else None
        asked["until"] = parse_moment(until, now) if until is not None else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    return {name: value for name, value in asked.items() if value is not None}


def replay(
    session: Session,
    rule_set: RuleSet = DEFAULT_SET,
    since: Since = None,
    until: Until = None,
    drafts: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="FILE", help="Also this rule, as for `add`, as if it acted; repeatable."),
    ] = None,
    acting: Annotated[
        bool, typer.Option("--acting", help="Only rules that act; without it shadow rules count as if promoted.")
    ] = False,
    version: Annotated[int | None, typer.Option("--version", metavar="N", help="This version of the set.")] = None,
    most: Most = None,
) -> int:
    """Show what rules would have decided on past incidents. Exit code 1 if a decision would be wrong or a condition fails.

    forestay rules replay --since 14d
    """
    question = _span(since, until, most)
    fields = {
        "version": version,
        "acting": acting or None,
        "rules": [read_record(file) for file in drafts or []] or None,
    }
    question |= {name: value for name, value in fields.items() if value is not None}
    if not session.out.as_json:
        question["show"] = MOST_WRONG
    with session.out.progress("incidents") as bar:
        rules = session.client.replay_rules(set_named(rule_set), question, progress=bar.of)
    if session.out.as_json:
        session.out.document(rules)
    else:
        for line in _lines(session, rules):
            session.out.folded(line, 2)
    return ExitCode.FAILED if rules["wrong"] or rules["errors"] else ExitCode.OK


def propose(
    session: Session, rule_set: RuleSet = DEFAULT_SET, since: Since = None, until: Until = None, most: Most = None
) -> int:
    """Propose rules from recorded failures. Each comes with the command that adds it.

    forestay rules propose --since 30d
    """
    with session.out.progress("incidents") as bar:
        rules = session.client.propose_rules(set_named(rule_set), _span(since, until, most), progress=bar.of)
    if session.out.as_json:
        session.out.document(rules)
        return ExitCode.OK
    for number, proposal in enumerate(rules["proposals"], 1):
        rule, replayed = proposal["rule"], proposal["replay"]
        words = f"{number}. {neutral.line(' '.join(proposal['words']))} ({proposal['id']})"
        session.out.folded(session.out.paint(words, "bold"), 3)
        session.out.folded(
            f"   Over all incidents it would answer {replayed['incidents']:,}, {replayed['differs']:,} with a changed result; "
            f"{replayed['wrong']:,} wrong, core-hours saved {replayed['core_hours_saved']:,.1f}, spent {replayed['core_hours_spent']:,.1f}.",
            3,
        )
        steps = json.dumps(rule["conclusion"]["steps"])
        command = ["forestay", "rules", "add", "--set", rules["rule_set"], "--from", rule["reference_incident"], "--if", rule["condition"]]  # fmt: skip
        session.out.data(
            "   " + neutral.line(shlex.join([*command, "--then", steps, "--because", rule["description"]]))
        )
    if not rules["proposals"]:
        session.out.say(
            f"No proposals: in {rules['incidents']:,} incidents, nothing helped at least three times that the rules do not do already."
        )
    else:
        session.out.say("Each is added as a shadow. To see one no more: forestay rules dismiss ID")
    return ExitCode.OK


def dismiss(
    session: Session,
    proposal: Annotated[str, typer.Argument(metavar="PROPOSAL", help="Its id, as `rules propose` shows it.")],
    rule_set: RuleSet = DEFAULT_SET,
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why; recorded in the audit log.")] = "",
) -> int:
    """Do not propose this rule any more.

    forestay rules dismiss 0a1b2c3d4e5f
    """
    from forestay.client.api import rule_calls

    session.client.send(rule_calls.dismiss_proposal(set_named(rule_set), proposal, reason=reason))
    session.out.say(f"{neutral.line(proposal)} will not be proposed any more.")
    return ExitCode.OK


def promoted_in_words(summary: dict[str, Any]) -> str:
    """The replay of a promotion in a line."""
    own = summary.get("rule", {})
    which = "every recorded incident" if summary.get("all", True) else "the newest incidents"
    return (
        f"Replayed over {which} ({summary['incidents']:,}): it would have answered {own.get('answered', 0):,}, "
        f"{own.get('differs', 0):,} with a changed result; {own.get('wrong', 0):,} wrong, {own.get('errors', 0):,} errors"
    )


def _lines(session: Session, reply: dict[str, Any]) -> list[str]:
    paint = session.out.paint
    which = "" if reply["all"] else ", the newest only"
    span = f" from {moment(reply['first'])} to {moment(reply['last'])}" if reply["incidents"] else ""
    lines = [
        paint(
            f"{reply['rule_set']}, version {reply['version']}: {reply['incidents']:,} incidents{span}{which}", "bold"
        ),
        *_evaluated(reply),
        f"unchanged {reply['same']:,}, changed {reply['differs']:,}; {reply['by_rule']:,} by a rule, the others by the default policy",
        f"core-hours saved {reply['core_hours_saved']:,.1f}, spent {reply['core_hours_spent']:,.1f}",
        f"at most {reply['peak_hour']:,} actions of rules in an hour; the limit would have delayed {reply['put_off']:,}",
    ]
    if reply.get("kept_since"):
        lines.append(f"incidents closed before {moment(reply['kept_since'])} may have been removed by the retention")
    if reply["errors"]:
        lines.append(paint(f"errors {reply['errors']:,}: a condition failed, and no rule would act", "red"))
        lines += [
            neutral.line(f"  {message['rule']} on {message['incident']}: {message['message']}")
            for message in reply["messages"][:5]
        ]
    if reply["wrong"]:
        lines.append(paint(f"wrong decisions {reply['wrong']:,}", "red"))
        lines += [f"  {many:,} {_WRONG.get(kind, kind)}" for kind, many in reply["wrong_by"].items()]
        lines += [
            neutral.line(
                f"  {example['incident']}  {example['cause']}  then {example['then']['way']}, now {example['now']['way']} by {example['now']['by']}"
            )
            for example in reply["examples"]
            if example["wrong"]
        ]
    elif reply["by_rule"]:
        lines.append(paint("no wrong decisions", "green"))
    if reply["groups"]:
        columns = [
            Column("BY", flexible=True), Column("CAUSE"), Column("THEN"), Column("NOW"), Column("INCIDENTS", right=True),
            Column("WRONG", right=True), Column("RESULT", flexible=True),
        ]  # fmt: skip
        rows = [
            [
                group["by"],
                group["cause"],
                group["then"],
                group["now"],
                f"{group['count']:,}",
                f"{group['wrong']:,}",
                _came(group["came"]),
            ]
            for group in reply["groups"][:MOST_GROUPS]
        ]
        lines += ["", *table(columns, rows, paint=paint, width=session.out.width)]
        left = len(reply["groups"]) - MOST_GROUPS
        if left > 0 or reply["more_groups"]:
            lines.append(f"and {max(0, left):,} more groups; --json lists them all")
    return lines


def _evaluated(reply: dict[str, Any]) -> list[str]:
    """On how many incidents the rules were evaluated; servers of earlier releases do not report it."""
    evaluated, read = reply.get("evaluated"), reply.get("read", [])
    if not evaluated or not read:
        return []
    fields = ", ".join(read[:MOST_FIELDS]) + (", …" if len(read) > MOST_FIELDS else "")
    if evaluated < reply["incidents"]:
        return [f"rules evaluated {evaluated:,} times, once for all incidents with the same {fields}"]
    return [f"rules evaluated on each incident, since nearly all differ in {fields}"]


def _came(came: dict[str, int]) -> str:
    return ", ".join(f"{many:,} {_CAME.get(kind, kind)}" for kind, many in came.items())
