"""What one cell of the insertion matrix comes to: what a user met with Forestay in front of Slurm, against what they met without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

UNSEEN, SEEN, NOT_RECOVERED, HARM = "unseen", "seen", "not recovered", "harm"


@dataclass(frozen=True, slots=True)
class Met:
    """What a user met in one arm."""

    good: bool
    """The command, the flow or the job ended well for its user."""
    shown: str
    """How it ended, in the words of the command or of Slurm."""
    alarms: tuple[str, ...] = ()
    """Failed states and error lines that were shown on the way, whatever came of it."""
    alarm_at: float = float("inf")
    """When the first of them was shown."""
    starts: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """When each part began, each time."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """How often each part came to its good end."""
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """For the table of results."""
        return {
            "good": self.good,
            "told": self.shown,
            "alarms": list(self.alarms),
            "starts": {part: len(times) for part, times in sorted(self.starts.items())},
            "ends": dict(sorted(self.ends.items())),
            "seconds": round(self.seconds),
        }


def harms(bare: Met, ours: Met) -> list[str]:
    """Everything that is worse than without us."""
    found = []
    if bare.good and not ours.good:
        found.append(f"succeeds without Forestay, not with it: {ours.shown}")
    if ours.good:
        found += [
            f"part {part} never completed, and its user saw success"
            for part in sorted(ours.starts.keys() - ours.ends.keys())
        ]
    for part, count in sorted(ours.ends.items()):
        if count > max(1, bare.ends.get(part, 0)):
            found.append(f"part {part} had completed and ran again")
    for part, times in sorted(ours.starts.items()):
        late = [at for at in times if at > ours.alarm_at]
        first = min(bare.starts.get(part, (0.0,)))
        # A batch system that runs a job again by itself, when a node is lost, does so in both arms.
        expected = [at for at in bare.starts.get(part, ()) if at > bare.alarm_at and at > first]
        if len(times) > 1 and len(late) > len(expected):
            found.append(f"part {part} ran again after its user was told of a failure")
    if not ours.good:
        for part, times in sorted(ours.starts.items()):
            if len(times) > max(1, len(bare.starts.get(part, ()))):
                found.append(f"part {part} ran {len(times)} times for a user who saw a failure in the end")
    return found


def verdict(bare: Met, ours: Met) -> str:
    """One word for the cell."""
    if harms(bare, ours):
        return HARM
    if not ours.good:
        return NOT_RECOVERED
    return SEEN if ours.alarms else UNSEEN
