"""Binds flows to late-bound tasks: which flow such a task runs is chosen when it starts, by rules or by a document that can be changed at any time.

The rules are evaluated first: a selection tree sees the run, and its conclusion names the worklet. Where no rule answers, the flow that is bound to the
late-bound task runs. Tasks that have begun keep their worklet, unless it is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import orjson

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.definition.expression import Path, inside
from forestay.domain.playbooks.action import Select
from forestay.domain.playbooks.playbook import Playbook
from forestay.domain.playbooks.playbook_check import check_playbook
from forestay.domain.playbooks.worklet_data import filled
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent
from forestay.ports.rules.worklets import BoundFlow
from forestay.services.flows.flow_store import FlowStore
from forestay.services.shared.document_update import update_document

KIND = "late_bound"
MAX_PARAMS = 16_384


class WorkletBinding(NamedTuple):
    """A late-bound task and the flow that is bound to it."""

    late_bound: str
    flow: str
    params: Mapping[str, object]
    by: str
    at: int


class WorkletChooser(Protocol):
    """Asks the rules which worklet a late-bound task of a run executes; None: no rule answers."""

    async def __call__(
        self, tenant: str, late_bound: str, *, run: str, params: Mapping[str, object]
    ) -> tuple[str, Playbook] | None:
        """The rule, and the playbook that it concludes: one `select`."""
        ...


@dataclass(slots=True)
class WorkletBindings:
    """The service; it implements the port `Worklets`."""

    documents: DocumentStore
    flows: FlowStore
    choose: WorkletChooser | None = None

    async def bound(self, tenant: str, late_bound: str, *, run: str, params: Mapping[str, object]) -> BoundFlow | None:
        if self.choose is not None and (chosen := await self.choose(tenant, late_bound, run=run, params=params)):
            return await self._selected(tenant, chosen, run, params)
        binding = await self.binding(tenant, late_bound)
        if binding is None:
            return None
        await self.flows.plan(tenant, binding.flow)
        return BoundFlow(binding.flow, binding.params)

    async def _selected(
        self, tenant: str, chosen: tuple[str, Playbook], run: str, params: Mapping[str, object]
    ) -> BoundFlow:
        rule, playbook = chosen
        wrong = check_playbook(playbook, ExceptionType.SELECTION)
        if wrong or not isinstance(playbook.steps[0].do, Select):
            text = "; ".join(f"{problem.where}: {problem.message}" for problem in wrong)
            raise Permanent(f"rule {rule} does not conclude a worklet: {text or playbook.name}")
        worklet = playbook.steps[0].do.worklet
        await self.flows.plan(tenant, worklet.flow)
        data: Mapping[str, object] = {"params": params, "run": run}

        def lookup(path: Path) -> object:
            return inside(data, path)

        return BoundFlow(worklet.flow, {name: filled(value, lookup) for name, value in worklet.give.items()})

    async def binding(self, tenant: str, late_bound: str) -> WorkletBinding | None:
        """The present binding of a late-bound task."""
        return _binding(
            (await self.documents.get([binding_id(tenant, late_bound)])).get(binding_id(tenant, late_bound))
        )

    async def all(self, tenant: str) -> Sequence[WorkletBinding]:
        """Every late-bound task of a tenant that has a flow, by name; up to a second old."""
        bindings = (_binding(stored) for stored in await self.documents.find(KIND, tenant=tenant))
        return sorted((binding for binding in bindings if binding is not None), key=lambda binding: binding.late_bound)

    async def bind(self, tenant: str, binding: WorkletBinding) -> None:
        """Bind a stored flow to a late-bound task; an empty flow removes the binding. `NotFound` if there is no such flow."""
        if binding.flow:
            plan = await self.flows.plan(tenant, binding.flow)
            unknown = sorted(binding.params.keys() - plan.flow.params.keys())
            if unknown:
                raise Permanent(f"flow {plan.flow.name} has no parameter {', '.join(unknown)}")
        if len(orjson.dumps(binding.params)) > MAX_PARAMS:
            raise Permanent(f"the parameters have more than {MAX_PARAMS} bytes as JSON")
        name = binding_id(tenant, binding.late_bound)
        document = Document(name, tenant, KIND, binding._asdict())
        unsure = "the binding could not be stored; try again"
        await update_document(self.documents, name, lambda _: (document, None), unsure=unsure)


def binding_id(tenant: str, late_bound: str) -> str:
    return f"late-bound-task:{tenant}:{late_bound}"


def _binding(stored: StoredDocument | None) -> WorkletBinding | None:
    if stored is None or not stored.document.body["flow"]:
        return None
    body = stored.document.body
    params = cast("Mapping[str, object]", body["params"])
    return WorkletBinding(str(body["late_bound"]), str(body["flow"]), params, str(body["by"]), int(str(body["at"])))
