"""Sends commands to other engines and records the replies.

A command is a create-only document; so is the engine's reply. Between the two, the command is on the *command page* of the engine's reporter: one version-checked document
with the numbers of all waiting commands. An engine that was disconnected or killed reads the command page from its beginning and finds every unanswered command. A killed
server loses nothing: the process that repeats the step finds the command, and waits for the reply to it.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.engine_run import ENDED, EngineRun
from forestay.domain.flows.commands import AnswerVerb
from forestay.domain.flows.events import Verb
from forestay.domain.playbooks.engine_order import MAX_OPEN, EngineOrder, OrderOutcome, order_of
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.ports.flows.flow_engine import RunSummary
from forestay.ports.jobs.job_store import JobStore, Record, Written
from forestay.services.shared.document_update import update_document

RUN_KIND = "engine-run"
ENDED_KIND = "engine-run-ended"
COMMAND_PAGE_KIND = "engine-orders"
ORDER, ANSWER = "engine-order", "engine-answer"
TRIES = 20
AT_ONCE = 20
"""The most commands returned at a time."""
LOOK = 0.3
"""Seconds between polls of a command page that somebody waits for."""
SELDOM = 2.0
"""Seconds between polls for a slow reply."""
COMMAND_PAGES = 1_000
"""The most command pages that a process caches, for less than `LOOK`."""


class Unanswered(Transient):
    """The engine has not replied yet; the command is still valid."""


class EngineReporter(NamedTuple):
    """Represents an engine: commands for the runs that it reports are on its command page."""

    tenant: str
    engine: str
    subject: str

    @property
    def command_page(self) -> str:
        return f"{COMMAND_PAGE_KIND}:{self.tenant}:{self.engine}:{self.subject}"


class PendingCommand(NamedTuple):
    """A command on a command page."""

    n: int
    id: str
    run: str
    instance: str


class CommandReply(NamedTuple):
    """An engine's reply to a command."""

    outcome: OrderOutcome
    detail: str


@dataclass(slots=True)
class EngineCommands:
    """The service. It implements the port `ExceptionEngine` for all other engines."""

    documents: DocumentStore
    store: JobStore
    clock: Clock
    patience: float = 20.0
    """Seconds that a step waits for the engine before its caller has to repeat it."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _seen: OrderedDict[str, tuple[float, Sequence[PendingCommand]]] = field(default_factory=OrderedDict)

    # -- runs -------------------------------------------------------------------------------------------------

    async def find_run(self, run: str) -> EngineRun:
        """A run of another engine; `NotFound`."""
        engine_run = await self.known(run)
        if engine_run is None:
            raise NotFound(f"there is no run {run}")
        return engine_run

    async def known(self, run: str) -> EngineRun | None:
        """A run of another engine, if there is one."""
        stored = await self._stored(run)
        return EngineRun.from_plain(stored.document.body) if stored is not None else None

    async def change(self, run: str, make: Callable[[EngineRun | None], EngineRun]) -> EngineRun:
        """Update a run by one version-checked write; `Transient` if that cannot be done now."""

        def changed(stored: StoredDocument | None) -> tuple[Document | None, EngineRun]:
            before = EngineRun.from_plain(stored.document.body) if stored is not None else None
            after = make(before)
            if after == before:
                return None, after
            kind = ENDED_KIND if after.state in ENDED else f"{RUN_KIND}:{after.tenant}:{after.engine}"
            return Document(name, after.tenant, kind, after.as_plain()), after

        name = f"{RUN_KIND}:{run}"
        return await update_document(
            self.documents, name, changed, tries=TRIES, unsure="the run could not be stored; send it again"
        )

    async def open_runs(self, tenant: str, engine: str) -> Sequence[EngineRun]:
        """The runs of an engine that have not ended; up to a second old."""
        stored_documents = await self.documents.find(f"{RUN_KIND}:{tenant}:{engine}")
        return [EngineRun.from_plain(stored_document.document.body) for stored_document in stored_documents]

    async def describe(self, run: str) -> RunSummary:
        engine_run = await self.find_run(run)
        return RunSummary(
            engine_run.id,
            engine_run.tenant,
            engine_run.owner,
            engine_run.flow or engine_run.key,
            engine_run.version,
            engine_run.state,
            engine_run.started,
            engine_run.ended,
            engine_run.parent,
        )

    async def state(self, run: str) -> Mapping[str, Any]:
        engine_run = await self.find_run(run)
        instances = [
            {"id": name, "task": name.partition(":")[0], "state": state, "result": engine_run.results.get(name)}
            for name, state in engine_run.instances.items()
        ]
        outcome = engine_run.state if engine_run.state in ENDED else None
        known = {
            "params": dict(engine_run.data),
            "instances": instances,
            "outputs": dict(engine_run.results),
            "outcome": outcome,
        }
        return known | {
            "phase": "ended" if outcome else "running",
            "reason": "",
            "holders": [],
            "stack": [],
            "started": engine_run.started,
        }

    async def _stored(self, run: str) -> StoredDocument | None:
        name = f"{RUN_KIND}:{run}"
        return (await self.documents.get([name])).get(name)

    # -- sending commands --------------------------------------------------------------------------------------

    async def send_verb(self, run: str, verb: Verb) -> AnswerVerb:
        engine_run = await self.find_run(run)
        order = order_of(verb, run=run, key=engine_run.key)
        if order is None:
            return AnswerVerb(verb.id, accepted=False, detail="engines are not notified of exceptions")
        answer = await self.send(order)
        return AnswerVerb(verb.id, answer.outcome is OrderOutcome.DONE, answer.detail)

    async def send(self, order: EngineOrder, *, patience: float | None = None) -> CommandReply:
        """Send a command and wait for the reply; `Unanswered` if it takes longer. A repeat sends no second command."""
        run = await self.give(order)
        deadline = time.monotonic() + (self.patience if patience is None else patience)
        pause = LOOK
        while (answer := await self.answer(order.id)) is None:
            if time.monotonic() >= deadline:
                raise Unanswered(f"the engine {run.engine} has not replied to command {order.id} yet")
            await self._wait(pause)
            pause = min(SELDOM, pause * 1.5)
        return answer

    async def give(self, order: EngineOrder) -> EngineRun:
        """Put a command on its command page, unless it is answered. `NotFound`: the run has ended or never existed."""
        run = await self.find_run(order.run)
        if await self.answer(order.id) is not None:
            return run
        if run.state in ENDED and await self.store.get_record(_order(order.id)) is None:
            raise NotFound(f"the run {order.run} has ended")
        who = EngineReporter(run.tenant, run.engine, run.reporter)
        body = order.as_plain() | {"engine": run.engine, "reporter": run.reporter}
        await self.store.add_records([Record(_order(order.id), run.tenant, ORDER, run.id, order.at, body)])
        entry = {"id": order.id, "run": order.run, "task": order.instance}
        await self._rewrite(who, lambda command_page: _added(command_page, entry))
        if await self.answer(order.id) is not None:
            # It was answered between our two reads.
            await self.take_off(who, order.id)
        return run

    async def answer(self, order: str) -> CommandReply | None:
        """The engine's reply; ``None``: none yet."""
        record = await self.store.get_record(_answer(order))
        return (
            None
            if record is None
            else CommandReply(OrderOutcome(str(record.body["outcome"])), str(record.body["detail"]))
        )

    # -- the engine's side -------------------------------------------------------------------------------------

    async def orders(self, who: EngineReporter, *, after: int = 0, run: str = "") -> Sequence[tuple[int, EngineOrder]]:
        """The waiting commands with their numbers, lowest first; only those of one run if it is given."""
        command_page = await self._command_page(who)
        wanted = [command for command in command_page if command.n > after and (not run or command.run == run)][
            :AT_ONCE
        ]
        records = await asyncio.gather(*(self.store.get_record(_order(command.id)) for command in wanted))
        pairs = zip(wanted, records, strict=True)
        return [(command.n, EngineOrder.from_plain(record.body)) for command, record in pairs if record is not None]

    async def record_reply(
        self, who: EngineReporter, order: str, reply: CommandReply
    ) -> tuple[EngineOrder, CommandReply]:
        """Store an engine's reply; the first one is kept. `NotFound`: there is no such command for it."""
        record = await self.store.get_record(_order(order))
        if record is None or record.tenant != who.tenant:
            raise NotFound(f"there is no command {order}")
        if (record.body.get("engine"), record.body.get("reporter")) != (who.engine, who.subject):
            raise NotFound(f"there is no command {order}")
        body = {"order": order, "outcome": reply.outcome.value, "detail": reply.detail}
        await self.store.add_records([Record(_answer(order), who.tenant, ANSWER, record.job, self.clock.now(), body)])
        kept = await self.answer(order)
        if kept is None:
            raise Transient("the reply could not be read back; send it again")
        self._tell()
        return EngineOrder.from_plain(record.body), kept

    async def open_commands(self) -> Sequence[tuple[EngineReporter, Sequence[PendingCommand]]]:
        """The commands on all command pages, by their engine's reporter."""
        pages = await self.documents.find(COMMAND_PAGE_KIND)
        return [(_reporter(stored.document.id), _waiting(stored)) for stored in pages]

    async def reply_to(self, command: PendingCommand) -> tuple[EngineOrder, CommandReply] | None:
        """A command that is still on its page although it has its reply, with that reply."""
        reply = await self.answer(command.id)
        record = await self.store.get_record(_order(command.id)) if reply is not None else None
        return (EngineOrder.from_plain(record.body), reply) if reply is not None and record is not None else None

    async def take_off(self, who: EngineReporter, order: str) -> None:
        """Remove a finished command from the command page."""
        await self._rewrite(who, lambda command_page: _without(command_page, order))

    async def wait(self, seconds: float) -> None:
        """Wait until a command or a reply was stored in this process, or until the time is over."""
        await self._wait(min(seconds, LOOK))

    # -- command pages -----------------------------------------------------------------------------------------

    async def _command_page(self, who: EngineReporter) -> Sequence[PendingCommand]:
        """The page, at most one poll interval old, so that many waiters for one engine cost one read."""
        at, seen = self._seen.get(who.command_page, (0.0, ()))
        if time.monotonic() - at < LOOK / 2:
            return seen
        stored = (await self.documents.get([who.command_page])).get(who.command_page)
        return self._remember(who.command_page, _waiting(stored) if stored is not None else ())

    def _remember(self, command_page: str, waiting: Sequence[PendingCommand]) -> Sequence[PendingCommand]:
        self._seen[command_page] = (time.monotonic(), waiting)
        self._seen.move_to_end(command_page)
        while len(self._seen) > COMMAND_PAGES:
            self._seen.popitem(last=False)
        return waiting

    async def _rewrite(self, who: EngineReporter, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        for _ in range(TRIES):
            stored = (await self.documents.get([who.command_page])).get(who.command_page)
            before: dict[str, Any] = dict(stored.document.body) if stored is not None else {"next": 1, "open": []}
            after = change(before)
            if after == before:
                return
            document = Document(who.command_page, who.tenant, COMMAND_PAGE_KIND, after)
            (result,) = await self.documents.put([(document, stored.version if stored is not None else None)])
            if isinstance(result, Written):
                self._remember(who.command_page, _entries(after))
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


def _reporter(command_page: str) -> EngineReporter:
    _, tenant, rest = command_page.split(":", 2)
    engine, _, subject = rest.partition(":")
    return EngineReporter(tenant, engine, subject)


def _order(order: str) -> str:
    return f"{ORDER}:{order}"


def _answer(order: str) -> str:
    return f"{ANSWER}:{order}"


def _waiting(stored: StoredDocument) -> Sequence[PendingCommand]:
    return _entries(stored.document.body)


def _entries(body: Mapping[str, Any]) -> Sequence[PendingCommand]:
    return [PendingCommand(command["n"], command["id"], command["run"], command["task"]) for command in body["open"]]


def _added(command_page: dict[str, Any], entry: dict[str, Any]) -> dict[str, Any]:
    if any(command["id"] == entry["id"] for command in command_page["open"]):
        return command_page
    if len(command_page["open"]) >= MAX_OPEN:
        raise Conflict(f"{MAX_OPEN} commands already wait for the engine")
    return {
        "next": command_page["next"] + 1,
        "open": [*command_page["open"], {"n": command_page["next"], **entry}],
    }


def _without(command_page: dict[str, Any], order: str) -> dict[str, Any]:
    return command_page | {"open": [command for command in command_page["open"] if command["id"] != order]}
