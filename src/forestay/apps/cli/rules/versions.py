"""`forestay rules versions`, `diff` and `rollback`: the history of a rule set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forestay.apps.cli import neutral
from forestay.apps.cli.columns import Column
from forestay.apps.cli.command import lists
from forestay.apps.cli.exit_codes import ExitCode
from forestay.apps.cli.ids import short
from forestay.apps.cli.rules.replay import DEFAULT_SET, RuleSet, set_named
from forestay.apps.cli.rules.rule_files import FILE, Prune, diff_file
from forestay.apps.cli.rules.rules import changed
from forestay.apps.cli.session import Session


@lists
def versions(
    session: Session,
    which: Annotated[str | None, typer.Argument(metavar="[SET]", help="The rule set, as with --set.")] = None,
    rule_set: RuleSet = DEFAULT_SET,
) -> int:
    """List the versions of a rule set.

    forestay rules versions flow/nightly
    """
    columns = [
        Column("VERSION", right=True),
        Column("AT"),
        Column("BY", flexible=True),
        Column("CHANGES", right=True),
        Column("NOTE", flexible=True),
    ]
    session.print_list(
        "versions", session.client.rule_versions(set_named(which or rule_set)), columns, key=lambda fields: str(fields["number"]),
        row=lambda fields: [str(fields["number"]), session.when(fields["at"]), fields["by"], str(fields["changes"]), fields["note"]],
    )  # fmt: skip
    return ExitCode.OK


def diff(
    session: Session,
    old: Annotated[int | None, typer.Argument(metavar="[OLD]", help="The older version.")] = None,
    new: Annotated[int | None, typer.Argument(metavar="[NEW]", help="The newer version (the current one).")] = None,
    rule_set: RuleSet = DEFAULT_SET,
    file: Annotated[Path | None, FILE] = None,
    prune: Prune = False,
) -> int:
    """Compare two versions of a rule set, or a file with it. With -f it shows what `rules apply -f` would do, and exits with code 1 if that is anything.

    forestay rules diff -f rules.yaml
    """
    if file is not None:
        return diff_file(session, file, prune=prune)
    if old is None:
        raise typer.BadParameter("give the older version, or a file with -f")
    changes = session.client.rule_diff(set_named(rule_set), old, new)
    if session.out.as_json:
        session.out.document({"changes": changes})
        return ExitCode.OK
    for change in changes:
        rule = change.get("after") or change["before"]
        sign, colour = {"added": ("+", "green"), "removed": ("-", "red")}.get(change["change"], ("~", "yellow"))
        line = f"{sign} {change['change']} {short(change['rule'])} {change['type']} {change['task']}: if {rule['condition']}"
        session.out.data(session.out.paint(neutral.line(line), colour))
    if not changes:
        session.out.say("They do not differ.")
    return ExitCode.OK


def rollback(
    session: Session,
    version: Annotated[int, typer.Argument(metavar="VERSION", help="The version to go back to.")],
    rule_set: RuleSet = DEFAULT_SET,
) -> int:
    """Go back to an earlier version of a rule set.

    forestay rules rollback 3
    """
    done = session.client.roll_back_rules(set_named(rule_set), version)
    return changed(session, done, f"The rules are as in version {version}")
