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
    """It said good-bye, or its death was confirmed; its token is no longer good."""
    SILENT = "silent"
    """Its lease ran out. It may come back, and then it is alive again."""


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
    drain: str = ""
    """Who ordered it to take no more jobs, and why; empty while nobody did."""
    revoked: str = ""
    """Who took its right away, and why; empty while nobody did."""
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One sign of life: it counts up, and names the claims that the pilot holds."""

    counter: int
    session: int
    """Which of its channels the pilot holds open; counts up."""
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
"""Where a pilot keeps which container runtimes its machine has; missing: it did not say."""


def runtimes_of(pilot: Pilot) -> frozenset[str] | None:
    """The container runtimes of a pilot; None: it does not say."""
    named = pilot.extra.get(RUNTIMES)
    return frozenset(str(name) for name in named) if isinstance(named, list | tuple) else None


FEATURES = "features"
"""Where a pilot keeps what its machine is: its system, its processor, what its site says of it."""
DEVICES = "devices"
"""Where a pilot keeps the accelerators that its jobs are bound to."""


HOST = "host"


class PilotClass(NamedTuple):
    """What requirements can ask of a pilot. Pilots that differ only in their host are of one class, and each requirement is evaluated once for it."""

    id: str
    facts: Mapping[str, object]


def pilot_class(pilot: Pilot) -> PilotClass:
    """The class of a pilot. Of devices that differ the first one counts, and ``gpu.models`` has all of them."""
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
    return PilotClass(sha256(shared.encode()).hexdigest()[:32], facts)


def without_containers(pilots: Sequence[Pilot], wanted: frozenset[str]) -> frozenset[str] | None:
    """The hosts whose pilots have none of the wanted runtimes; None where no pilot at all has one, as far as they say."""
    able = {pilot.host for pilot in pilots if (named := runtimes_of(pilot)) is None or not wanted.isdisjoint(named)}
    return frozenset(pilot.host for pilot in pilots if pilot.host not in able) if able else None


RELAY = "tes:"
"""How the site of a relay begins: it takes the place of a pilot, and carries jobs to the task server that is named behind it."""


CALLS_BACK = "calls_back"
"""Where a relay's entry says whether its task server is asked to call back when a task has ended."""


def carries(pilot: Pilot, downstream: str) -> bool:
    """Whether jobs that are meant for a downstream, or for none, may be this pilot's."""
    if not pilot.site.startswith(RELAY):
        return not downstream
    return downstream in (ANY_DOWNSTREAM, pilot.site.removeprefix(RELAY))


def newest_heartbeats(heartbeat_pages: Iterable[HeartbeatPage]) -> dict[str, Heartbeat]:
    """Each pilot's newest heartbeat over all heartbeat pages: the highest counter and the highest session."""
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
