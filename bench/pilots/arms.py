"""The arms of the experiments: who keeps which files, who waits for what, and what a failed transfer costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Caching(StrEnum):
    """Who keeps files, and who may use them."""

    NONE = "none"
    PILOT = "pilot"
    HOST = "host"
    SITE = "site"


class Submission(StrEnum):
    """How jobs come to machines."""

    DIRECT = "direct"
    """Each is a batch job of its own."""
    RUNNING = "running"
    """Pilots are there already and ask."""
    ON_DEMAND = "on demand"
    """Pilots are asked of the batch system as jobs wait."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run a workload."""

    name: str
    caching: Caching = Caching.NONE
    wait_for_data: bool = False
    look_ahead: bool = False
    restage: bool = False
    """A failed transfer is tried again; else the whole job is."""
    barrier: bool = False
    """A step's jobs are made when all jobs of the step before it have ended."""
    write_behind: bool = False
    """A file may be read from the cache before it is on the storage element."""
    parallel: bool = False
    """A job's inputs are brought at the same time; else one after the other."""
    poll: float = 0.0
    """Idle pilots ask every so many seconds; 0: the server keeps their question until there is an answer."""
    resubmit: float = 0.0
    """Seconds until a failed job waits again."""


_PAPER = Arm("paper", barrier=True, poll=10.0, resubmit=60.0)
NO_CACHE = replace(_PAPER, name="no cache")
C1 = replace(_PAPER, name="C1", caching=Caching.HOST)
C2 = replace(_PAPER, name="C2", caching=Caching.PILOT, wait_for_data=True)
C3 = replace(_PAPER, name="C3", caching=Caching.HOST, wait_for_data=True)
ALONE = replace(_PAPER, name="C2 without waitForData", caching=Caching.PILOT)
"""The paper does not say that C2 waits for data; only if it does are C2 and C3 alike in W1, as figure 12 has them."""

_OURS = Arm("ours", caching=Caching.HOST, wait_for_data=True, restage=True, parallel=True)
FLOWING = replace(C3, name="C3, no barrier", barrier=False, poll=0.0, resubmit=0.0)
"""What long polling and data-driven release bring by themselves."""
RESTAGE = replace(_OURS, name="C3, re-stage")
SITE = replace(_OURS, name="site cache", caching=Caching.SITE)
LOOK_AHEAD = replace(_OURS, name="look-ahead", look_ahead=True)
WRITE_BEHIND = replace(LOOK_AHEAD, name="write-behind", write_behind=True)

PAPER = (NO_CACHE, C1, C2, C3)
OURS = (FLOWING, RESTAGE, SITE, LOOK_AHEAD, WRITE_BEHIND)
ARMS = {arm.name: arm for arm in (*PAPER, ALONE, *OURS)}
