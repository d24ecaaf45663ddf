"""Checks a rule file and, where CEL is installed, its conditions, without a server."""

from __future__ import annotations

from collections.abc import Sequence

from forestay.domain.rules.condition import Erred
from forestay.domain.rules.context import Context
from forestay.formats.rules.rule_file import RuleFile, read_rule_file


def check_rule_file(text: str, *, server_follows: bool = False) -> RuleFile:
    """The file with every problem that a server would find, except for playbooks and rules that only the server knows.

    ``server_follows``: the rules are sent to a server next, so without CEL its answer reports the errors in conditions.
    """
    try:
        from forestay.adapters.cel.conditions import CelConditions
    except ModuleNotFoundError:
        if not server_follows:
            raise
        return read_rule_file(text)

    conditions = CelConditions()

    def check_condition(condition: str, context: Context) -> Sequence[str]:
        problems = conditions.compile(condition)
        if problems:
            return [str(problem) for problem in problems]
        answer = conditions.over(context)(condition)
        if isinstance(answer, Erred):
            return [f"it has an error on the context: {answer.message}"]
        return [] if answer else ["it is not true for the context"]

    return read_rule_file(text, check_condition)
