"""Jobs that fail in known ways on a real batch system, and what `forestay try` says of them held against the truth.

Each job writes a heartbeat twice a second, so that the time for which it ran is known without asking the batch system.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forestay.domain.exceptions.evidence.past_attempt import PastAttempt
from forestay.formats.accounting.lookback import PastCauses
from forestay.formats.rules.pack_folder import shipped_packs

SECONDS = 60
"""For which a job runs before it fails: accounting has whole seconds, and 5 % of it is 3."""
BEAT = "(while :; do date +%s.%N >> {beat}; sleep 0.5; done) & beat=$!; trap 'kill $beat' EXIT;"
WAIT = f"sleep {SECONDS}"


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """Jobs that fail in one way."""

    name: str
    command: str
    acceptable: frozenset[str]
    options: tuple[str, ...] = ()
    cores: int = 1
    many: int = 1


def held(beat: Path) -> float:
    """Seconds between the first and the last heartbeat, and the half beat on either side."""
    times = [float(line) for line in beat.read_text().split()]
    return times[-1] - times[0] + 0.5


def hold_to_truth(attempts: Iterable[PastAttempt], jobs: Mapping[str, tuple[KnownFailure, int]], folder: Path) -> None:
    """At least 85 % of the causes are acceptable, and the core-hours are within 5 % of the heartbeats'."""
    causes = PastCauses(shipped_packs().classifier())
    judged = right = 0
    truth = measured = 0.0
    for attempt in attempts:
        kind, number = jobs[attempt.id]
        seconds = held(folder / f"{kind.name}-{number}.beat")
        if not kind.acceptable:
            assert attempt.state == "succeeded", attempt
            continue
        assert attempt.evidence is not None, attempt
        finding = causes.of(attempt.evidence)
        good = str(finding.cause) in kind.acceptable
        _say(
            f"{kind.name:10} {attempt.evidence.scheduler_state:14} {finding.cause!s:13} {finding.confidence:.2f} "
            f"{'' if good else 'WRONG'} {attempt.cores:g} × {attempt.seconds:g} s, truth {kind.cores} × {seconds:.1f} s"
        )
        judged += 1
        right += good
        truth += kind.cores * seconds
        measured += attempt.cores * attempt.seconds
    _say(f"causes: {right} of {judged} acceptable; core-hours {measured / 3600:.3f}, truth {truth / 3600:.3f}")
    assert judged == sum(1 for kind, _ in jobs.values() if kind.acceptable)
    assert right / judged >= 0.85
    assert abs(measured - truth) <= 0.05 * truth


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
