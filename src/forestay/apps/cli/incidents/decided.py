"""Who decided about a failure, and why, in words: a rule by its short id and reason, the default policy, or a person by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forestay.apps.cli.ids import short
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from forestay.client.api.schemas import DecisionJson, IncidentWhole, TransitionJson

_STEP = re.compile(r"playbook:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(\d+):\d+")
"""The signature of a playbook's step in a job's story."""
MOST_READ = 20
"""The most incidents that are read for one story."""


def who_decided(by: str) -> str:
    """A rule by the first characters of its id and its set; others by name."""
    rule_set, mark, rule = by.partition("#")
    return f"rule {short(rule)} of {rule_set}" if mark else by


def what_was_decided(decision: DecisionJson) -> str:
    """The steps of its playbook, or its verdict."""
    if decision["playbook"] is None:
        return str(decision["verdict"])
    return ", ".join(str(step.get("action", "")) for step in decision["playbook"].get("steps", []))


def why_decided(decision: DecisionJson) -> str:
    return str(decision["detail"].get("words", ""))


@dataclass
class DecisionReader:
    """Reads the decisions that the lines of a story name, each incident once."""

    session: Session
    _known: dict[str, IncidentWhole | None] = field(default_factory=dict)

    def words(self, line: TransitionJson) -> str:
        """The sentence of a line, with the id of a step replaced by the rule and its reason."""
        from forestay.client import ClientError

        words = line.get("words") or line["event"]
        match = _STEP.fullmatch(line["by"])
        if match is None:
            return words
        incident, n = match[1], int(match[2])
        if incident not in self._known and len(self._known) < MOST_READ:
            try:
                self._known[incident] = self.session.client.incident(incident)
            except ClientError:
                # It may have been removed; the story is shown without it.
                self._known[incident] = None
        whole = self._known.get(incident)
        decision = next((found for found in whole["decisions"] if found["n"] == n), None) if whole else None
        if decision is None:
            return words.replace(line["by"], "a playbook")
        note = f"incident {incident}"
        return words.replace(line["by"], who_decided(decision["by"])).replace(note, why_decided(decision) or note)
