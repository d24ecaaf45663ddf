"""Every act that the pages offer, by a name. A test that does one in a browser is marked with it, and what it asked of the server is held against that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Act:
    """What the server is asked when somebody acts."""

    method: str
    route: str
    says: Mapping[str, Any] = field(default_factory=dict)
    """What its body says, where one route is asked for several acts; ...: anything but nothing."""

    def was(self, asked: Asked) -> bool:
        pattern = re.sub(r"\{\w+\}", "[^/]+", self.route)
        return (
            asked.method == self.method
            and re.fullmatch(pattern, asked.path) is not None
            and all(bool(asked.body.get(key)) if value is ... else asked.body.get(key) == value for key, value in self.says.items())
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a browser that the server did."""

    method: str
    path: str
    body: Mapping[str, Any]


def _post(route: str, **says: Any) -> Act:
    return Act("POST", route, says)


TRIAGE = "/v1/errors/{fingerprint}/triage"
INBOX, PLAYBOOK = "/v1/inbox/acts", "/v1/incidents/{incident}/playbook"
ACTS: dict[str, Act] = {
    "log out": Act("DELETE", "/v1/session"),
    "try a group again: one": _post(INBOX, do="retry", reach="one"),
    "try a group again: ten": _post(INBOX, do="retry", reach="ten"),
    "try a group again: all": _post(INBOX, do="retry", reach="all"),
    "continue despite failures": _post(INBOX, anyway=True),
    "carry out a playbook on a group": _post(INBOX, do="playbook"),
    "give a group up": _post(INBOX, do="cancel"),
    "acknowledge an error": _post(TRIAGE, act="acknowledge"),
    "assign an error": _post(TRIAGE, act="assign", assignee=...),
    "snooze an error": _post(TRIAGE, act="snooze", seconds=...),
    "resolve an error": _post(TRIAGE, act="resolve"),
    "reopen an error": _post(TRIAGE, act="reopen"),
    "dismiss a proposal": _post("/v1/rules/{level}/{name}/proposals/{proposal}/dismiss"),
    "teach an error": _post("/v1/errors/{fingerprint}/teach", dry_run=False),
    "agree": _post("/v1/approvals/{request}", agree=True),
    "answer a question": _post("/v1/questions/{question}"),
    "try a storm on one again": _post("/v1/safeguards/groups", do="try"),
    "let all of a storm through": _post("/v1/safeguards/groups", do="all"),
    "launch a kept playbook": _post(PLAYBOOK, playbook=...),
    "launch a drawn playbook": _post(PLAYBOOK, text=...),
    "look at the path through the rules": _post("/v1/rules/test"),
    "try a condition": _post("/v1/rules/check"),
    "replay": _post("/v1/rules/{level}/{name}/replay"),
    "add a rule": _post("/v1/rules/{level}/{name}", confirmed=False),
    "add a rule although": _post("/v1/rules/{level}/{name}", confirmed=True),
    "let a rule act": _post("/v1/rules/{level}/{name}/rules/{rule}/state", state="active"),
    "take a rule back to shadow": _post("/v1/rules/{level}/{name}/rules/{rule}/state", state="shadow"),
    "go back to a version": _post("/v1/rules/{level}/{name}/rollback"),
    "suspend a run": _post("/v1/runs/{run}/verbs", verb="suspend"),
    "continue a run": _post("/v1/runs/{run}/verbs", verb="continue"),
    "continue a run for who holds it": _post("/v1/runs/{run}/verbs", verb="continue", holder=...),
    "cancel a run": _post("/v1/runs/{run}/verbs", verb="remove"),
    "run a task again": _post("/v1/runs/{run}/verbs", verb="redo", task=...),
    "skip a task": _post("/v1/runs/{run}/verbs", verb="skip", task=...),
    "suspend a task": _post("/v1/runs/{run}/verbs", verb="suspend", task=...),
    "continue a task": _post("/v1/runs/{run}/verbs", verb="continue", task=...),
    "resume a run": _post("/v1/runs/{run}/resume", dry_run=False),
    "raise what the rules offer": _post("/v1/runs/{run}/triggers", trigger=...),
    "raise what no rule foresees": _post("/v1/runs/{run}/triggers", new=...),
    "hold a job": _post("/v1/jobs/{job}/hold"),
    "continue a job": _post("/v1/jobs/{job}/continue"),
    "cancel a job": _post("/v1/jobs/{job}/cancel"),
    "try a job again": _post("/v1/jobs/{job}/retry"),
    "drain a pilot": _post("/v1/pilots/drain", pilots=...),
    "drain a site": _post("/v1/pilots/drain", site=...),
    "close a host": _post("/v1/hosts/{host}/close", seconds=None),
    "close a host for a time": _post("/v1/hosts/{host}/close", seconds=...),
    "open a host": _post("/v1/hosts/{host}/open"),
}
