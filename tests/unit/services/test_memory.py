"""What long-lived services keep in memory is bounded, or tied to the life of something.

Containers that are attributes of services are found in the syntax tree. One is bounded by its type (`Recent`, `deque(maxlen=…)`, a weak dictionary), or its module takes entries out of it
(`pop`, `del`, `discard`, `&=`, a new container, …), or it is in `REASONS`. That a module takes entries out says that somebody thought of it, not that it suffices: the tests of the
services say that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "forestay"
LONG_LIVED = ("services", "adapters", "apps/server", "apps/compose", "domain/scheduling")
NOT_LONG_LIVED = ("adapters/temporal/workflows",)
"""These live as long as a workflow; Temporal limits its history."""
GROWING = frozenset({"dict", "set", "list", "defaultdict", "OrderedDict", "Counter", "deque"})
SHRINKS = frozenset(
    {"pop", "popitem", "popleft", "discard", "remove", "clear", "difference_update", "intersection_update"}
)
TENANTS = "one entry for each tenant, which the operator names"
CONFIGURED = "from the settings; it does not change"
REQUEST = "lives as long as one request or one pass"
WIRING = "listeners that the process adds when it is built"
PEERS = "one entry for each domain, of which there are at most 1,000"
RULE_SETS = "one entry for each rule set in the store: every process has all of them"
REASONS = {
    "adapters/cel/conditions.py:CelConditions._compiled": "the oldest is dropped by `_keep`",
    "adapters/cel/conditions.py:CelConditions._refused": "the oldest is dropped by `_keep`",
    "adapters/cel/conditions.py:CelConditions._used": "the names of fields that conditions may read, of which there is a fixed list",
    "adapters/joserfc/identity.py:SignedIdentity._keys": CONFIGURED,
    "adapters/kubernetes/batch.py:KubernetesBatch._cancelled": "the oldest is dropped by `_remember`",
    "adapters/kubernetes/batch.py:KubernetesBatch._seen": "the oldest is dropped by `_remember`",
    "adapters/opensearch/cluster.py:Cluster._write_params": CONFIGURED,
    "adapters/opensearch/hosts.py:Hosts._hosts": CONFIGURED,
    "adapters/psij/batch.py:PsijSubmitter._environment": CONFIGURED,
    "adapters/psij/unwatched.py:Unwatched.environment": CONFIGURED,
    "adapters/sql/rows.py:_Pattern.values": REQUEST,
    "adapters/system/external_source.py:CommandSource._environment": CONFIGURED,
    "adapters/system/file_digests.py:SharedFileDigests.roots": CONFIGURED,
    "adapters/system/file_lists.py:SharedFiles.hidden": CONFIGURED,
    "adapters/system/file_lists.py:SharedFiles.roots": CONFIGURED,
    "adapters/system/results.py:SharedResults.roots": CONFIGURED,
    "adapters/temporal/codec.py:SealedPayloads._keys": CONFIGURED,
    "apps/compose/proxies.py:ProxyComponents.keeping": WIRING,
    "apps/compose/proxies.py:ProxyComponents.relays": WIRING,
    "apps/compose/site.py:SiteComponents._sizes": CONFIGURED,
    "apps/server/http/answers.py:ProblemOut.errors": REQUEST,
    "apps/server/http/request_context.py:RequestContext.logged": "the route that fills it drops the oldest (apps/server/jobs/job_log.py)",
    "apps/server/http/request_context.py:RequestContext.logs": "one entry for each log that is being followed (apps/server/jobs/job_log.py)",
    "apps/server/http/router.py:Route.methods": WIRING,
    "domain/scheduling/cache_domains.py:CacheDomain.held": "jobs that wait for a pilot of this domain, and leave when they are taken",
    "domain/scheduling/cache_domains.py:CacheDomain.idle": "jobs that wait, and leave when they are taken",
    "domain/scheduling/cache_domains.py:CacheDomain.quarantine": "jobs that wait, and leave when they are taken",
    "domain/scheduling/delay_scheduling.py:DelayScheduler._deadlines": "a heap of one entry for each job that waits",
    "domain/scheduling/host_health.py:FailingWork.specifications": "specifications that fail on many hosts; the tracker drops the oldest work",
    "domain/scheduling/matching.py:Matching._sites": "one entry for each site, which the operator names",
    "domain/scheduling/waiting_jobs.py:Queue.order": "a heap of the jobs that wait, out of which they are taken",
    "domain/scheduling/waiting_jobs.py:_FileWaiters.jobs": "jobs that wait; half of the list at most has left",
    "domain/scheduling/waiting_jobs.py:Queue.quarantine": "jobs that wait, and leave when they are taken",
    "services/data/listings.py:_Seen.names": "2,000,000 names in all listings together (CACHED_NAMES)",
    "services/exceptions/act/engine_actions.py:EngineActions.retry_policies": CONFIGURED,
    "services/exceptions/act/job_actions.py:JobAction.notes": REQUEST,
    "services/exceptions/act/job_actions.py:JobActions.retry_policies": CONFIGURED,
    "services/exceptions/act/playbook_runner.py:PlaybookRunner.others": WIRING,
    "services/exceptions/detect/external_values.py:ExternalValues._known": CONFIGURED,
    "services/exceptions/inbox/error_teacher.py:PatternTrial.examples": REQUEST,
    "services/exceptions/inbox/error_teacher.py:PatternTrial.problems": REQUEST,
    "services/exceptions/inbox/error_teacher.py:PatternTrial.unknown": REQUEST,
    "services/exceptions/inbox/error_teacher.py:PatternTrial.wrong": REQUEST,
    "services/exceptions/record/audit_log.py:AuditLog._heads": TENANTS,
    "services/exceptions/record/audit_log.py:AuditLog._waiting": "requests that wait for one write",
    "services/flows/dry_runner.py:_KnownRun.counts": REQUEST,
    "services/flows/dry_runner.py:_KnownRun.done": REQUEST,
    "services/flows/dry_runner.py:_KnownRun.reused": REQUEST,
    "services/flows/dry_runner.py:_KnownRun.scattered": REQUEST,
    "services/flows/result_reuse.py:_Digests._made": REQUEST,
    "services/flows/result_reuse.py:_Digests._paths": REQUEST,
    "services/flows/run_liveness.py:RunLiveness._known": REQUEST,
    "services/flows/run_liveness.py:RunLiveness._open_since": REQUEST,
    "services/insertion/wes_run_starter.py:InvalidFlow.problems": REQUEST,
    "services/insertion/wes_runs.py:WesRuns._counts": TENANTS,
    "services/jobs/first_claims.py:FirstClaims._dropped": REQUEST,
    "services/jobs/first_claims.py:FirstClaims.status": REQUEST,
    "services/jobs/first_claims.py:FirstClaims.strays": REQUEST,
    "services/operations/store_pruner.py:StorePruner.removed": "one number for each part of the retention",
    "services/operations/token_revocations.py:TokenRevocations._people": "one entry for each person whose tokens were revoked, of which there are as many in the store",
    "services/operations/usage_history.py:FailedJobOutcomes.came": REQUEST,
    "services/peers/peer_capacity.py:PeerCapacity._known": TENANTS,
    "services/peers/peer_poller.py:PeerPoller._asking": PEERS,
    "services/peers/run_placement.py:RunPlacement._sent": PEERS,
    "services/pilots/input_counter.py:InputCounter._tenants": TENANTS,
    "services/pilots/heartbeats.py:Heartbeats._buckets": "a fixed number of them",
    "services/rules/replayed_sets.py:ReplayedSets._for": REQUEST,
    "services/rules/replayed_sets.py:ReplayedSets._ready": REQUEST,
    "services/rules/replayed_sets.py:ReplayedSets.named": REQUEST,
    "services/rules/rule_store.py:RuleCache._set_indexes": RULE_SETS,
    "services/rules/rule_store.py:RuleCache._sets": RULE_SETS,
    "services/rules/rule_store.py:RuleStore._known": RULE_SETS,
    "services/scheduling/candidate_buffers.py:CandidateBuffers._looking": "two entries",
    "services/scheduling/host_health_tracker.py:HostHealthTracker._tenants": TENANTS,
    "services/scheduling/node_check_failures.py:NodeCheckFailures.listeners": WIRING,
    "services/scheduling/pilot_caches.py:PilotCaches._cache_index": "what cached pilots announced; a pilot's entry is dropped with it",
    "services/scheduling/pilot_caches.py:PilotCaches.listeners": WIRING,
    "services/scheduling/requirement_matcher.py:RequirementMatcher._alive": TENANTS,
    "services/shared/checked_writer.py:CheckedWriter.listeners": WIRING,
    "services/shared/store_errors.py:StoreErrors._reported": "one entry for each operation of a store",
    "services/shared/store_errors.py:StoreErrors.counts": "one entry for each operation of a store",
    "services/sites/demand_meter.py:DemandMeter._counted": "one entry for each site of a tenant",
    "services/sites/demand_meter.py:DemandMeter._queues": TENANTS,
}  # fmt: skip


class Kept(NamedTuple):
    """A container that is an attribute of a class."""

    module: str
    owner: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.owner}.{self.name}"


def _grows(node: ast.expr | None) -> bool:
    """Whether an expression makes a container without a bound."""
    if isinstance(node, ast.Dict | ast.DictComp | ast.Set | ast.SetComp | ast.List | ast.ListComp):
        return True
    if not isinstance(node, ast.Call):
        return False
    made = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    name = made.id if isinstance(made, ast.Name) else ""
    if name == "field":
        factory = next((keyword.value for keyword in node.keywords if keyword.arg == "default_factory"), None)
        if isinstance(factory, ast.Lambda):
            return _grows(factory.body)
        factory = factory.value if isinstance(factory, ast.Subscript) else factory
        return isinstance(factory, ast.Name) and factory.id in GROWING
    return name in GROWING and not (name == "deque" and any(keyword.arg == "maxlen" for keyword in node.keywords))


def _attribute(node: ast.AST, owner: ast.ClassDef) -> str:
    """The attribute that a statement sets: of the class, or of `self`."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or not _grows(node.value):
        return ""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    if isinstance(target, ast.Name) and node in owner.body:
        return target.id
    own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
    return target.attr if own and isinstance(target, ast.Attribute) else ""


def _named(node: ast.AST) -> str:
    """The attribute that an expression is about."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else ""


def _shrunk(tree: ast.AST) -> set[str]:
    """The attributes out of which a module takes entries."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in SHRINKS:
            names.add(_named(node.value))
        elif isinstance(node, ast.Delete):
            names |= {_named(target) for target in node.targets}
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitAnd | ast.Sub):
            names.add(_named(node.target))
    # A new container in place of the old one, outside of where the object is made.
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "__init__":
            for node in ast.walk(function):
                targets = node.targets if isinstance(node, ast.Assign) else []
                for target in targets:
                    for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                        names |= {_named(part)} if isinstance(part, ast.Attribute) else set()
    return names


def _kept(tree: ast.AST, module: str) -> Iterator[tuple[Kept, bool]]:
    """The containers of a module's classes, and whether entries are taken out of them."""
    shrunk = _shrunk(tree)
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef) or any("frozen=True" in ast.unparse(by) for by in owner.decorator_list):
            continue
        names = {name for node in ast.walk(owner) if (name := _attribute(node, owner))}
        yield from ((Kept(module, owner.name, name), name in shrunk) for name in sorted(names))


def _all() -> Iterator[tuple[Kept, bool]]:
    for folder in LONG_LIVED:
        for path in sorted((SOURCE / folder).rglob("*.py")):
            module = path.relative_to(SOURCE).as_posix()
            if not module.startswith(NOT_LONG_LIVED):
                yield from _kept(ast.parse(path.read_text()), module)


def test_every_container_of_a_service_is_bounded_or_has_a_reason() -> None:
    unbounded = {str(kept) for kept, shrunk in _all() if not shrunk}
    assert unbounded - REASONS.keys() == set(), "bound these (`services.shared.recent`), or say why they do not grow"
    assert REASONS.keys() - unbounded == set(), "these are bounded, or gone"


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("_a: dict[str, int] = field(default_factory=dict)", False),
        ("_a: Recent[str, int] = field(default_factory=lambda: Recent(9))", None),
        ("_a: deque[int] = field(default_factory=lambda: deque(maxlen=3))", None),
        ("_a: deque[int] = field(default_factory=deque)", False),
        ("_a: set[str] = field(default_factory=set)\n    def f(self): self._a.discard(1)", True),
        ("_a: dict[str, int] = {}\n    def f(self): del self._a[1]", True),
        ("def __init__(self): self._a = []\n    def f(self): self._a.append(1)", False),
        ("def __init__(self): self._a = []\n    def f(self): self._a = self._a[-9:]", True),
    ],
)
def test_what_grows_is_seen(text: str, bounded: bool | None) -> None:
    text = text.replace("\\\n", "\n")
    found = list(_kept(ast.parse(f"class Service:\n    {text}\n"), "m.py"))
    assert found == ([] if bounded is None else [(Kept("m.py", "Service", "_a"), bounded)])
