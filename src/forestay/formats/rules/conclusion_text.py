"""What a rule concludes, as people write it in one line: the name of an exlet, or steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.exlets.exlet_plain import step_as_plain
from forestay.domain.exlets.primitive import Action
from forestay.formats.rules.exlet_json import read_exlet
from forestay.formats.text.yaml_text import read_yaml

_ACTIONS = frozenset(one.value for one in Action)


def read_conclusion(text: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The conclusion, and what is wrong with it.

    ``avoid-host, resubmit`` are two steps; ``{action: resubmit, wait: 30 s}`` is one, and a list in brackets several; any other word is the name of an exlet.
    """
    document = read_yaml(text)
    if document.findings:
        return {}, tuple(one.message for one in document.findings)
    value = document.value
    if isinstance(value, str):
        words = [one.strip() for one in value.split(",")]
        if len(words) == 1 and value.split()[0] not in _ACTIONS:
            return {"exlet": value}, ()
        value = words
    steps = value if isinstance(value, list) else [value]
    exlet, findings = read_exlet({"name": "rule", "steps": steps})
    if exlet is None:
        return {}, tuple(f"{one.where}: {one.message}" if one.where else one.message for one in findings)
    return {"steps": [step_as_plain(step) for step in exlet.steps]}, ()
