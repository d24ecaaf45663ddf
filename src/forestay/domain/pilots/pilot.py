"""A pilot, its heartbeats, and the heartbeat pages in which a server stores those of many pilots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from forestay.domain.jobs.job_document import ANY_DOWNSTREAM
from forestay.domain.jobs.resources import Resources


class PilotState(StrEnum):
    """The state of a pilot at the servers."""

    ALIVE = "alive"
    GONE = "gone"
    """It signed off, or its death was confirmed; its token is no longer valid."""
    SILENT = "silent"
    """Its lease has expired. It may come back, and is then alive again."""


@dataclass(frozen=True, slots=True)
class Pilot:
    """A process in a batch allocation that pulls jobs."""

    id: str
    tenant: str
    host: str
    site: str
    slots: int
    resources: Resources
    lease: int
    """Seconds."""
    registered: int
    state: PilotState = PilotState.ALIVE
    changed: int = 0
    batch_job: str | None = None
    version: str = ""
    note: str = ""
    launch: str = ""
    """Which launch of its site's agent it came by; empty for none."""
    owner: str = ""
    """The one owner whose jobs it may have, as whose Unix user it runs; empty: a pilot for the jobs of all."""
    drain: str = ""
    """Who ordered it to take no more jobs, and why; empty if nobody has."""
    revoked: str = ""
    """Who revoked its access, and why; empty if nobody has."""
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One sign of life: it counts up, and names the claims that the pilot holds."""

    counter: int
    session: int
    """The number of the channel that the pilot holds open; counts up."""
    lease: int
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeartbeatPage:
    """The newest heartbeats that one server took, for one bucket of pilots; only that server writes it."""

    server: str
    bucket: int
    counter: int
    """The server's own heartbeat."""
    url: str
    heartbeats: Mapping[str, Heartbeat]


RUNTIMES = "runtimes"
"""The field of a pilot for the container runtimes of its machine; missing: not reported."""


def runtimes_of(pilot: Pilot) -> frozenset[str] | None:
    """The container runtimes of a pilot; None: not reported."""
    named = pilot.extra.get(RUNTIMES)
    return frozenset(str(name) for name in named) if isinstance(named, list | tuple) else None


FEATURES = "features"
"""The field of a pilot for the features of its machine: its system, its processor, what its site declares."""
DEVICES = "devices"
"""The field of a pilot for the accelerators that its jobs are bound to."""


HOST = "host"


class PilotClass(NamedTuple):
    """What requirements can ask of a pilot. Pilots that differ only in their host are of one class, and each requirement is evaluated once for it."""

    id: str
    facts: Mapping[str, object]
    resources: Resources = Resources()


def pilot_class(pilot: Pilot) -> PilotClass:
    """The class of a pilot. If its devices differ, the first one counts, and ``gpu.models`` lists all of them."""
    named = pilot.extra.get(FEATURES)
    features = {str(name): str(value) for name, value in named.items()} if isinstance(named, Mapping) else {}
    given = pilot.extra.get(DEVICES)
    devices = [device for device in given if isinstance(device, Mapping)] if isinstance(given, Sequence) else []
    first = devices[0] if devices else {}
    memory = first.get("memory", 0)
    facts: dict[str, object] = {
        "os": features.get("os", ""),
        "arch": features.get("arch", ""),
        "host": pilot.host,
        "site": pilot.site,
        "cpus": pilot.resources.cpus,
        "memory": pilot.resources.memory,
        "disk": pilot.resources.disk,
        "gpu.count": pilot.resources.gpus,
        "gpu.model": str(first.get("model", "")),
        "gpu.models": sorted({str(device.get("model", "")) for device in devices}),
        "gpu.vendor": str(first.get("vendor", "")),
        "gpu.memory": memory if isinstance(memory, int) else 0,
        "features": features,
    }
    shared = repr(sorted((name, value) for name, value in facts.items() if name != HOST))
    return PilotClass(sha256(shared.encode()).hexdigest()[:32], facts, pilot.resources)


def without_containers(pilots: Sequence[Pilot], wanted: frozenset[str]) -> frozenset[str] | None:
    """The hosts whose pilots have none of the required runtimes; None if no pilot at all reports one."""
    able = {pilot.host for pilot in pilots if (named := runtimes_of(pilot)) is None or not wanted.isdisjoint(named)}
    return frozenset(pilot.host for pilot in pilots if pilot.host not in able) if able else None


RELAY = "tes:"
"""The prefix of a relay's site: a relay acts as a pilot, and sends jobs to the task server named after the prefix."""


CALLS_BACK = "calls_back"
"""The field of a relay's entry for whether its task server is asked to call back when a task has ended."""


def carries(pilot: Pilot, downstream: str) -> bool:
    """Whether this pilot may take jobs for a downstream, or for none."""
    if not pilot.site.startswith(RELAY):
        return not downstream
    return downstream in (ANY_DOWNSTREAM, pilot.site.removeprefix(RELAY))


def newest_heartbeats(heartbeat_pages: Iterable[HeartbeatPage]) -> dict[str, Heartbeat]:
    """Each pilot's newest heartbeat in all heartbeat pages: the highest counter and the highest session."""
    newest: dict[str, Heartbeat] = {}
    for heartbeat_page in heartbeat_pages:
        for pilot, heartbeat in heartbeat_page.heartbeats.items():
            known = newest.get(pilot)
            if known is None or (heartbeat.counter, heartbeat.session) > (known.counter, known.session):
                newest[pilot] = heartbeat
    return newest


def newest_session(heartbeat_pages: Iterable[HeartbeatPage], pilot: str) -> int:
    """The highest channel session that any server has stored for a pilot; 0 for none."""
    return max(
        (
            heartbeat_page.heartbeats[pilot].session
            for heartbeat_page in heartbeat_pages
            if pilot in heartbeat_page.heartbeats
        ),
        default=0,
    )
