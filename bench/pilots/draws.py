"""What chance brings, drawn from the seed by job and operation.

All arms of an experiment meet the same luck: how long job 17 computes, how long its third try at writing takes and whether that try fails are functions
of the seed alone, whoever runs the job and when. So an arm can be held against the best that anyone could have done with that luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from statistics import NormalDist

_MASK = (1 << 64) - 1
_normal = NormalDist().inv_cdf

COMPUTE, WRITE, READ, ORDER, QUEUE, NEWS = 0, 1, 2, 900, 901, 902
"""What is drawn: computing, writing the output, reading the first input (the next input is one more), and what a batch system adds."""


def uniform(seed: int, job: int, what: int, again: int) -> float:
    """A number between 0 and 1, neither included (the mixing steps of splitmix64)."""
    mixed = (
        seed * 0x9E3779B97F4A7C15 + job * 0xBF58476D1CE4E5B9 + what * 0x94D049BB133111EB + again * 0xD6E8FEB86659FD93
    ) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    mixed ^= mixed >> 31
    return ((mixed >> 11) + 0.5) * 2.0**-53


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage element under load, and the other ways to a file."""

    delay: float = 0.01
    """The paper's delay factor: the share of a job's computing time that one access takes longer."""
    failure: float = 0.0
    """How likely one access fails. It fails at its end, so it costs as much as one that does well."""
    rate: float = 50e6
    """Bytes a second of one stream from or to the storage element."""
    local: float = 500e6
    """Bytes a second from the host's own disk."""
    peer: float = 110e6
    """Bytes a second from another host of the site."""


CONDITIONS = {
    "d1f1": Storage(0.01, 0.0),
    "d2f2": Storage(0.15, 0.03),
    "d3f1": Storage(0.50, 0.0),
    "d3f3": Storage(0.50, 0.10),
}


@dataclass(frozen=True, slots=True)
class Draws:
    """The luck of one run."""

    seed: int
    storage: Storage
    computing: float = 1000.0
    """Mean seconds that a job computes."""
    spread: float = 0.05
    """Standard deviation of computing and of access, as a share of their means."""

    def compute(self, job: int, mean: float | None = None) -> float:
        return _gauss(uniform(self.seed, job, COMPUTE, 0), self.computing if mean is None else mean, self.spread)

    def access(self, job: int, what: int, again: int, size: int) -> tuple[float, bool]:
        """How long one try at one access takes, and whether it does well."""
        storage = self.storage
        mean = size / storage.rate + storage.delay * self.computing
        took = _gauss(uniform(self.seed, job, 2 * what + 1000, again), mean, self.spread)
        well = storage.failure == 0.0 or uniform(self.seed, job, 2 * what + 1001, again) >= storage.failure
        return took, well

    def until_well(self, job: int, what: int, size: int) -> tuple[float, int]:
        """How long all tries at one access take until one does well, and how many there are."""
        total, again = 0.0, 0
        while True:
            took, well = self.access(job, what, again, size)
            total += took
            again += 1
            if well:
                return total, again

    def exponential(self, job: int, what: int, again: int, mean: float) -> float:
        return -mean * log(uniform(self.seed, job, what, again)) if mean else 0.0


def _gauss(u: float, mean: float, spread: float) -> float:
    return mean * max(0.05, 1.0 + spread * _normal(u)) if spread else mean
