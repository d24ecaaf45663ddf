"""The conclusion of a rule in one line of text: the name of a playbook, or steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.playbooks.action import ActionKind
from forestay.domain.playbooks.playbook import step_as_plain
from forestay.formats.rules.playbook_json import read_playbook
from forestay.formats.text.yaml_text import read_yaml

_ACTIONS = frozenset(action.value for action in ActionKind)


def read_conclusion(text: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The conclusion, and the errors in it.

    ``avoid-host, resubmit`` are two steps; ``{action: resubmit, wait: 30 s}`` is one, and a list in brackets several; any other word is the name of a playbook.
    """
    document = read_yaml(text)
    if document.findings:
        return {}, tuple(finding.message for finding in document.findings)
    value = document.value
    if isinstance(value, str):
        words = [part.strip() for part in value.split(",")]
        if len(words) == 1 and value.split()[0] not in _ACTIONS:
            return {"playbook": value}, ()
        value = words
    steps = value if isinstance(value, list) else [value]
    playbook, findings = read_playbook({"name": "rule", "steps": steps})
    if playbook is None:
        return {}, tuple(
            f"{finding.where}: {finding.message}" if finding.where else finding.message for finding in findings
        )
    return {"steps": [step_as_plain(step) for step in playbook.steps]}, ()
