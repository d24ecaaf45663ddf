"""Gives orders to other engines, and hears what became of them.

An order is a create-only document; so is the engine's answer. Between the two, the order is on the *sheet* of whoever reports the engine's cases: one version-checked document
with the numbers of all orders that wait. An engine that was away, or was killed, reads the sheet from its beginning and finds every order that nobody has answered. A server that was
killed leaves nothing behind: whoever repeats the step finds the order, and waits for the answer to it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.engine_case import ENDED, EngineCase
from forestay.domain.exlets.engine_order import MAX_OPEN, EngineOrder, OrderOutcome, order_of
from forestay.domain.flows.commands import AnswerVerb
from forestay.domain.flows.events import Verb
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.ports.flows.flow_engine import CaseSummary
from forestay.ports.jobs.job_store import JobStore, Record, Written
from forestay.services.shared.document_update import update_document
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

CASE_KIND = "engine-case"
ENDED_KIND = "engine-case-ended"
SHEET_KIND = "engine-orders"
ORDER, ANSWER = "engine-order", "engine-answer"
TRIES = 20
AT_ONCE = 20
"""Orders that are told at a time."""
LOOK = 0.3
"""Seconds between looks at a sheet that somebody waits for."""
SELDOM = 2.0
"""Seconds between looks for an answer that takes its time."""
SHEETS = 1_000
"""Sheets that a process remembers for less than that long."""


class Unanswered(Transient):
    """The engine has not answered yet; the order stands."""


class EngineReporter(NamedTuple):
    """Who speaks for an engine: orders for the cases that it reports are on its sheet."""

    tenant: str
    engine: str
    subject: str

    @property
    def sheet(self) -> str:
        return f"{SHEET_KIND}:{self.tenant}:{self.engine}:{self.subject}"


class PendingCommand(NamedTuple):
    """An order on a sheet."""

    n: int
    id: str
    case: str
    item: str


class CommandReply(NamedTuple):
    """What an engine said to an order."""

    outcome: OrderOutcome
    detail: str


@dataclass(slots=True)
class EngineCommands:
    """The service. It fills the port `ExceptionEngine` for every engine that is not ours."""

    documents: DocumentStore
    store: JobStore
    clock: Clock
    patience: float = 20.0
    """Seconds that a step waits for the engine before it is asked again from outside."""
    answered: Callable[[EngineOrder, CommandReply], Awaitable[None]] | None = None
    """Told of every answer, at least once."""
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: OrderedDict[str, tuple[float, Sequence[PendingCommand]]] = field(default_factory=OrderedDict)

    # -- cases -------------------------------------------------------------------------------------------------

    async def case(self, case: str) -> EngineCase:
        """A case of another engine; `NotFound`."""
        found = await self.known(case)
        if found is None:
            raise NotFound(f"there is no run {case}")
        return found

    async def known(self, case: str) -> EngineCase | None:
        """A case of another engine, if there is one."""
        found = await self._stored(case)
        return EngineCase.from_plain(found.document.body) if found is not None else None

    async def change(self, case: str, make: Callable[[EngineCase | None], EngineCase]) -> EngineCase:
        """Write a case over what it was; `Transient` if that cannot be done now."""

        def changed(found: StoredDocument | None) -> tuple[Document | None, EngineCase]:
            before = EngineCase.from_plain(found.document.body) if found is not None else None
            after = make(before)
            if after == before:
                return None, after
            kind = ENDED_KIND if after.state in ENDED else f"{CASE_KIND}:{after.tenant}:{after.engine}"
            return Document(name, after.tenant, kind, after.as_plain()), after

        name = f"{CASE_KIND}:{case}"
        return await update_document(
            self.documents, name, changed, tries=TRIES, unsure="the run could not be stored; send it again"
        )

    async def open_cases(self, tenant: str, engine: str) -> Sequence[EngineCase]:
        """The cases of an engine that have not ended, at most 10,000; up to a second old."""
        found = await self.documents.find(f"{CASE_KIND}:{tenant}:{engine}")
        return [EngineCase.from_plain(one.document.body) for one in found]

    async def describe(self, case: str) -> CaseSummary:
        one = await self.case(case)
        return CaseSummary(
            one.id,
            one.tenant,
            one.owner,
            one.flow or one.key,
            one.version,
            one.state,
            one.started,
            one.ended,
            one.parent,
        )

    async def state(self, case: str) -> Mapping[str, Any]:
        one = await self.case(case)
        items = [
            {"id": name, "task": name.partition(":")[0], "state": state, "result": one.results.get(name)}
            for name, state in one.items.items()
        ]
        outcome = one.state if one.state in ENDED else None
        known = {"params": dict(one.data), "items": items, "outputs": dict(one.results), "outcome": outcome}
        return known | {
            "phase": "ended" if outcome else "running",
            "reason": "",
            "holders": [],
            "stack": [],
            "started": one.started,
        }

    async def _stored(self, case: str) -> StoredDocument | None:
        name = f"{CASE_KIND}:{case}"
        return (await self.documents.get([name])).get(name)

    # -- giving orders -----------------------------------------------------------------------------------------

    async def send_verb(self, case: str, verb: Verb) -> AnswerVerb:
        one = await self.case(case)
        order = order_of(verb, case=case, key=one.key)
        if order is None:
            return AnswerVerb(verb.id, accepted=False, detail="engines are not notified of exceptions")
        answer = await self.send(order)
        return AnswerVerb(verb.id, answer.outcome is OrderOutcome.DONE, answer.detail)

    async def send(self, order: EngineOrder, *, patience: float | None = None) -> CommandReply:
        """Give an order and wait for the answer; `Unanswered` if it takes longer. Whoever repeats this gives no second order."""
        case = await self.give(order)
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        pause = LOOK
        while (answer := await self.answer(order.id)) is None:
            if time.monotonic() >= deadline:
                raise Unanswered(f"the engine {case.engine} has not replied to command {order.id} yet")
            await self._wait(pause)
            pause = min(SELDOM, pause * 1.5)
        return answer

    async def give(self, order: EngineOrder) -> EngineCase:
        """Have an order on its sheet, unless it is answered. `NotFound`: the run has ended or never was."""
        case = await self.case(order.case)
        if await self.answer(order.id) is not None:
            return case
        if case.state in ENDED and await self.store.get_record(_order(order.id)) is None:
            raise NotFound(f"the case {order.case} has ended")
        who = EngineReporter(case.tenant, case.engine, case.reporter)
        body = order.as_plain() | {"engine": case.engine, "reporter": case.reporter}
        await self.store.add_records([Record(_order(order.id), case.tenant, ORDER, case.id, order.at, body)])
        entry = {"id": order.id, "case": order.case, "item": order.item}
        await self._rewrite(who, lambda sheet: _added(sheet, entry))
        if await self.answer(order.id) is not None:
            # It was answered between our two looks.
            await self._rewrite(who, lambda sheet: _without(sheet, order.id))
        return case

    async def answer(self, order: str) -> CommandReply | None:
        """What the engine said; ``None``: nothing yet."""
        found = await self.store.get_record(_answer(order))
        return (
            None if found is None else CommandReply(OrderOutcome(str(found.body["outcome"])), str(found.body["detail"]))
        )

    # -- the engine's side -------------------------------------------------------------------------------------

    async def orders(self, who: EngineReporter, *, after: int = 0, case: str = "") -> Sequence[tuple[int, EngineOrder]]:
        """Orders that wait, by their numbers, the first ones first; those of one case alone if it is named."""
        sheet = await self._sheet(who)
        wanted = [one for one in sheet if one.n > after and (not case or one.case == case)][:AT_ONCE]
        found = await asyncio.gather(*(self.store.get_record(_order(one.id)) for one in wanted))
        pairs = zip(wanted, found, strict=True)
        return [(one.n, EngineOrder.from_plain(record.body)) for one, record in pairs if record is not None]

    async def acknowledge(self, who: EngineReporter, order: str, answer: CommandReply) -> CommandReply:
        """Take an engine's answer; the first one stays. `NotFound`: there is no such command for it."""
        record = await self.store.get_record(_order(order))
        if record is None or record.tenant != who.tenant:
            raise NotFound(f"there is no command {order}")
        if (record.body.get("engine"), record.body.get("reporter")) != (who.engine, who.subject):
            raise NotFound(f"there is no command {order}")
        body = {"order": order, "outcome": answer.outcome.value, "detail": answer.detail}
        said = Record(_answer(order), who.tenant, ANSWER, record.job, self.clock.now(), body)
        await self.store.add_records([said])
        stands = await self.answer(order)
        if stands is None:
            raise Transient("the reply could not be read back; send it again")
        self._tell()
        await self._follow(who, EngineOrder.from_plain(record.body), stands)
        return stands

    async def wait(self, seconds: float) -> None:
        """Until something was ordered or answered in this process, or so long."""
        await self._wait(min(seconds, LOOK))

    # -- what was left behind ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take off the sheets what was answered when a server died before it did so."""
        await poll_forever(self.look, 5.0, self.troubled)

    async def look(self) -> None:
        later = await self.quarantine.each(
            await self.documents.find(SHEET_KIND),
            self._look_at,
            name=lambda stored: stored.document.id,
            troubled=self.troubled,
        )
        if later is not None:
            raise later

    async def _look_at(self, stored: StoredDocument) -> None:
        _, tenant, rest = stored.document.id.split(":", 2)
        engine, _, subject = rest.partition(":")
        who = EngineReporter(tenant, engine, subject)

        async def go_on(order: PendingCommand) -> None:
            answer = await self.answer(order.id)
            record = await self.store.get_record(_order(order.id)) if answer is not None else None
            if answer is not None and record is not None:
                await self._follow(who, EngineOrder.from_plain(record.body), answer)

        later = await self.quarantine.each(
            _waiting(stored), go_on, name=lambda order: f"order {order.id}", troubled=self.troubled
        )
        if later is not None:
            raise later

    async def _follow(self, who: EngineReporter, order: EngineOrder, answer: CommandReply) -> None:
        if self.answered is not None:
            await self.answered(order, answer)
        await self._rewrite(who, lambda sheet: _without(sheet, order.id))

    # -- sheets ------------------------------------------------------------------------------------------------

    async def _sheet(self, who: EngineReporter) -> Sequence[PendingCommand]:
        """At most a look old, so that many who wait for one engine cost one read."""
        at, seen = self._seen.get(who.sheet, (0.0, ()))
        if time.monotonic() - at < LOOK / 2:
            return seen
        stored = (await self.documents.get([who.sheet])).get(who.sheet)
        return self._remember(who.sheet, _waiting(stored) if stored is not None else ())

    def _remember(self, sheet: str, waiting: Sequence[PendingCommand]) -> Sequence[PendingCommand]:
        self._seen[sheet] = (time.monotonic(), waiting)
        self._seen.move_to_end(sheet)
        while len(self._seen) > SHEETS:
            self._seen.popitem(last=False)
        return waiting

    async def _rewrite(self, who: EngineReporter, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for _ in range(TRIES):
            stored = (await self.documents.get([who.sheet])).get(who.sheet)
            before: dict[str, Any] = dict(stored.document.body) if stored is not None else {"next": 1, "open": []}
            after = change(before)
            if after == before:
                return
            document = Document(who.sheet, who.tenant, SHEET_KIND, after)
            (result,) = await self.documents.put([(document, stored.version if stored is not None else None)])
            if isinstance(result, Written):
                self._remember(who.sheet, _entries(after))
                self._tell()
                return
        raise Transient("the engine's commands could not be stored; try again")

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return


def _order(order: str) -> str:
    return f"{ORDER}:{order}"


def _answer(order: str) -> str:
    return f"{ANSWER}:{order}"


def _waiting(stored: StoredDocument) -> Sequence[PendingCommand]:
    return _entries(stored.document.body)


def _entries(body: Mapping[str, Any]) -> Sequence[PendingCommand]:
    return [PendingCommand(one["n"], one["id"], one["case"], one["item"]) for one in body["open"]]


def _added(sheet: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    if any(one["id"] == entry["id"] for one in sheet["open"]):
        return sheet
    if len(sheet["open"]) >= MAX_OPEN:
        raise Conflict(f"{MAX_OPEN} commands already wait for the engine")
    return {"next": sheet["next"] + 1, "open": [*sheet["open"], {"n": sheet["next"], **entry}]}


def _without(sheet: dict[str, Any], order: str) -> dict[str, Any]:
    return sheet | {"open": [one for one in sheet["open"] if one["id"] != order]}
