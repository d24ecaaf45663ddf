"""Rules as people write and promote them while everything runs, for tests on real runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tests.live.run_site import TENANT, RunSite
from tests.unit.apps.server.running import until

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import RuleStore


async def add_rule(
    site: RunSite,
    flow: str,
    kind: ExceptionType,
    condition: str,
    *steps: Mapping[str, object],
    task: str = "",
    true: Mapping[str, Any] | None = None,
    words: str = "",
    active: bool = True,
) -> str:
    """A rule of a flow's rule set; ``true``: a context for which its condition holds, its reference incident."""
    sandbox = CelSandbox()
    try:
        parts = site.server.services.components
        edit = RuleEditor(RuleStore(parts.documents), CelConditions(), sandbox, SystemClock(), RandomIds().claim)
        name = RuleSetId(TENANT, RuleSetLevel.FLOW, flow)
        draft = RuleDraft(
            name,
            kind,
            task,
            condition,
            Conclusion(steps=steps),
            f"i{time.time_ns()}",
            dict(true or {}),
            description=words,
        )
        made = await edit.add(draft, by="ann", confirmed=True)
        assert isinstance(made, Edited), made
        if active:
            assert isinstance(await edit.promote(name, made.rule, by="ben"), Edited)
    finally:
        await sandbox.close()
    await known(site, name, made.rule)
    return made.rule


async def known(site: RunSite, name: RuleSetId, rule: str) -> None:
    """Wait until every process here goes by the rule: the copies are at most half a second old."""
    assert site.orchestrator is not None
    for parts in (site.server.services.components, site.orchestrator.components):
        cache = parts.pipeline.decider.rules

        async def there(cache: Any = cache) -> bool:
            await cache.refresh()
            return cache.known(name).find(rule) is not None

        await until(there, "the rule")


async def stored(site: RunSite, text: str) -> str:
    read = read_flow_text(text)
    assert read.flow is not None, read.problems
    return await site.server.services.components.flows.put(read.flow, tenant=TENANT)


async def incidents(site: RunSite, run: str) -> list[dict[str, Any]]:
    """All incidents of a run, the newest first."""
    await site.server.refresh()
    person = site.server.person("viewer", tenant=TENANT)
    incidents: list[dict[str, Any]] = (await person.get("/v1/incidents", params={"run": run})).json()["incidents"]
    return incidents


async def incident(site: RunSite, run: str, *states: str, kind: str = "") -> dict[str, Any]:
    """An incident of a run, whole, as soon as it stands so."""
    person = site.server.person("viewer", tenant=TENANT)

    async def there() -> str | None:
        for incident in await incidents(site, run):
            if incident["state"] in states and kind in ("", incident["type"]):
                return str(incident["id"])
        return None

    name = await until(there, f"an incident that is {states}", 60)
    whole: dict[str, Any] = (await person.get(f"/v1/incidents/{name}")).json()
    return whole
