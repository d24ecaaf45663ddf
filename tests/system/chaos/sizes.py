"""How large a campaign is, what is done in it, and which figures it must reach."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Act:
    """One part of a campaign: which faults may happen in it, and for how long."""

    name: str
    seconds: float
    rest: float = 0.0
    """Seconds without new faults after it, for everything to come back."""


@dataclass(frozen=True, slots=True)
class Size:
    """One size of the campaign."""

    name: str
    jobs: int
    pilots: int
    servers: int
    reconcilers: int
    tenants: int
    lease: int
    batch: int
    """Jobs of one submission."""
    short: tuple[float, float]
    """Seconds that a short job takes, from and to."""
    long: tuple[float, float]
    long_share: float
    failing_share: float = 0.03
    """Jobs whose first attempt fails and whose next one does not."""
    broken_share: float = 0.005
    """Jobs that always fail."""
    kill_every: float = 4.0
    """Seconds between kills of pilots in acts that have them."""
    stopped_at_once: int = 3
    """Pilots that fall silent together; well below what alarms the orphan watch."""
    acts: tuple[Act, ...] = ()
    quiet: float = 300.0
    """Seconds without a job that becomes final, once the faults are over, after which the rest is lost."""
    heap: str = "512m"
    death_limit: float = 1.0
    """Seconds from the kill of a pilot to the release of its jobs, at most."""
    silence_limit: float | None = None
    """The same when it falls silent, in leases; none where the lease is too short for the promise."""

    @property
    def replicas(self) -> int:
        """With one replica everything stands on one copy after a kill, and writes wait for the second."""
        return 2


SMALL = Size(
    name="small",
    jobs=600,
    pilots=8,
    servers=2,
    reconcilers=1,
    tenants=2,
    lease=15,
    batch=50,
    short=(0.1, 0.8),
    long=(10.0, 25.0),
    long_share=0.05,
    kill_every=3.0,
    stopped_at_once=2,
    acts=(
        Act("pilots", 40),
        Act("store frozen", 15, rest=5),
        Act("store cut off", 10, rest=5),
        Act("services", 25),
        Act("nodes", 20),
    ),
    quiet=90.0,
    heap="384m",
    # The machine of the continuous integration starts three nodes just before; the promise is judged by the full size.
    death_limit=2.0,
)

FULL = Size(
    name="full",
    jobs=10_000,
    pilots=40,
    servers=3,
    reconcilers=2,
    tenants=3,
    lease=60,
    batch=100,
    short=(0.2, 1.5),
    long=(30.0, 120.0),
    long_share=0.02,
    stopped_at_once=4,
    acts=(
        Act("pilots", 180),
        Act("services", 180),
        Act("nodes", 210),
        Act("store frozen", 60, rest=30),
        Act("store cut off", 60, rest=30),
        Act("store errors", 60, rest=30),
        Act("no server", 20, rest=15),
        Act("storm", 90),
    ),
    quiet=300.0,
    silence_limit=1.25,
)

RELEASE = replace(
    FULL, name="release", jobs=100_000, batch=500, short=(0.05, 0.6), long_share=0.005, acts=FULL.acts * 4, quiet=600.0
)
"""What is asked of a release. Its jobs are shorter, so that 45 slots on two cores are through in an hour and a half. Each kind of outage, and errors of the store, come four times."""

SIZES = {size.name: size for size in (SMALL, FULL, RELEASE)}
