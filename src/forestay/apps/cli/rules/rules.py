"""`forestay rules`: look at rules, add one for a case that is there, promote it, go back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import number_of
from forestay.apps.cli.columns import Column
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.rules.replay import promote, promoted_in_words, propose, read_record, replay, replay_question
from forestay.apps.cli.session import Session

ACTIONS = (
    "list",
    "show",
    "fields",
    "test",
    "explain",
    "add",
    "promote",
    "demote",
    "remove",
    "versions",
    "diff",
    "rollback",
    "replay",
    "propose",
)


def rules(
    session: Session,
    action: Annotated[str, typer.Argument(metavar="|".join(ACTIONS), help="What to do.")] = "list",
    named: Annotated[
        str | None,
        typer.Argument(
            metavar="SET",
            help="The rule set: domain/house unless named, flow/NAME or pack/NAME; `test` asks all that apply.",
        ),
    ] = None,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RULE|VERSION…",
            help="The rule to show, explain, promote, demote or remove; the version or two to diff or go back to.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="For `add` the rule, for `test` the context, as JSON or YAML; - reads stdin.",
        ),
    ] = None,
    incident: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="INCIDENT",
            help="For `add` and `test`: the incident to take the context from, or its job.",
        ),
    ] = None,
    type_: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="The type of exception, such as abort.")
    ] = None,
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="The task; nothing: any.")] = "",
    flow: Annotated[
        str, typer.Option("--flow", metavar="NAME", help="For `test`: the flow whose own rules come first.")
    ] = "",
    condition: Annotated[
        str | None, typer.Option("--if", metavar="CONDITION", help="For `add`: the condition.")
    ] = None,
    exlet: Annotated[
        str | None,
        typer.Option(
            "--then", metavar="EXLET", help="For `add`: the name of an exlet, or its steps: 'avoid-host, resubmit'."
        ),
    ] = None,
    why: Annotated[
        str | None,
        typer.Option("--because", metavar="TEXT", help="For `add`, and `promote --yes`: why, in your words."),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", help="For `show`, `test` and `replay`: this version of the set."),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Go on although earlier cornerstones are answered otherwise; for `promote`, although its replay speaks against it (with --because).",
        ),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="For `replay` and `propose`: incidents since then, such as 30d."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="For `replay` and `propose`: incidents before then.")
    ] = None,
    drafts: Annotated[
        list[Path] | None,
        typer.Option(
            "--with", metavar="FILE", help="For `replay`: a rule as for `add`, as if it were there and acted."
        ),
    ] = None,
    acting: Annotated[
        bool, typer.Option("--acting", help="For `replay`: only rules that act; else shadows count as if promoted.")
    ] = False,
    most: Annotated[
        int | None,
        typer.Option("--most", metavar="N", help="For `replay` and `propose`: so many incidents, the newest."),
    ] = None,
) -> int:
    """Show, add, try and promote rules. `list` the sets, `show` one, `test` what they say, `add` one for an incident, `replay` them over past incidents, `propose` new ones, `promote` one to act, `diff`, `rollback`.

    forestay rules show domain/house
    """
    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}")
    rule_set = named or "domain/house"
    if "/" not in rule_set:
        raise typer.BadParameter(f"{rule_set!r} names no rule set; write domain/house, flow/NAME or pack/NAME")
    words = what or []
    match action:
        case "list":
            return _list(session)
        case "fields":
            return _fields(session)
        case "show" | "explain":
            return _rule(session, rule_set, words[0]) if words else _show(session, rule_set, version)
        case "test":
            question = {
                "type": type_,
                "task": task,
                "flow": flow,
                "incident": session.incident(incident) if incident is not None else None,
                "rule_set": named,
                "version": version,
            }
            return _test(session, question, read_record(file) if file is not None else None)
        case "add":
            return _add(session, rule_set, _draft(session, file, type_, task, condition, exlet, why, incident), yes=yes)
        case "promote" | "demote" | "remove":
            return _steer(session, action, rule_set, words, yes=yes, why=why or "")
        case "replay":
            question = replay_question(session, since, until, drafts or [], acting=acting, version=version, most=most)
            return replay(session, rule_set, question)
        case "propose":
            return propose(
                session, rule_set, replay_question(session, since, until, [], acting=False, version=None, most=most)
            )
        case "versions":
            return _versions(session, rule_set)
        case "diff":
            return _diff(session, rule_set, _numbers(words))
        case _:
            return _back(session, rule_set, _numbers(words))


def _draft(
    session: Session,
    file: Path | None,
    type_: str | None,
    task: str,
    condition: str | None,
    exlet: str | None,
    why: str | None,
    incident: str | None,
) -> dict[str, Any]:
    draft = read_record(file) if file is not None else {}
    given = {"type": type_, "task": task or None, "condition": condition, "description": why, "cornerstone": incident}
    draft |= {name: value for name, value in given.items() if value is not None}
    if incident is not None and "context" not in draft:
        whole = session.client.incident(session.incident(incident))
        draft = {"type": whole["type"]} | draft | {"cornerstone": whole["id"]}
    if exlet is not None:
        from forestay.formats.rules.conclusion_text import read_conclusion

        draft["conclusion"], wrong = read_conclusion(exlet)
        if wrong:
            raise typer.BadParameter(f"--then: {'; '.join(wrong)}")
    for name, option in (
        ("type", "--type"),
        ("condition", "--if"),
        ("conclusion", "--then"),
        ("cornerstone", "--from"),
    ):
        if name not in draft:
            raise typer.BadParameter(f"the rule has no {name}; give {option} or a file with it")
    return draft


def _numbers(words: list[str]) -> list[int]:
    try:
        return [int(word) for word in words]
    except ValueError as error:
        raise typer.BadParameter(f"{error.args[0]}: versions are numbers") from error


def _list(session: Session) -> int:
    found = session.client.rule_sets()
    if session.out.as_json:
        session.out.document({"rule_sets": found})
        return ExitCode.OK
    columns = [Column("SET"), Column("VERSION", right=True), Column("RULES", right=True)]
    rows = [[f"{one['level']}/{one['name']}", str(one["version"]), str(one["rules"])] for one in found]
    session.out.table(columns, rows)
    if not rows:
        session.out.say(
            "There are no rules yet. To write one for an incident: forestay rules add --from INCIDENT --if CONDITION --then EXLET"
        )
    return ExitCode.OK


def _fields(session: Session) -> int:
    found = session.client.rule_context()
    if session.out.as_json:
        session.out.document({"fields": found})
        return ExitCode.OK
    rows = [[one["name"], one["type"] + (" or null" if one["optional"] else ""), one["words"]] for one in found]
    session.out.table([Column("FIELD"), Column("TYPE"), Column("MEANING")], rows)
    return ExitCode.OK


def _show(session: Session, rule_set: str, version: int | None) -> int:
    found = session.client.rule_set(rule_set, version)
    if session.out.as_json:
        session.out.document(found)
        return ExitCode.OK
    session.out.data(
        session.out.paint(f"{rule_set}, version {found['version']}, {number_of(found['rules'], 'rule')}", "bold")
    )
    for tree in found["trees"]:
        session.out.data()
        session.out.data(session.out.paint(neutral.line(f"{tree['type']} {tree['task']}".strip()), "cyan"))
        for rule, line in zip(tree["rules"], tree["words"], strict=True):
            session.out.data(f"  {neutral.line(line)}  {session.out.paint(rule['id'][:8], 'dim')}")
    return ExitCode.OK


def _whole(session: Session, rule_set: str, prefix: str) -> str:
    """The id of the rule that begins so."""
    trees = session.client.rule_set(rule_set)["trees"]
    found = [rule["id"] for tree in trees for rule in tree["rules"] if rule["id"].startswith(prefix)]
    if len(found) != 1:
        raise typer.BadParameter(f"{len(found)} rules of {rule_set} begin with {prefix!r}")
    return str(found[0])


def _rule(session: Session, rule_set: str, name: str) -> int:
    found = session.client.rule(rule_set, _whole(session, rule_set, name))
    if session.out.as_json:
        session.out.document({"rule": found})
        return ExitCode.OK
    session.out.data(neutral.line(found["effective"]))
    for key in ("id", "type", "task", "state", "condition", "does", "cornerstone", "author", "description"):
        if found.get(key):
            session.out.data(f"  {session.out.paint(key, 'dim')}  {neutral.line(str(found[key]))}")
    return ExitCode.OK


def _test(session: Session, question: dict[str, Any], told: dict[str, Any] | None) -> int:
    asked = {name: value for name, value in question.items() if value not in (None, "")}
    if told is not None:
        asked["context"] = told
    if told is None and question["incident"] is None:
        raise typer.BadParameter("give the context with --file, or an incident with --from")
    found = session.client.ask_rules(asked)
    if session.out.as_json:
        session.out.document(found)
    else:
        for line in found["words"]:
            session.out.data(neutral.line(line))
        conclusion = found["active"]["conclusion"]
        if conclusion is not None:
            session.out.data(f"conclusion: {neutral.line(json.dumps(conclusion))}")
        for line in found["problems"]:
            session.out.say(neutral.line(f"context: {line}"))
    return ExitCode.FAILED if found["verdict"] == "error" else ExitCode.OK


def _add(session: Session, rule_set: str, draft: dict[str, Any], *, yes: bool) -> int:
    made = session.client.add_rule(rule_set, {**draft, "confirmed": yes or draft.get("confirmed", False)})
    done = _done(session, made, "added, as a shadow that only watches")
    session.out.say(f"To let it act: forestay rules promote {rule_set} {made['rule'][:8]}")
    return done


def _steer(session: Session, action: str, rule_set: str, words: list[str], *, yes: bool, why: str) -> int:
    if len(words) != 1:
        raise typer.BadParameter(f"name the rule to {action}")
    name = _whole(session, rule_set, words[0])
    if action == "remove":
        return _done(session, session.client.remove_rule(rule_set, name, confirmed=yes), "removed")
    if action == "demote":
        return _done(session, session.client.set_rule_state(rule_set, name, "shadow"), f"{name[:8]} is shadow")
    return _done(session, promote(session, rule_set, name, yes=yes, why=why), f"{name[:8]} is active")


def _done(session: Session, done: dict[str, Any], word: str) -> int:
    if session.out.as_json:
        session.out.document(done)
        return ExitCode.OK
    if done["rule"]:
        session.out.data(done["rule"])
    for one in done["overturned"]:
        session.out.say(
            neutral.line(f"cornerstone {one['cornerstone']}: {one['before']} answered it, {one['after']} does now")
        )
    if done.get("replayed"):
        session.out.say(promoted_in_words(done["replayed"]))
    session.out.say(f"{word}; the set is at version {done['version']}")
    return ExitCode.OK


def _versions(session: Session, rule_set: str) -> int:
    found = session.client.rule_versions(rule_set)
    if session.out.as_json:
        session.out.document({"versions": found})
        return ExitCode.OK
    columns = [
        Column("VERSION", right=True),
        Column("AT"),
        Column("BY"),
        Column("CHANGES", right=True),
        Column("NOTE", widest=60),
    ]
    rows = [[str(one["number"]), one["at"], one["by"], str(one["changes"]), one["note"]] for one in found]
    session.out.table(columns, rows)
    return ExitCode.OK


def _diff(session: Session, rule_set: str, numbers: list[int]) -> int:
    if not 1 <= len(numbers) <= 2:
        raise typer.BadParameter("name the older version, and perhaps the newer")
    found = session.client.rule_diff(rule_set, numbers[0], numbers[1] if len(numbers) > 1 else None)
    if session.out.as_json:
        session.out.document({"changes": found})
        return ExitCode.OK
    for one in found:
        rule = one.get("after") or one["before"]
        sign, colour = {"added": ("+", "green"), "removed": ("-", "red")}.get(one["change"], ("~", "yellow"))
        line = f"{sign} {one['change']} {one['rule'][:8]} {one['type']} {one['task']}: if {rule['condition']}"
        session.out.data(session.out.paint(neutral.line(line), colour))
    if not found:
        session.out.say("They do not differ.")
    return ExitCode.OK


def _back(session: Session, rule_set: str, numbers: list[int]) -> int:
    if len(numbers) != 1:
        raise typer.BadParameter("name the version to go back to")
    return _done(
        session, session.client.roll_back_rules(rule_set, numbers[0]), f"everything is as in version {numbers[0]}"
    )
