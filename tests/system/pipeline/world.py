"""A domain as its processes build it, on SQLite, with a clock and ids that only the campaign moves, and every write recorded."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from tests.system.pipeline.recording import (
    RecordedStore,
    Recorder,
    audit_writes,
    document_writes,
    incident_writes,
    job_writes,
)

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.apps.compose import components as compose
from forestay.apps.compose.components import Components, make_components
from forestay.apps.compose.reconciler import ReconcilerComponents
from forestay.apps.compose.stores import Stores, open_stores
from forestay.apps.config.settings import Settings
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.safeguards.approval_policy import ApprovalStage
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Stored
from forestay.services.exceptions.exception_event import ExceptionEvent
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import DOMAIN, RuleStore

BEGIN = 1_790_000_000_000
TENANTS = ("bio", "lab")


@dataclass
class HandClock:
    """Stands still until it is moved."""

    milliseconds: int = BEGIN

    def now(self) -> int:
        return self.milliseconds

    def monotonic(self) -> float:
        return self.milliseconds / 1000


@dataclass
class SeededIds:
    """The same ids in every run."""

    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def claim(self) -> str:
        return self.chance.randbytes(16).hex()

    def job(self) -> str:
        return str(UUID(bytes=self.chance.randbytes(16), version=4))


class FakeEngine:
    """Stands in for Temporal: notes what it is told, and knows no run."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    async def start_playbook(self, incident: str, n: int, *, tenant: str, owner: str) -> bool:
        self.recorder.note("engine.start_playbook", incident, (incident, n, tenant, owner))
        return True

    async def tell_playbook(self, incident: str, n: int, events: Sequence[object]) -> None:
        self.recorder.note("engine.tell_playbook", incident, (incident, n, events))

    async def tell_run(self, run: str, events: Sequence[object]) -> None:
        self.recorder.note("engine.tell_run", run, (run, events))

    async def close(self) -> None: ...


@dataclass
class World:
    """A domain, and the few calls by which the campaign drives it: all that differs between versions of the code."""

    components: Components
    reconciler: ReconcilerComponents
    recorder: Recorder
    clock: HandClock
    sandbox: CelSandbox
    interrupted: int = 0

    async def handle(self, failures: Sequence[tuple[Stored, str]]) -> None:
        try:
            await self.components.pipeline.handle_failures(failures)
        except Transient:
            self.interrupted += 1

    async def answer(self, events: Sequence[ExceptionEvent]) -> None:
        try:
            await self.components.pipeline.handle(events)
        except Transient:
            self.interrupted += 1

    async def look(self) -> None:
        """One pass of a reconciler, as often as acknowledgements are lost in it."""
        recovery = self.components.recovery
        for look in (recovery.look_at_failures, recovery.look_at_incidents, self.reconciler.closing.look):
            for _ in range(100):
                try:
                    await look()
                    break
                except Transient:
                    self.interrupted += 1

    async def approve(self, chance: random.Random) -> None:
        """A second person answers what waits for an approval, and agrees to most of it."""
        approvals = self.components.approvals
        for tenant in TENANTS:
            for asked in sorted(await approvals.find(tenant), key=lambda record: record.id):
                if asked.stage is not ApprovalStage.WAITING:
                    continue
                agreed = chance.random() < 0.7
                known = await approvals.answer(tenant, asked.id, agreed=agreed, by="zoe", approver=True, why="looked")
                act = known.asking.act
                if not agreed:
                    await self.reconciler.requests.close([known])
                    continue
                went = await self.components.recovery.resume(act["incident"], act["n"])
                await approvals.carried_out(known, str(went))

    async def let_storms_go(self) -> None:
        storms = self.components.safeguards.storms
        for tenant in TENANTS:
            for group in [group for group in await storms.groups(tenant) if group.held]:
                for rule in sorted({trial.rule for trial in group.canaries}):
                    await storms.let_all(tenant, group.id, rule)
                await self.components.recovery.wake(tenant, group.id)

    async def add_rule(
        self, tenant: str, kind: ExceptionType, task: str, condition: str, steps: Sequence[Mapping[str, object]], true: Any, *, active: bool = True
    ) -> None:  # fmt: skip
        ids = self.components.ids
        editor = RuleEditor(RuleStore(self.components.documents), CelConditions(), self.sandbox, self.clock, ids.claim)
        scenario = RuleSetId(tenant, RuleSetLevel.DOMAIN, DOMAIN)
        draft = RuleDraft(
            scenario, kind, task, condition, Conclusion(steps=tuple(steps)), f"reference-{ids.claim()}", true
        )
        made = await editor.add(draft, by="ann", confirmed=True)
        assert isinstance(made, Edited), made
        if active:
            promoted = await editor.promote(scenario, made.rule, by="ben")
            assert isinstance(promoted, Edited), promoted

    async def refresh_rules(self) -> None:
        await self.components.pipeline.decider.rules.refresh()


@asynccontextmanager
async def new_world(folder: Path, recorder: Recorder, *, engine: bool, **more: Any) -> AsyncIterator[World]:
    clock, ids = HandClock(), SeededIds()

    def recorded(url: str) -> Stores:
        inner = open_stores(url)
        return Stores(
            jobs=RecordedStore(inner.jobs, "jobs", recorder, job_writes()),
            pilots=inner.pilots,
            documents=RecordedStore(inner.documents, "documents", recorder, document_writes()),
            incidents=RecordedStore(inner.incidents, "incidents", recorder, incident_writes(recorder)),
            audit=RecordedStore(inner.audit, "audit", recorder, audit_writes()),
        )

    settings = Settings.model_validate(
        {
            "state": folder,
            "store": f"sqlite:///{folder}/domain.db",
            "temporal": "127.0.0.1:1" if engine else "",
            **more,
        }
    )
    with (
        patch.object(compose, "SystemClock", lambda: clock),
        patch.object(compose, "RandomIds", lambda: ids),
        patch.object(compose, "open_stores", recorded),
        patch.object(compose, "make_engine", lambda *_args: FakeEngine(recorder)),
    ):
        components = make_components(settings)
        reconciler = ReconcilerComponents(components)
    await components.store.open()
    sandbox = CelSandbox()
    try:
        yield World(components, reconciler, recorder, clock, sandbox)
    finally:
        await sandbox.close()
        await components.store.close()
