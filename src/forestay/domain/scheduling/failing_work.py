"""Work that fails fast on a host: which other work precedes it there, and how often it is still tried.

Doubt concerns a specification, or an owner whose different specifications fail, on one host. It does not slow down the work of others there. Work that fails on several
hosts is given out when no other work needs the slot; work that fails on one host only is kept away from that host, which may be the cause. Either is tried there now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from forestay.domain.scheduling.host_health import HealthPolicy


class SlotTurn(IntEnum):
    """When a job may get a free slot of a host."""

    NOW = 0
    AFTER_OTHERS = 1
    """When no other work needs the slot."""
    NOT_HERE = 2
    """Another host may get it; this one not before its next try."""


@dataclass(slots=True)
class FailingWork:
    """Fast failures on one host since work of the same specification or owner last succeeded there."""

    failures: int = 0
    last: int = 0
    """When it last failed or was tried, in milliseconds since 1970."""
    specifications: set[str] = field(default_factory=set)

    def note(self, specification: str, now: int) -> None:
        self.failures += 1
        self.last = now
        if len(self.specifications) < 2:
            self.specifications.add(specification)


def keys(owner: str, specification: str) -> tuple[str, str]:
    """The names under which failing work is recorded."""
    return f"specification {specification}", f"owner {owner}"


def doubted(key: str, work: FailingWork, policy: HealthPolicy) -> bool:
    """Whether it has failed too often. An owner is judged only by different specifications."""
    return work.failures >= policy.most and (key.startswith("specification ") or len(work.specifications) > 1)


def turn(
    works: Mapping[str, FailingWork], names: Iterable[str], everywhere: Iterable[str], now: int, policy: HealthPolicy
) -> SlotTurn:
    """When a job with these names may get a slot of the host; `everywhere` are the names that fail on several hosts."""
    worst = SlotTurn.NOW
    for key in names:
        work = works.get(key)
        if work is None or not doubted(key, work, policy) or now - work.last >= 1000 * policy.doubt:
            continue
        worst = max(worst, SlotTurn.AFTER_OTHERS if key in everywhere else SlotTurn.NOT_HERE)
    return worst


def explained_work(
    works: Mapping[str, FailingWork], everywhere: Iterable[str], policy: HealthPolicy, most: int = 3
) -> str:
    """The measures against failing work on a host, in words; empty if there are none."""
    found = {key: work for key, work in works.items() if doubted(key, work, policy)}
    parts = []
    for key, work in list(found.items())[:most]:
        how = "only when no other job waits" if key in everywhere else "not here"
        name = key if key.startswith("owner") else key[: len("specification ") + 12]
        parts.append(f"{name}: {work.failures} fast failures, {how}, and one every {policy.doubt} s")
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(parts) + more
