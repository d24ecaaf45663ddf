"""Stores flows by the hash of their content: written once and never changed, so that every cache of them stays valid."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from forestay.domain.flows.definition.flow import Flow
from forestay.domain.flows.definition.flow_format import PYTHON, GrownFlow, format_of
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_as_plain, flow_from_plain, planned, version_of
from forestay.domain.flows.definition.python_flow import PythonFlow, python_from_plain
from forestay.domain.flows.execution.grown import grown_plan
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent
from forestay.ports.flows.flow_format import FlowFormats, NoFormats
from forestay.ports.jobs.job_store import JobStore, Record

MAX_FLOW = 256 * 1024
"""The most bytes of a flow's plain form as JSON: a run carries it in its input, which is limited to 2 MB in all."""
KNOWN = 500
KNOWN_NAMES = 10_000


@dataclass(slots=True)
class FlowStore:
    """The service."""

    store: JobStore
    clock: Clock
    formats: FlowFormats = field(default_factory=NoFormats)
    _plans: OrderedDict[tuple[str, str], FlowPlan] = field(default_factory=OrderedDict)
    _names: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict)

    async def put(self, flow: Flow, *, tenant: str) -> str:
        """Store a flow and its sub-flows; returns its version. `Permanent` if it is too large."""
        version = version_of(flow)
        if (tenant, version) in self._plans:
            return version
        records = []
        for other_flow in _all(flow):
            text = orjson.dumps(flow_as_plain(other_flow))
            if len(text) > MAX_FLOW:
                raise Permanent(f"flow {other_flow.name} has {len(text)} bytes as JSON; the limit is {MAX_FLOW}")
            name = record_of(tenant, version_of(other_flow))
            # As text: the order of tasks matters, and not every store keeps the order of names in a record.
            body = {"name": other_flow.name, "flow": text.decode()}
            records.append(Record(name, tenant, "flow", "", self.clock.now(), body))
        await self.store.add_records(records)
        return version

    async def put_grown(self, flow: GrownFlow, *, tenant: str) -> str:
        """Store a flow of a format that a package adds; returns its version. `Permanent` if it is too large."""
        size = len(orjson.dumps(flow.as_plain()))
        if size > MAX_FLOW:
            raise Permanent(f"flow {flow.name} has {size} bytes as JSON; the limit is {MAX_FLOW}")
        return await self._put(flow, tenant)

    async def put_python(self, flow: PythonFlow, *, tenant: str) -> str:
        """Store a Python flow; returns its version. Only flows from the operator's folder are stored."""
        return await self._put(flow, tenant)

    async def _put(self, flow: GrownFlow, tenant: str) -> str:
        body = {"name": flow.name, "flow": orjson.dumps(flow.as_plain()).decode()}
        await self.store.add_records(
            [Record(record_of(tenant, flow.version), tenant, "flow", "", self.clock.now(), body)]
        )
        return flow.version

    async def grown(self, tenant: str, version: str) -> GrownFlow:
        """A stored flow that grows while it runs; `NotFound`, or `NotInstalled` if the package of its format is missing."""
        plain = orjson.loads(await self.text(tenant, version))
        name = format_of(plain)
        return await self.python(tenant, version) if name in ("", PYTHON) else self.formats.get(name).read(plain)

    async def python(self, tenant: str, version: str) -> PythonFlow:
        """A stored Python flow; `NotFound` if there is none of this version, or it is another kind of flow."""
        plain = orjson.loads(await self.text(tenant, version))
        if format_of(plain) != PYTHON:
            raise NotFound(f"flow {version[:64]} is not a Python flow")
        return python_from_plain(plain)

    async def plan(self, tenant: str, version: str) -> FlowPlan:
        """A flow prepared for running; `NotFound`."""
        known = self._plans.get((tenant, version))
        if known is not None:
            self._plans.move_to_end((tenant, version))
            return known
        plain = orjson.loads(await self.text(tenant, version))
        plan = grown_plan(plain["name"], version) if format_of(plain) else planned(flow_from_plain(plain))
        self._plans[tenant, version] = plan
        while len(self._plans) > KNOWN:
            self._plans.popitem(last=False)
        return plan

    async def name(self, tenant: str, version: str) -> str:
        """The name of a stored flow, which all its versions share; empty if there is none of this version."""
        known = self._names.get((tenant, version))
        if known is not None:
            return known
        record = await self.store.get_record(record_of(tenant, version))
        if record is None or record.tenant != tenant:
            return ""
        name = self._names[tenant, version] = str(record.body["name"])
        while len(self._names) > KNOWN_NAMES:
            self._names.popitem(last=False)
        return name

    async def name_of(self, document: JobDocument) -> str:
        """The name of a job's flow; empty if it has none."""
        return await self.name(document.tenant, document.flow_ref.flow) if document.flow_ref is not None else ""

    async def text(self, tenant: str, version: str) -> str:
        """A flow's plain form as JSON text, which keeps the order of tasks; `NotFound`."""
        record = await self.store.get_record(record_of(tenant, version))
        if record is None or record.tenant != tenant:
            raise NotFound(f"there is no flow {version[:64]} in tenant {tenant}")
        return str(record.body["flow"])


def record_of(tenant: str, version: str) -> str:
    return f"flow:{tenant}:{version}"


def _all(flow: Flow) -> Iterator[Flow]:
    yield flow
    for inner in flow.flows.values():
        yield from _all(inner)
