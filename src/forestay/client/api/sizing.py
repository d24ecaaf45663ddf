"""Computes the size of an installation for a number of jobs and pilots, from measured values.

The costs are of one core of a virtual machine, with short jobs, everything synced to the disk before it is answered; the page of benchmarks has the
runs. A plan is a beginning: measure your own at a tenth of the size before you buy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY = 86_400
OPEN_FILES = 262_144
"""Files that a server may have open as we deploy it (`LimitNOFILE`, `ulimits`): more than any plan needs with one server down, and room for the store, clients and files."""
SPARE_FILES = 10_000
"""Files that a server needs beside the sockets of pilots, at most."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load on an installation."""

    jobs_per_day: float
    pilots: int
    peak: float = 5.0
    """How many times the mean rate the busiest minutes have."""
    lease: int = 600
    """Seconds a silent pilot keeps its claims; it sends three heartbeats in that time."""
    failures: float = 0.05
    """The share of attempts that fail."""
    keep_days: int = 30
    """How long ended jobs are kept."""
    keep_incidents_days: int = 730
    """How long closed incidents are kept."""
    keep_keys_days: int = 365
    """How long idempotency keys are kept."""
    jobs_each_request: int = 100
    """Jobs of a submission, which has a key and of which the jobs share a specification."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured; core-seconds each."""

    server_job: float = 317e-6
    """From submission to the end, of a run's jobs (`just bench flow_scale`)."""
    store_job: float = 263e-6
    reconciler_job: float = 99e-6
    orchestrator_job: float = 71e-6
    temporal_job: float = 34e-6
    failure: float = 1.6e-3
    """To find, decide and answer one (`just bench storm`)."""
    heartbeat: float = 80e-6
    """`just bench control_plane`, on a machine with other work."""
    events_job: float = 0.0087
    """Events of Temporal's history (`just bench flow_scale --over 600`)."""
    bytes_job: int = 1_100
    """Of an ended job that printed 1,000 bytes and of its output's end; in OpenSearch without a copy, as all of these (`just bench retention --store opensearch`)."""
    bytes_evidence: int = 380
    """Of what is kept of a failed attempt beside its job."""
    bytes_incident: int = 3_800
    """Of a failure's incident, its status and decision, and the two steps of a rule's answer."""
    bytes_key: int = 150
    """Of a submission's idempotency key."""
    bytes_specification: int = 510
    """Of what the jobs of a submission share."""
    shard_rate: float = 1_900.0
    """Jobs a second through one shard of one node, with everything else on the same two cores (`just bench durable`)."""
    busy: float = 0.5
    """How much of a core is planned for: the rest is for bursts, compaction and one machine that is down."""
    connections: int = 20_000
    """Pilots that one server is to hold connections of."""
    sockets: int = 3
    """Connections that a pilot has."""


@dataclass(frozen=True, slots=True)
class SizingPlan:
    """What a load needs. Cores are at the peak."""

    mean: float
    """Jobs a second."""
    peak: float
    heartbeats: float
    """Heartbeats a second."""
    server_cores: float
    servers: int
    sockets: int
    """Connections of pilots that one server holds."""
    sockets_one_down: int
    """The same while one server is down and its pilots have turned to the others."""
    reconciler_cores: float
    reconcilers: int
    orchestrator_cores: float
    orchestrators: int
    store_cores: float
    store_nodes: int
    store_cores_each: int
    shards: int
    store_bytes: float
    """With one replica: jobs, incidents, keys and specifications for as long as each is kept."""
    temporal_cores: float
    temporal_events_per_day: float
    profile: str


MEASURED = Costs()


def plan(load: Load, costs: Costs = MEASURED) -> SizingPlan:
    """A pure function of the load and the costs."""
    mean = load.jobs_per_day / DAY
    peak = mean * load.peak
    attempts = peak / (1 - load.failures)
    heartbeats = load.pilots / (load.lease / 3)
    server = attempts * costs.server_job + heartbeats * costs.heartbeat
    reconciler = peak * costs.reconciler_job + attempts * load.failures * costs.failure
    orchestrator = peak * costs.orchestrator_job
    store = attempts * costs.store_job
    temporal = peak * costs.temporal_job

    def processes(cores: float) -> int:
        # Two at least, so that one may be down or on its way to a new version.
        return max(2, math.ceil(cores / costs.busy))

    servers = max(processes(server), math.ceil(load.pilots / costs.connections))
    nodes = max(3, math.ceil(store / costs.busy / 8))
    each = max(2, math.ceil(store / costs.busy / nodes))
    kept = 2 * load.jobs_per_day * bytes_each_job(load, costs)
    small = peak < 20 and load.pilots <= 200
    profile = "laptop or site" if small else "site" if peak < 500 and load.pilots <= 5_000 else "fleet"
    return SizingPlan(
        mean=mean,
        peak=peak,
        heartbeats=heartbeats,
        server_cores=server,
        servers=servers,
        sockets=math.ceil(load.pilots * costs.sockets / servers),
        sockets_one_down=math.ceil(load.pilots * costs.sockets / (servers - 1)),
        reconciler_cores=reconciler,
        reconcilers=processes(reconciler),
        orchestrator_cores=orchestrator,
        orchestrators=processes(orchestrator),
        store_cores=store,
        store_nodes=nodes,
        store_cores_each=each,
        shards=max(1, math.ceil(peak / costs.shard_rate)),
        store_bytes=kept,
        temporal_cores=temporal,
        temporal_events_per_day=load.jobs_per_day * costs.events_job,
        profile=profile,
    )


def bytes_each_job(load: Load, costs: Costs) -> float:
    """The bytes times days that a job a day takes, with its share of what is kept longer than it."""
    requests = 1 / load.jobs_each_request
    return (
        load.keep_days * (costs.bytes_job + load.failures * costs.bytes_evidence + requests * costs.bytes_specification)
        + max(load.keep_days, load.keep_incidents_days) * load.failures * costs.bytes_incident
        + max(load.keep_days, load.keep_keys_days) * requests * costs.bytes_key
    )
