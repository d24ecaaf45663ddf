"""Starts cases: a case is accepted when the engine has acknowledged its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import orjson

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.bpel_flow import BpelFlow, message_from_plain
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_as_plain
from forestay.domain.flows.execution.case_names import case_keyed
from forestay.ports.clock import Ids
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.flows.flow_engine import CaseStart, FlowEngine
from forestay.services.flows.flow_store import FlowStore

MAX_PARAMS = 65_536
"""Bytes of a case's parameters as JSON; what is larger belongs into a file."""


class StartedRun(NamedTuple):
    """A case that runs."""

    case: str
    created: bool
    """False: an earlier request with the same key had started it."""


class CaseChecks(Protocol):
    """Whether cases may begin; see `ConstraintChecker`."""

    async def asked(self, tenant: str, flow: str, kind: ExceptionType, task: str = "") -> bool: ...

    async def case_begins(
        self, *, tenant: str, owner: str, case: str, flow: str, name: str, params: Mapping[str, object]
    ) -> str: ...


@dataclass(slots=True)
class RunStarter:
    """The service."""

    flows: FlowStore
    engine: FlowEngine
    ids: Ids
    checks: CaseChecks | None = None

    async def start(
        self, version: str, params: Mapping[str, object], *, tenant: str, owner: str, key: str | None
    ) -> StartedRun:
        """Start a case of a stored flow. With a key a repeat gives the same case; `Conflict` if the key was used for another flow.

        `NotFound` if there is no such flow, `Permanent` if the parameters do not fit it.
        """
        plan = await self.flows.plan(tenant, version)
        if plan.grown:
            grown = await self.flows.grown(tenant, version)
            plain = grown.as_plain()
            check_params({*grown.params, *grown.needed}, grown.needed, params)
            if isinstance(grown, BpelFlow):
                check_message(params)
        else:
            plain = flow_as_plain(plan.flow)
            known = plan.flow.params
            check_params(known.keys(), [name for name, default in known.items() if default is None], params)
        case = self.ids.job() if key is None else case_keyed(tenant, key)
        held = await self._held(tenant, owner, case, version, plan, params, new=key is None)
        start = CaseStart(case, tenant, owner, version, plan.flow.name, plain, params, held=held)
        if await self.engine.start(start):
            return StartedRun(case, created=True)
        before = await self.engine.describe(case)
        if before.version != version or before.tenant != tenant:
            raise Conflict("this idempotency key was used for a case of another flow; use a new key for a new case")
        return StartedRun(case, created=False)

    async def _held(
        self,
        tenant: str,
        owner: str,
        case: str,
        version: str,
        plan: FlowPlan,
        params: Mapping[str, object],
        *,
        new: bool,
    ) -> tuple[str, ...]:
        """The incident for which the case may not begin. One that was started before is not looked at again."""
        if self.checks is None or not await self.checks.asked(tenant, version, ExceptionType.CASE_PRE):
            return ()
        if not new:
            try:
                await self.engine.describe(case)
            except NotFound:
                pass
            else:
                return ()
        given = {**plan.flow.params, **params}
        found = await self.checks.case_begins(
            tenant=tenant, owner=owner, case=case, flow=version, name=plan.flow.name, params=given
        )
        return (found,) if found else ()


def check_message(params: Mapping[str, object]) -> None:
    """`Permanent` if the message that a process is to begin with is none."""
    try:
        message_from_plain(params.get("message", {}))
    except ValueError as error:
        raise Permanent(f"message: {error}") from error


def check_params(known: Set[str], needed: Iterable[str], given: Mapping[str, object]) -> None:
    """`Permanent` if parameters do not fit a flow, or are too large."""
    unknown = sorted(given.keys() - known)
    missing = sorted(name for name in needed if name not in given)
    if unknown or missing:
        parts = [f"unknown: {', '.join(unknown)}"] if unknown else []
        parts += [f"missing: {', '.join(missing)}"] if missing else []
        raise Permanent(f"the parameters do not match the flow; {'; '.join(parts)}")
    try:
        size = len(orjson.dumps(given))
    except TypeError as error:
        raise Permanent(f"the parameters cannot be stored: {error}") from error
    if size > MAX_PARAMS:
        raise Permanent(f"the parameters have {size} bytes as JSON; the limit is {MAX_PARAMS}")
