"""Starts runs: a run is accepted when the engine has acknowledged its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_as_plain
from forestay.domain.flows.execution.run_names import run_keyed
from forestay.ports.clock import Ids
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.flows.flow_engine import FlowEngine, RunStart
from forestay.services.flows.flow_checks import FlowChecks
from forestay.services.flows.flow_store import FlowStore

MAX_PARAMS = 65_536
"""The most bytes of a run's parameters as JSON; larger data belong in a file."""


class StartedRun(NamedTuple):
    """A started run."""

    run: str
    created: bool
    """False: an earlier request with the same key had started it."""


@dataclass(slots=True)
class RunStarter:
    """The service."""

    flows: FlowStore
    engine: FlowEngine
    ids: Ids
    checks: FlowChecks | None = None

    async def start(
        self,
        version: str,
        params: Mapping[str, object],
        *,
        tenant: str,
        owner: str,
        key: str | None,
        schedule: str = "",
        parent: Mapping[str, Any] | None = None,
    ) -> StartedRun:
        """Start a run of a stored flow. With a key, a repeat returns the same run; `Conflict` if the key was used for another flow.

        `NotFound` if there is no such flow, `Permanent` if the parameters do not fit it. ``parent`` is notified of the run's end.
        """
        plan, plain = await self.checked(version, params, tenant=tenant)
        run = self.ids.job() if key is None else run_keyed(tenant, owner, key)
        held = await self._held(tenant, owner, run, version, plan, params, new=key is None)
        start = RunStart(
            run,
            tenant,
            owner,
            version,
            plan.flow.name,
            plain,
            params,
            held=held,
            schedule=schedule,
            parent=parent or {},
        )
        if await self.engine.start(start):
            return StartedRun(run, created=True)
        before = await self.engine.describe(run)
        if before.version != version or before.tenant != tenant:
            raise Conflict("this idempotency key was used for a run of another flow; use a new key for a new run")
        return StartedRun(run, created=False)

    async def checked(
        self, version: str, params: Mapping[str, object], *, tenant: str
    ) -> tuple[FlowPlan, Mapping[str, Any]]:
        """The flow to run, and its plain form; raises `NotFound` and `Permanent` as `start` does."""
        plan = await self.flows.plan(tenant, version)
        if not plan.grown:
            known = plan.flow.params
            check_params(known.keys(), [name for name, default in known.items() if default is None], params)
            return plan, flow_as_plain(plan.flow)
        grown = await self.flows.grown(tenant, version)
        check_params({*grown.params, *grown.needed}, grown.needed, params)
        if why := grown.refusal(params):
            raise Permanent(why)
        return plan, grown.as_plain()

    async def _held(
        self,
        tenant: str,
        owner: str,
        run: str,
        version: str,
        plan: FlowPlan,
        params: Mapping[str, object],
        *,
        new: bool,
    ) -> tuple[str, ...]:
        """The incident that keeps the run from beginning. A run that was started before is not checked again."""
        if self.checks is None or not await self.checks.asked(tenant, version, ExceptionType.RUN_PRE):
            return ()
        if not new:
            try:
                await self.engine.describe(run)
            except NotFound:
                pass
            else:
                return ()
        given_params = {**plan.flow.params, **params}
        check = await self.checks.run_begins(
            tenant=tenant, owner=owner, run=run, flow=version, name=plan.flow.name, params=given_params
        )
        return (check,) if check else ()


def check_params(known: Set[str], needed: Iterable[str], params: Mapping[str, object]) -> None:
    """`Permanent` if parameters do not fit a flow, or are too large."""
    unknown = sorted(params.keys() - known)
    missing = sorted(name for name in needed if name not in params)
    if unknown or missing:
        parts = [f"unknown: {', '.join(unknown)}"] if unknown else []
        parts += [f"missing: {', '.join(missing)}"] if missing else []
        raise Permanent(f"the parameters do not match the flow; {'; '.join(parts)}")
    try:
        size = len(orjson.dumps(params))
    except TypeError as error:
        raise Permanent(f"the parameters cannot be stored: {error}") from error
    if size > MAX_PARAMS:
        raise Permanent(f"the parameters have {size} bytes as JSON; the limit is {MAX_PARAMS}")
