"""A server that matches jobs to pilots by one of the paper's schemes, for the measurements with real processes.

    python -m bench.pilots.paper_server c2

`c1`: caches of hosts; `c2`: caches of single pilots, and jobs wait for data; `c3`: caches of hosts, and jobs wait for data. Settings are those of `forestay server`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NamedTuple

from forestay.apps.compose import server
from forestay.apps.entry import main
from forestay.domain.scheduling.matching_policy import MatchingPolicy
from forestay.services.scheduling import job_matcher
from forestay.services.scheduling.job_matcher import JobMatcher
from forestay.services.scheduling.pilot_caches import CacheReport


class Scheme(NamedTuple):
    """What a scheme of the paper knows and waits for."""

    by_pilot: bool
    """Pilots do not see their neighbours' files."""
    waits: bool
    """A job is held back while an idle pilot elsewhere has its data."""


SCHEMES = {
    "c1": Scheme(by_pilot=False, waits=False),
    "c2": Scheme(by_pilot=True, waits=True),
    "c3": Scheme(by_pilot=False, waits=True),
}


@dataclass(slots=True)
class PaperMatcher(JobMatcher):
    """Our matching without what goes beyond the paper: sites, look-ahead, and jobs put aside for busy hosts."""

    scheme: Scheme = SCHEMES["c3"]

    def __post_init__(self) -> None:
        wait = self.policy.wait if self.scheme.waits else 0.0
        self.policy = MatchingPolicy(wait=wait, quarantine=0.0)

    def told(self, pilot: str, tenant: str, host: str, site: str, report: CacheReport) -> None:
        JobMatcher.told(self, pilot, tenant, pilot if self.scheme.by_pilot else host, "", report)

    def asks(self, pilot: str, tenant: str, host: str, site: str, slots: int, free: int) -> None:
        JobMatcher.asks(self, pilot, tenant, pilot if self.scheme.by_pilot else host, "", slots, free)


if __name__ == "__main__":
    scheme = SCHEMES[sys.argv.pop(1)]
    # A paper's job waits for data that are there, not for data to come.
    setattr(job_matcher, "colocation_of", lambda _document: None)  # noqa: B010 - not a part of its interface
    setattr(server, "JobMatcher", lambda store, clock: PaperMatcher(store, clock, scheme=scheme))  # noqa: B010
    sys.argv[1:] = ["server"]
    main()
