"""What the operator of a site has configured for its agent."""

from __future__ import annotations

from dataclasses import dataclass, field

from forestay.domain.sites.fleet import PilotSize, SubmissionPace, Thresholds


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """How the pilots of a site are kept. Times are in seconds."""

    thresholds: Thresholds
    sizes: tuple[PilotSize, ...]
    pace: SubmissionPace = field(default_factory=SubmissionPace)
    every: float = 10.0
    """Between looks."""
    settle: float = 120.0
    """How long a submission that an agent did not survive may still arrive at the batch system."""
    idle_patience: float = 60.0
    """How long tasks may wait beside idle pilots before pilots are sent for them all the same."""
    secret_seconds: int = 7 * 86_400
    """How long a pilot may wait at the scheduler before its secret is no longer good."""
    first_rest: float = 5.0
    """After the batch system did not answer; doubled each time."""
    longest_rest: float = 300.0
