"""Binds flows to places: what a late-bound task runs is chosen when it begins, by a slip that may be changed at any time.

Cases whose task has begun stay with what they were told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import orjson

from holdfast.ports.errors import Permanent, Transient
from holdfast.ports.job_store import Written
from holdfast.ports.slip_store import Slip, SlipStore, StoredSlip
from holdfast.ports.worklets import Bound
from holdfast.services.keep_flows import KeepFlows

KIND = "place"
TRIES = 10
MAX_PARAMS = 16_384


class Binding(NamedTuple):
    """A place and the flow that is bound to it."""

    place: str
    flow: str
    params: Mapping[str, object]
    by: str
    at: int


@dataclass(slots=True)
class BindWorklets:
    """The service; it fills the port `Worklets`."""

    slips: SlipStore
    flows: KeepFlows

    async def bound(self, tenant: str, place: str, *, case: str, params: Mapping[str, object]) -> Bound | None:
        found = await self.binding(tenant, place)
        if found is None:
            return None
        await self.flows.plan(tenant, found.flow)
        return Bound(found.flow, found.params)

    async def binding(self, tenant: str, place: str) -> Binding | None:
        """What is bound to a place now."""
        return _binding((await self.slips.get([place_of(tenant, place)])).get(place_of(tenant, place)))

    async def all(self, tenant: str) -> Sequence[Binding]:
        """Every place of a tenant that has a flow, by name; up to a second old."""
        found = (_binding(one) for one in await self.slips.find(KIND) if one.slip.tenant == tenant)
        return sorted((one for one in found if one is not None), key=lambda one: one.place)

    async def bind(self, tenant: str, binding: Binding) -> None:
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
            stored = (await self.slips.get([name])).get(name)
            slip = Slip(name, tenant, KIND, binding._asdict())
            (result,) = await self.slips.put([(slip, stored.version if stored is not None else None)])
            if isinstance(result, Written):
                return
        raise Transient("the binding could not be written; ask again")


def place_of(tenant: str, place: str) -> str:
    return f"place:{tenant}:{place}"


def _binding(stored: StoredSlip | None) -> Binding | None:
    if stored is None or not stored.slip.body["flow"]:
        return None
    body = stored.slip.body
    params = cast("Mapping[str, object]", body["params"])
    return Binding(str(body["place"]), str(body["flow"]), params, str(body["by"]), int(str(body["at"])))
