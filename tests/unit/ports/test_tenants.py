"""Every query carries its tenant: each method of a store's port takes one, and each call names one.

What looks after every tenant is on a list, with its reason. No route is: what a caller asks for is always of the caller's tenant.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from forestay.ports.data.catalogue import Catalogue
from forestay.ports.documents import DocumentStore
from forestay.ports.exceptions.audit import AuditStore
from forestay.ports.exceptions.incident_store import IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.pilots.pilot_store import PilotStore

PORTS = (JobStore, DocumentStore, PilotStore, IncidentStore, AuditStore, Catalogue)
BY_NAME = "by an id that cannot be guessed; what is read says its tenant, and the caller compares"
OF_INCIDENT = "by the id of an incident whose tenant was compared"
WITHOUT_TENANT = {
    "JobStore.open": "opens the store",
    "JobStore.close": "closes it",
    "JobStore.refresh": "reads and writes nothing",
    "JobStore.get": BY_NAME,
    "JobStore.get_specifications": "by a digest of the content and the tenant",
    "JobStore.get_record": "by a name that is made of the tenant, or of an id that cannot be guessed",
    "DocumentStore.get": "by a name that is made of the tenant, or of an id that cannot be guessed",
    "PilotStore.get_pilot": BY_NAME,
    "PilotStore.put_heartbeat_page": "one page has the pilots of a server, whosever they are",
    "PilotStore.heartbeat_pages": "one page has the pilots of a server, whosever they are",
    "PilotStore.drop_heartbeat_pages": "by the name of a server",
    "PilotStore.drop_gone": "the retention of a domain, whosever they are",
    "JobStore.drop_records": "the retention of a domain, whosever they are",
    "JobStore.unused_specifications": "the retention of a domain, whosever they are",
    "JobStore.note_use": "by a digest of the content and the tenant",
    "JobStore.remove_specifications": "by a digest of the content and the tenant",
    "AuditStore.tenants": "the retention of a domain, whosever they are",
    "DocumentStore.kinds": "the retention of a domain, whosever they are",
    "IncidentStore.get_incidents": BY_NAME,
    "IncidentStore.get_statuses": BY_NAME,
    "IncidentStore.get_decision": OF_INCIDENT,
    "IncidentStore.get_decisions": OF_INCIDENT,
    "IncidentStore.decisions_of": OF_INCIDENT,
    "IncidentStore.decisions": OF_INCIDENT,
    "IncidentStore.get_steps": OF_INCIDENT,
    "IncidentStore.steps": OF_INCIDENT,
    "IncidentStore.refresh": "reads and writes nothing",
}
LOOP = "a loop of the reconciler or of a server that does its duty for all tenants"
FOR_ALL = {
    "apps/operations/prune.py": "an operator's command with access to the store itself",
    "services/exceptions/act/incident_closer.py": LOOP,
    "services/exceptions/act/output_remaker.py": LOOP,
    "services/exceptions/detect/limit_monitor.py": LOOP,
    "services/exceptions/detect/taught_patterns.py": LOOP,
    "services/exceptions/detect/unavailability_monitor.py": LOOP,
    "services/exceptions/engines/engine_commands.py": "who listens for commands at which server, for the broadcast to all",
    "services/exceptions/recovery.py": LOOP,
    "services/flows/external_events.py": LOOP,
    "services/exceptions/safeguards/action_limits.py": LOOP,
    "services/flows/completion_relay.py": LOOP,
    "services/flows/flow_suspensions.py": LOOP,
    "services/insertion/tes_tasks.py": LOOP,
    "services/jobs/callback_sender.py": LOOP,
    "services/jobs/claim_releaser.py": "the jobs of pilots that are gone, by the pilots' ids",
    "services/jobs/runtime_alerts.py": LOOP,
    "services/jobs/unattended_failure_alerts.py": LOOP,
    "services/operations/domain_counter.py": "counts for the metrics of the domain, which have no tenant",
    "services/operations/incident_pruner.py": LOOP,
    "services/operations/job_pruner.py": LOOP,
    "services/operations/record_pruner.py": LOOP,
    "services/operations/specification_pruner.py": LOOP,
    "services/operations/lineage_reporter.py": LOOP,
    "services/operations/notifier.py": LOOP,
    "services/operations/store_generation.py": "after a restore, for the whole store",
    "services/operations/token_revocations.py": LOOP,
    "services/operations/usage_history.py": "counts of queue lanes, of which those of the tenant are taken: stores have an index for lanes",
    "services/peers/peer_leases.py": "peers are of the domain, not of a tenant",
    "services/peers/peer_registry.py": "peers are of the domain, not of a tenant",
    "services/peers/run_placement.py": "what was placed at one peer, for the link to it",
    "services/pilots/orphan_scanner.py": LOOP,
    "services/pilots/pilot_channels.py": LOOP,
    "services/pilots/pilot_revocations.py": LOOP,
    "services/rules/rule_store.py": "the newest versions of all rule sets, for the cache of a server",
    "services/scheduling/licence_seats.py": "licences are of the domain, not of a tenant",
    "services/scheduling/fair_shares.py": LOOP,
    "services/scheduling/quota_policies.py": "the policies of all tenants, for the cache of a server",
    "services/scheduling/candidate_buffers.py": "by queue lane, of which the tenant is a part",
}
SOURCE = Path(__file__).parents[3] / "src" / "forestay"


def _has_tenant(hint: Any) -> bool:
    """Whether a value of this type says whose it is."""
    if "tenant" in getattr(hint, "_fields", ()):
        return True
    if dataclasses.is_dataclass(hint):
        return any(field.name == "tenant" for field in dataclasses.fields(hint))
    inner = get_args(hint) or tuple(get_type_hints(hint).values() if hasattr(hint, "_fields") else ())
    return any(_has_tenant(each) for each in inner)


def _methods() -> Iterator[tuple[str, bool]]:
    for port in PORTS:
        for name, method in inspect.getmembers(port, inspect.isfunction):
            if name.startswith("_"):
                continue
            hints = get_type_hints(method)
            hints.pop("return", None)
            yield f"{port.__name__}.{name}", "tenant" in hints or any(map(_has_tenant, hints.values()))


def test_every_method_of_a_stores_port_takes_a_tenant_or_has_a_reason() -> None:
    without = {name for name, has_tenant in _methods() if not has_tenant}
    assert without == WITHOUT_TENANT.keys()


def _queries(tree: ast.AST) -> Iterator[ast.Call]:
    """Calls that search a store without a word about a tenant."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if name == "find" and isinstance(called, ast.Attribute):
            name = f"{ast.unparse(called.value).rpartition('.')[2]}.find"
        if name in {"JobQuery", "IncidentQuery", "find_records", "record_pages", "find_pilots", "documents.find"}:
            positional = name in {"JobQuery", "IncidentQuery"} and node.args
            if not positional and not any("tenant" in ast.unparse(part) for part in (*node.args, *node.keywords)):
                yield node


def test_every_query_names_a_tenant_or_its_module_has_a_reason() -> None:
    without: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("adapters/", "ports/")):
            continue
        for call in _queries(ast.parse(path.read_text())):
            without.setdefault(name, []).append(f"{call.lineno}: {ast.unparse(call)[:120]}")
    assert not {name: calls for name, calls in without.items() if name not in FOR_ALL}
    assert not FOR_ALL.keys() - without.keys(), "what is on the list without need"
    assert not [name for name in FOR_ALL if name.startswith("apps/server")]


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("store.count(JobQuery(states=S), by='state')", True),
        ("store.count(JobQuery(tenant, S), by='state')", False),
        ("store.find_records(kind='alert')", True),
        ("store.find_records(kind='alert', tenant=who.tenant)", False),
        ("self.documents.find(KIND)", True),
        ("self.documents.find(_kind(tenant, site))", False),
        ("self.pilots.find_pilots(state='x')", True),
    ],
)
def test_a_query_without_a_tenant_is_seen(text: str, bad: bool) -> None:
    assert bool(list(_queries(ast.parse(text)))) == bad
