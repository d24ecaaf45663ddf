"""Continues when another engine has replied to a command: completes the step that sent it, and settles what was held until then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.exceptions.incidents.incident import IncidentState
from forestay.domain.playbooks.engine_order import SETTLING, EngineOrder, OrderOutcome
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.incident_store import SHOWN_AFTER, IncidentQuery, IncidentStore
from forestay.services.exceptions.act.playbook_runner import PlaybookRunner
from forestay.services.exceptions.engines.engine_commands import (
    CommandReply,
    EngineCommands,
    EngineReporter,
    PendingCommand,
    Unanswered,
)
from forestay.services.shared.incident_settlement import settle_held
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

MOST_SETTLED = 100


@dataclass(slots=True)
class EngineReplies:
    """The service."""

    commands: EngineCommands
    incidents: IncidentStore
    playbooks: PlaybookRunner
    clock: Clock
    workflows: bool
    """Whether playbooks run in workflows, which wait for replies themselves."""
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def acknowledge(self, who: EngineReporter, order: str, reply: CommandReply) -> CommandReply:
        """Store an engine's reply; the first one is kept. `NotFound`: there is no such command for it."""
        known, kept = await self.commands.record_reply(who, order, reply)
        await self._follow(who, known, kept)
        return kept

    async def run(self) -> None:
        """Continue after replies for which a server died before it did so."""
        await poll_forever(self.look, 5.0, self.troubled)

    async def look(self) -> None:
        later = await self.quarantine.each(
            await self.commands.open_commands(),
            self._look_at,
            name=lambda page: page[0].command_page,
            troubled=self.troubled,
        )
        if later is not None:
            raise later

    async def _look_at(self, page: tuple[EngineReporter, Sequence[PendingCommand]]) -> None:
        who, waiting = page

        async def go_on(command: PendingCommand) -> None:
            if (found := await self.commands.reply_to(command)) is not None:
                await self._follow(who, *found)

        later = await self.quarantine.each(
            waiting, go_on, name=lambda command: f"order {command.id}", troubled=self.troubled
        )
        if later is not None:
            raise later

    async def _follow(self, who: EngineReporter, order: EngineOrder, reply: CommandReply) -> None:
        if not order.step:
            if reply.outcome is OrderOutcome.DONE and order.instance and order.verb in SETTLING:
                await self._settle(who.tenant, order)
        elif not self.workflows:
            incident, n, _ = order.step.split(":")
            with suppress(NotFound, Unanswered):
                await self.playbooks.do_only_step(incident, int(n))
        await self.commands.take_off(who, order.id)

    async def _settle(self, tenant: str, order: EngineOrder) -> None:
        """Settle what was held for the task of a command that a person sent: nothing waits for an answer any more."""
        query = IncidentQuery(tenant, run=order.run, instance=order.instance, states=frozenset({IncidentState.HELD}))
        page = await self.incidents.find(query, limit=MOST_SETTLED)
        if not page.statuses:
            await asyncio.sleep(SHOWN_AFTER)
            page = await self.incidents.find(query, limit=MOST_SETTLED)
        ids = [stored.status.id for stored in page.statuses]
        await settle_held(self.incidents, ids, f"{order.by}: {order.verb}", now=self.clock.now())
