"""What the operator of a site has configured for its agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from forestay.domain.sites.fleet import PilotSize, SubmissionPace, Thresholds

UNIX_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}")
"""What the launcher takes for the name of a Unix user."""


@dataclass(frozen=True, slots=True)
class OwnUsers:
    """As which Unix users the jobs of a site run, where they run as their submitters."""

    names: Mapping[str, str] = field(default_factory=dict)
    """By owner."""
    same_name: bool = False
    """An owner who is not among them is the Unix user of the same name."""

    def of(self, owner: str) -> str:
        """The Unix user of an owner; empty: there is none."""
        same = self.same_name and UNIX_NAME.fullmatch(owner) is not None
        return self.names.get(owner, owner if same else "")


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """The settings for the pilots of a site. Times are in seconds."""

    thresholds: Thresholds
    sizes: tuple[PilotSize, ...]
    pace: SubmissionPace = field(default_factory=SubmissionPace)
    every: float = 10.0
    """Interval between polls."""
    settle: float = 120.0
    """How long the submission of an agent that died may still arrive at the batch system."""
    idle_patience: float = 60.0
    """How long tasks may wait beside idle pilots before pilots are submitted for them anyway."""
    secret_seconds: int = 7 * 86_400
    """How long a pilot may wait in the queue before its secret expires."""
    first_rest: float = 5.0
    """Pause after the batch system did not answer; doubled each time."""
    longest_rest: float = 300.0
    own_users: OwnUsers | None = None
    """None: all pilots run as the agent's user, and each takes the jobs of all."""
