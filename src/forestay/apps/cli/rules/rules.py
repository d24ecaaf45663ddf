"""`forestay rules`: shows rules, adds one for an incident, tests it, and activates it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import number_of
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.rules.replay import DEFAULT_SET, RuleSet, promoted_in_words, read_record, set_named
from forestay.apps.cli.session import Session

AnySet = Annotated[
    str | None, typer.Option("--set", metavar="SET", help="Only look in this rule set; without it in all of them.")
]
RULE = typer.Argument(metavar="RULE", help="The rule's id, the beginning of it, or its name in a file of rules.")
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Accept that the result changes for reference incidents of other rules.")
]
_ID = re.compile(r"[0-9a-f]{4,}(-[0-9a-z]*)*")


@lists
def list_sets(session: Session) -> int:
    """List the rule sets.

    forestay rules list
    """
    rule_sets = session.client.rule_sets()
    session.print_list(
        "rule_sets", rule_sets,
        [Column("SET", flexible=True), Column("VERSION", right=True), Column("RULES", right=True)],
        lambda fields: [f"{fields['level']}/{fields['name']}", str(fields["version"]), str(fields["rules"])],
        key=lambda fields: f"{fields['level']}/{fields['name']}",
        empty="There are no rules yet. To start with rules for common failures: forestay rules apply --starter",
    )  # fmt: skip
    return ExitCode.OK


@lists
def fields(session: Session) -> int:
    """List the fields that conditions may use.

    forestay rules fields
    """
    session.print_list(
        "fields", session.client.rule_context(), [Column("FIELD"), Column("TYPE"), Column("MEANING", flexible=True)],
        lambda fields: [fields["name"], fields["type"] + (" or null" if fields["optional"] else ""), fields["words"]],
        key=lambda fields: str(fields["name"]),
    )  # fmt: skip
    return ExitCode.OK


def show(
    session: Session,
    what: Annotated[
        str, typer.Argument(metavar="[SET|RULE]", help="A rule set, or the id of a rule or the beginning of it.")
    ] = DEFAULT_SET,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Of a rule set: this version of it.")
    ] = None,
) -> int:
    """Show the rules of a set, or one rule.

    forestay rules show 3592c0a2
    """
    if _ID.fullmatch(what):
        rule_set, rule = session.rule(what, None)
        return _show_rule(session, session.client.rule(rule_set, rule), rule_set)
    return _show_set(session, set_named(what), version)


def _show_set(session: Session, rule_set: str, version: int | None) -> int:
    reply = session.client.rule_set(rule_set, version)
    if session.out.as_json:
        session.out.document(reply)
        return ExitCode.OK
    session.out.data(
        session.out.paint(f"{rule_set}, version {reply['version']}, {number_of(reply['rules'], 'rule')}", "bold")
    )
    ids = session.short_ids(rule["id"] for tree in reply["trees"] for rule in tree["rules"])
    for tree in reply["trees"]:
        session.out.data()
        session.out.data(session.out.paint(neutral.line(f"{tree['type']} {tree['task']}".strip()), "cyan"))
        for rule, line in zip(tree["rules"], tree["words"], strict=True):
            indent = len(line) - len(line.lstrip()) + 4
            session.out.folded(f"  {neutral.line(line)}  {session.out.paint(ids.short(rule['id']), 'dim')}", indent)
            if rule.get("description"):
                described = session.out.paint(neutral.line(str(rule["description"])), "dim")
                session.out.folded(" " * indent + described, indent)
    return ExitCode.OK


def _show_rule(session: Session, rule: dict[str, Any], rule_set: str) -> int:
    if session.out.as_json:
        session.out.document({"rule": rule, "set": rule_set})
        return ExitCode.OK
    session.out.folded(neutral.line(rule["effective"]), 2)
    session.out.data(f"  {session.out.paint('set', 'dim')}  {neutral.line(rule_set)}")
    for key in (
        "name",
        "id",
        "type",
        "task",
        "state",
        "condition",
        "does",
        "reference_incident",
        "author",
        "description",
    ):
        if rule.get(key):
            label = "reference incident" if key == "reference_incident" else key
            session.out.folded(f"  {session.out.paint(label, 'dim')}  {neutral.line(str(rule[key]))}", 4)
    return ExitCode.OK


def ask(
    session: Session,
    rule_set: Annotated[
        str | None, typer.Option("--set", metavar="SET", help="Ask only this rule set; without it all that apply.")
    ] = None,
    version: Annotated[int | None, typer.Option("--version", metavar="N", help="This version of the set.")] = None,
    incident: Annotated[
        str | None,
        typer.Option("--from", metavar="INCIDENT", help="Take the context from this incident, or from its job."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="The context as JSON or YAML; - for stdin.")
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The exception type, such as abort.")
    ] = None,
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="The task (any).")] = "",
    flow: Annotated[str, typer.Option("--flow", metavar="NAME", help="The flow, whose own rules come first.")] = "",
) -> int:
    """Show what the rules would decide.

    forestay rules test --from newest
    """
    context = read_record(file) if file is not None else None
    if context is None and incident is None:
        raise typer.BadParameter("give the context with --file, or an incident with --from")
    question = {
        "type": type_,
        "task": task,
        "flow": flow,
        "incident": session.incident(incident) if incident is not None else None,
        "rule_set": set_named(rule_set) if rule_set else None,
        "version": version,
        "context": context,
    }
    rules = session.client.ask_rules({name: value for name, value in question.items() if value not in (None, "")})
    if session.out.as_json:
        session.out.document(rules)
    else:
        for line in rules["words"]:
            session.out.folded(neutral.line(line), 2)
        conclusion = rules["active"]["conclusion"]
        if conclusion is not None:
            session.out.data(f"conclusion: {neutral.line(json.dumps(conclusion))}")
        for line in rules["problems"]:
            session.out.say(neutral.line(f"context: {line}"))
    return ExitCode.FAILED if rules["verdict"] == "error" else ExitCode.OK


def add(
    session: Session,
    rule_set: RuleSet = DEFAULT_SET,
    incident: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="INCIDENT", help="The incident that the rule is for, or its job; `newest` for the newest."
        ),
    ] = None,
    condition: Annotated[str | None, typer.Option("--if", metavar="CONDITION", help="The condition, in CEL.")] = None,
    playbook: Annotated[
        str | None,
        typer.Option(
            "--then", metavar="PLAYBOOK", help="The name of a playbook, or its actions: 'avoid-host, resubmit'."
        ),
    ] = None,
    why: Annotated[str | None, typer.Option("--because", metavar="TEXT", help="Why, in your words.")] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The exception type (the incident's).")
    ] = None,
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="Only for this task (any).")] = "",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="The rule as JSON or YAML; - for stdin.")
    ] = None,
    yes: Yes = False,
) -> int:
    """Add a rule for an incident, in shadow mode. It observes and does not act until it is promoted.

    forestay rules add --from newest --if 'cause == "memory"' --then 'more-memory, resubmit'
    """
    rule_set = set_named(rule_set)
    draft = _draft(session, file, type_, task, condition, playbook, why, incident)
    session.sources["condition"] = str(draft.get("condition", ""))
    made = session.client.add_rule(rule_set, {**draft, "confirmed": yes or draft.get("confirmed", False)})
    done = changed(session, made, "Added in shadow mode")
    session.out.say(f"To let it act: forestay rules promote {short(made['rule'])}")
    return done


def _draft(
    session: Session,
    file: Path | None,
    type_: str | None,
    task: str,
    condition: str | None,
    playbook: str | None,
    why: str | None,
    incident: str | None,
) -> dict[str, Any]:
    draft = read_record(file) if file is not None else {}
    given_draft = {
        "type": type_,
        "task": task or None,
        "condition": condition,
        "description": why,
        "reference_incident": incident,
    }
    draft |= {name: value for name, value in given_draft.items() if value is not None}
    if incident is not None and "context" not in draft:
        whole = session.client.incident(session.incident(incident))
        draft = {"type": whole["type"]} | draft | {"reference_incident": whole["id"]}
    if playbook is not None:
        from forestay.formats.rules.conclusion_text import read_conclusion

        draft["conclusion"], wrong = read_conclusion(playbook)
        if wrong:
            raise typer.BadParameter(f"--then: {'; '.join(wrong)}")
    missing = [
        option
        for name, option in (
            ("type", "--type"),
            ("condition", "--if"),
            ("conclusion", "--then"),
            ("reference_incident", "--from"),
        )
        if name not in draft
    ]
    if missing:
        raise typer.BadParameter(f"the rule is incomplete: give {', '.join(missing)}, or a file with it")
    return draft


def promote(
    session: Session,
    rule: Annotated[str, RULE],
    rule_set: AnySet = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Also if the replay finds wrong decisions (with --because).")
    ] = False,
    why: Annotated[str, typer.Option("--because", metavar="TEXT", help="Why, in your words.")] = "",
) -> int:
    """Let a rule act, after a replay over past incidents. Wrong decisions in the replay block it.

    forestay rules promote 3592c0a2
    """
    if yes and not why:
        raise typer.BadParameter("to promote a rule against its replay, say why with --because")
    home, name = session.rule(rule, rule_set)
    with session.out.progress("replaying") as bar:
        done = session.client.set_rule_state(
            home, name, "active", confirmed=yes, reason=why if yes else "", progress=bar.of
        )
    return changed(session, done, f"Rule {short(name)} is active")


def demote(session: Session, rule: Annotated[str, RULE], rule_set: AnySet = None) -> int:
    """Put a rule back into shadow mode.

    forestay rules demote 3592c0a2
    """
    home, name = session.rule(rule, rule_set)
    return changed(
        session, session.client.set_rule_state(home, name, "shadow"), f"Rule {short(name)} is in shadow mode"
    )


def remove(session: Session, rule: Annotated[str, RULE], rule_set: AnySet = None, yes: Yes = False) -> int:
    """Remove a rule from its set.

    forestay rules remove 3592c0a2
    """
    home, name = session.rule(rule, rule_set)
    return changed(session, session.client.remove_rule(home, name, confirmed=yes), f"Rule {short(name)} was removed")


def changed(session: Session, done: dict[str, Any], words: str) -> int:
    """The result of a change of a rule set."""
    if session.out.as_json:
        session.out.document(done)
        return ExitCode.OK
    if done["rule"]:
        session.out.data(done["rule"])
    for entry in done["overturned"]:
        session.out.say(
            neutral.line(
                f"Reference incident {entry['reference_incident']}: answered by {entry['before']}, now by {entry['after']}"
            )
        )
    if done.get("replayed"):
        session.out.say(promoted_in_words(done["replayed"]))
    session.out.say(f"{words} (rule set version {done['version']}).")
    return ExitCode.OK
