"""Binds flows to places: what a late-bound task runs is chosen when it begins, by rules, or by a document that may be changed at any time.

The rules are asked first: a selection tree sees the case, and its conclusion names the worklet. Where no rule answers, the flow that is bound to the place is
run. Cases whose task has begun stay with what they were told, unless it is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import orjson

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet import Exlet
from forestay.domain.exlets.exlet_check import check_exlet
from forestay.domain.exlets.primitive import Select
from forestay.domain.exlets.worklet_data import filled
from forestay.domain.flows.definition.expression import Path, inside
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import Written
from forestay.ports.rules.worklets import BoundFlow
from forestay.services.flows.flow_store import FlowStore

KIND = "place"
TRIES = 10
MAX_PARAMS = 16_384


class WorkletBinding(NamedTuple):
    """A place and the flow that is bound to it."""

    place: str
    flow: str
    params: Mapping[str, object]
    by: str
    at: int


class WorkletChooser(Protocol):
    """Asks the rules which worklet is to be run at a place of a case; None: no rule answers."""

    async def __call__(
        self, tenant: str, place: str, *, case: str, params: Mapping[str, object]
    ) -> tuple[str, Exlet] | None:
        """The rule, and the exlet that it concludes: one `select`."""
        ...


@dataclass(slots=True)
class WorkletBindings:
    """The service; it fills the port `Worklets`."""

    documents: DocumentStore
    flows: FlowStore
    choose: WorkletChooser | None = None

    async def bound(self, tenant: str, place: str, *, case: str, params: Mapping[str, object]) -> BoundFlow | None:
        if self.choose is not None and (chosen := await self.choose(tenant, place, case=case, params=params)):
            return await self._selected(tenant, chosen, case, params)
        found = await self.binding(tenant, place)
        if found is None:
            return None
        await self.flows.plan(tenant, found.flow)
        return BoundFlow(found.flow, found.params)

    async def _selected(
        self, tenant: str, chosen: tuple[str, Exlet], case: str, params: Mapping[str, object]
    ) -> BoundFlow:
        rule, exlet = chosen
        wrong = check_exlet(exlet, ExceptionType.SELECTION)
        if wrong or not isinstance(exlet.steps[0].do, Select):
            said = "; ".join(f"{one.where}: {one.message}" for one in wrong)
            raise Permanent(f"rule {rule} does not conclude a worklet: {said or exlet.name}")
        worklet = exlet.steps[0].do.worklet
        await self.flows.plan(tenant, worklet.flow)
        data: Mapping[str, object] = {"params": params, "case": case}

        def lookup(path: Path) -> object:
            return inside(data, path)

        return BoundFlow(worklet.flow, {name: filled(value, lookup) for name, value in worklet.give.items()})

    async def binding(self, tenant: str, place: str) -> WorkletBinding | None:
        """What is bound to a place now."""
        return _binding((await self.documents.get([place_of(tenant, place)])).get(place_of(tenant, place)))

    async def all(self, tenant: str) -> Sequence[WorkletBinding]:
        """Every place of a tenant that has a flow, by name; up to a second old."""
        found = (_binding(one) for one in await self.documents.find(KIND) if one.document.tenant == tenant)
        return sorted((one for one in found if one is not None), key=lambda one: one.place)

    async def bind(self, tenant: str, binding: WorkletBinding) -> None:
        """Bind a stored flow to a place; an empty one takes the binding away. `NotFound` if there is no such flow."""
        if binding.flow:
            plan = await self.flows.plan(tenant, binding.flow)
            unknown = sorted(binding.params.keys() - plan.flow.params.keys())
            if unknown:
                raise Permanent(f"flow {plan.flow.name} has no parameter {', '.join(unknown)}")
        if len(orjson.dumps(binding.params)) > MAX_PARAMS:
            raise Permanent(f"the parameters have more than {MAX_PARAMS} bytes as JSON")
        name = place_of(tenant, binding.place)
        for _ in range(TRIES):
            stored = (await self.documents.get([name])).get(name)
            document = Document(name, tenant, KIND, binding._asdict())
            (result,) = await self.documents.put([(document, stored.version if stored is not None else None)])
            if isinstance(result, Written):
                return
        raise Transient("the binding could not be stored; try again")


def place_of(tenant: str, place: str) -> str:
    return f"place:{tenant}:{place}"


def _binding(stored: StoredDocument | None) -> WorkletBinding | None:
    if stored is None or not stored.document.body["flow"]:
        return None
    body = stored.document.body
    params = cast("Mapping[str, object]", body["params"])
    return WorkletBinding(str(body["place"]), str(body["flow"]), params, str(body["by"]), int(str(body["at"])))
