"""`forestay rules check`, `apply`, `starter` and `diff -f`: rules from a file, which can be kept in git."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import number_of
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.formats.rules.rule_file import RuleFile

FILE = typer.Option("--file", "-f", metavar="FILE", help="Rules in YAML or JSON; - for stdin.")
Prune = Annotated[bool, typer.Option("--prune", help="Remove rules that came from a file and are not in this one.")]
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "described": ("~", "yellow")}
_WORDS = {
    "added": "add in shadow mode",
    "removed": "remove",
    "changed": "change, back in shadow mode",
    "described": "change the description",
}


def check(
    session: Session,
    names: Annotated[list[Path] | None, typer.Argument(metavar="FILE…", help="Rules in YAML or JSON.")] = None,
    files: Annotated[list[Path] | None, FILE] = None,
) -> int:
    """Check files of rules and report every error with its line. No server is needed.

    forestay rules check -f rules.yaml
    """
    read = [(file, read_file(file)) for file in (*(names or ()), *(files or ()))]
    if not read:
        raise typer.BadParameter("give a file with -f")
    if session.out.as_json:
        checked = [
            {"file": str(file), "rules": len(rules.rules), "problems": [p._asdict() for p in rules.problems]}
            for file, rules in read
        ]
        session.out.document({"files": checked})
    else:
        for file, rules in read:
            name = neutral.line(str(file))
            if not rules.problems:
                good = session.out.paint("good", "green")
                session.out.data(f"{name}: {good}: {number_of(len(rules.rules), 'rule')} for {rules.rule_set}")
            for problem in rules.problems:
                session.out.data(f"{name}:{neutral.line(str(problem))}")
    return ExitCode.FAILED if any(rules.problems for _, rules in read) else ExitCode.OK


def starter(session: Session) -> int:
    """Print the starter rules, as a file. They answer memory, time limit, lost node, preemption and network errors; `rules apply --starter` adds them.

    forestay rules starter > rules.yaml
    """
    from forestay.formats.rules.rule_file import read_rule_file, starter_rules

    if session.out.as_json:
        rules = read_rule_file(starter_rules())
        session.out.document({"rule_set": rules.rule_set, "rules": [dict(rule) for rule in rules.rules]})
    else:
        session.out.data(starter_rules().rstrip("\n"))
    return ExitCode.OK


def apply(
    session: Session,
    file: Annotated[Path | None, FILE] = None,
    with_starter: Annotated[
        bool, typer.Option("--starter", help="The rules that come with Forestay, instead of a file.")
    ] = False,
    prune: Prune = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Accept that the result changes for reference incidents of other rules.")
    ] = False,
) -> int:
    """Make a rule set have the rules of a file. New and changed rules are in shadow mode; a rule with `state: active` is then promoted, if its replay allows it. Applying a file twice changes nothing.

    forestay rules apply --starter
    """
    from forestay.formats.rules.rule_file import read_rule_file, starter_rules

    if (file is not None) == with_starter:
        raise typer.BadParameter("give a file with -f, or --starter")
    rules = read_rule_file(starter_rules()) if file is None else read_file(file, server_follows=True)
    if rules.problems:
        return _refuse(session, file, rules)
    done = session.client.apply_rules(
        rules.rule_set, {"rules": [dict(rule) for rule in rules.rules], "prune": prune, "confirmed": yes}
    )
    moved, refused = _set_states(session, rules, done)
    if session.out.as_json:
        session.out.document({**done, "moved": moved, "refused": refused})
        return ExitCode.CONFLICT if refused else ExitCode.OK
    lines = _lines(session, done, {})
    lines += [
        (f"  {name}: {'active' if state == 'active' else 'in shadow mode'}", "green") for name, state in moved.items()
    ]
    for line, colour in lines:
        session.out.data(session.out.paint(line, colour))
    for name, why in refused.items():
        session.out.complain(f"{name} was not promoted: {neutral.line(why)}")
    if not lines:
        session.out.say(f"{rules.rule_set} has these rules already (version {done['version']}).")
    elif any(rule["change"] in ("added", "changed") and rule["name"] not in moved for rule in done["rules"]):
        session.out.say("New rules observe and do not act. To let one act: forestay rules promote RULE")
    return ExitCode.CONFLICT if refused else ExitCode.OK


def _set_states(session: Session, rules: RuleFile, done: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Promote and demote rules as the file says, through the same replay as `rules promote`; a refusal does not stop the others."""
    from forestay.client.transport.errors import BadRequest, ConflictError

    moved: dict[str, str] = {}
    refused: dict[str, str] = {}
    for rule in done["rules"]:
        state = rules.states.get(rule["name"], rule["state"])
        if state == rule["state"] or rule["change"] == "removed":
            continue
        try:
            with session.out.progress(f"replaying {rule['name']}") as bar:
                session.client.set_rule_state(rules.rule_set, rule["rule"], state, progress=bar.of)
            moved[rule["name"]] = state
        except (BadRequest, ConflictError) as error:
            refused[rule["name"]] = str(error)
    return moved, refused


def diff_file(session: Session, file: Path, *, prune: bool) -> int:
    """Show what applying a file would do; returns 1 if it would change anything."""
    rules = read_file(file, server_follows=True)
    if rules.problems:
        return _refuse(session, file, rules)
    done = session.client.apply_rules(
        rules.rule_set,
        {"rules": [dict(rule) for rule in rules.rules], "prune": prune, "dry_run": True, "confirmed": True},
    )
    states = {
        rule["name"]: rules.states[rule["name"]]
        for rule in done["rules"]
        if rule["change"] != "removed" and rules.states.get(rule["name"], rule["state"]) != rule["state"]
    }
    lines = _lines(session, done, states)
    if session.out.as_json:
        session.out.document({"rules": done["rules"], "states": states, "overturned": done["overturned"]})
    else:
        for line, colour in lines:
            session.out.data(session.out.paint(line, colour))
        if not lines:
            session.out.say(f"{rules.rule_set} has these rules already.")
    return ExitCode.FAILED if lines else ExitCode.OK


def _lines(session: Session, done: dict[str, Any], states: dict[str, str]) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for rule in done["rules"]:
        if rule["change"] in _SIGNS:
            sign, colour = _SIGNS[rule["change"]]
            named = f" {short(rule['rule'])}" if rule["rule"] else ""
            lines.append((f"{sign} {rule['name']}{named}: {_WORDS[rule['change']]}", colour))
        if rule["name"] in states:
            words = "promote, after a replay" if states[rule["name"]] == "active" else "back to shadow mode"
            lines.append((f"~ {rule['name']}: {words}", "yellow"))
    for entry in done["overturned"]:
        session.out.say(
            neutral.line(
                f"Reference incident {entry['reference_incident']}: answered by {entry['before']}, then by {entry['after']}"
            )
        )
    return lines


def read_file(file: Path, *, server_follows: bool = False) -> RuleFile:
    """A file of rules, or stdin, with its errors."""
    from forestay.apps.rule_file_check import check_rule_file
    from forestay.formats.text.yaml_text import MAX_BYTES

    try:
        text = sys.stdin.read(MAX_BYTES + 1) if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from error
    return check_rule_file(text, server_follows=server_follows)


def _refuse(session: Session, file: Path | None, rules: RuleFile) -> int:
    name = neutral.line(str(file))
    session.out.complain(f"{name}: {number_of(len(rules.problems), 'error')}")
    for problem in rules.problems:
        session.out.say(f"  {name}:{neutral.line(str(problem))}")
    return ExitCode.USAGE
