"""What the operator of a site has configured for its agent."""

from __future__ import annotations

from dataclasses import dataclass, field

from forestay.domain.sites.fleet import PilotSize, SubmissionPace, Thresholds


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
