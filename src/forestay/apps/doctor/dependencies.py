"""Checks what the processes depend on: the store, Temporal, storage elements; and whether reconcilers and orchestrators run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from forestay.adapters.system.clock import SystemClock
from forestay.adapters.temporal.dev_server import HOW_TO_GET_TEMPORAL, find_program
from forestay.apps.compose.components import build_storage_access, make_engine
from forestay.apps.compose.stores import inspect_store, open_stores
from forestay.apps.config.settings import Settings
from forestay.apps.doctor.check_result import GOOD, MISSING, NOTE, CheckResult
from forestay.domain.data.storage_element import AccessProtocol, StorageElement
from forestay.ports.errors import Permanent, PortError, Transient
from forestay.ports.inspections import EngineInspection, StoreInspection
from forestay.services.data.storage_access import StorageAccess
from forestay.services.jobs.store_marks import GenerationStatus, generation_of
from forestay.services.pilots.reconciler_registry import ReconcilerReport, reconcilers_known

PATIENCE = 15.0
SKEW = 5.0
"""The clock difference in seconds that is reported; leases are each measured by a single clock and are not affected."""
Answer = TypeVar("Answer")


def _ask(question: Callable[[], Awaitable[Answer]]) -> Answer:
    """An answer within a short time. `Transient` or `Permanent` if there is none."""

    async def soon() -> Answer:
        try:
            async with asyncio.timeout(PATIENCE):
                return await question()
        except TimeoutError as error:
            raise Transient(f"no answer within {PATIENCE:.0f} seconds") from error

    try:
        return asyncio.run(soon())
    except PortError:
        raise
    except (OSError, ValueError) as error:
        raise Transient(str(error) or type(error).__name__) from error


def _public(url: str) -> str:
    """A store's URL without the credentials before its host."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def store(settings: Settings) -> Iterator[CheckResult]:
    url = settings.store_url
    shown = _public(url)
    try:
        look: StoreInspection = _ask(lambda: inspect_store(url))
    except PortError as error:
        yield CheckResult(
            "store",
            MISSING,
            f"{shown}: {error}",
            "Start the store, or correct its address or password: FORESTAY_STORE. No job is claimed or completed until then.",
        )
        return
    for words in look.wrong:
        yield CheckResult("store", MISSING, f"{shown}: {words}", "See the how-to pages on backup and upgrades.")
    for words in look.notes:
        yield CheckResult("store", NOTE, f"{shown}: {words}")
    if look.ahead is not None and abs(look.ahead) > SKEW:
        way = "ahead of" if look.ahead > 0 else "behind"
        yield CheckResult(
            "clock",
            MISSING,
            f"the store's clock is {abs(look.ahead):.0f} seconds {way} this machine's",
            "Synchronise both with NTP (chrony, systemd-timesyncd): waits, tokens and ages depend on clocks.",
        )
    elif look.ahead is not None:
        yield CheckResult("clock", GOOD, f"within {SKEW:.0f} seconds of the store's")
    if look.lacking:
        named = bool(settings.store)
        yield CheckResult(
            "store",
            MISSING if named else NOTE,
            f"{shown}: {look.product}, without {', '.join(look.lacking)}",
            "The first server that starts creates them: forestay server. If the store should contain jobs, the address is wrong.",
        )
        return
    if not look.wrong:
        yield CheckResult("store", GOOD, f"{shown}: {look.product}, everything in place")
    yield from _said_in(url, needed=bool(settings.store))


def _said_in(url: str, *, needed: bool) -> Iterator[CheckResult]:
    """Checks of what the domain's processes have stored about themselves."""

    async def known() -> tuple[Sequence[ReconcilerReport], GenerationStatus]:
        stores = open_stores(url)
        try:
            return await reconcilers_known(stores.documents), await generation_of(stores.documents)
        finally:
            await stores.jobs.close()

    try:
        words, generation = _ask(known)
    except PortError as error:
        yield CheckResult("reconcilers", MISSING, str(error), "Fix the store first.")
        return
    if generation.unfinished:
        yield CheckResult(
            "generation",
            MISSING,
            f"a restore to generation {generation.number} was started and not finished",
            "Stop every server, reconciler and orchestrator, and run it again: forestay restored --reason TEXT",
        )
    now = SystemClock().now()
    alive = [word for word in words if not word.silent(now)]
    if alive:
        versions = sorted({report.version for report in alive})
        yield CheckResult("reconcilers", GOOD, f"{len(alive)} alive, version {', '.join(versions)}")
        return
    last = (
        f"the last report is from {words[0].name}, {(now - words[0].at) // 1000:,} seconds old"
        if words
        else "there never was one"
    )
    yield CheckResult(
        "reconcilers",
        MISSING if needed else NOTE,
        f"no reconciler is alive, so orphans, failures and completions of runs wait ({last})",
        "Start one or more: forestay reconciler",
    )


def temporal(settings: Settings) -> Iterator[CheckResult]:
    """Check Temporal: a running server, or its program."""
    if not settings.temporal:
        yield from _program(settings)
        return

    async def look() -> EngineInspection:
        from forestay.adapters.temporal.inspection import inspect_engine

        return await inspect_engine(make_engine(settings))

    where, namespace, queue = settings.temporal, settings.temporal_namespace, settings.task_queue
    try:
        inspection = _ask(look)
    except PortError as error:
        yield CheckResult(
            "temporal",
            MISSING,
            f"{where} does not respond: {error}",
            "Start it, or change FORESTAY_TEMPORAL. Runs do not advance until then; plain jobs do.",
        )
        return
    if not inspection.has_namespace:
        yield CheckResult(
            "temporal",
            MISSING,
            f"{where} has no namespace {namespace}",
            f"temporal operator namespace create --address {where} --namespace {namespace}, or change FORESTAY_TEMPORAL_NAMESPACE.",
        )
        return
    yield CheckResult("temporal", GOOD, f"{inspection.version} answers at {where}, namespace {namespace}")
    if settings.keep_days and inspection.keeps_days <= settings.keep_days:
        yield CheckResult(
            "pruning",
            NOTE,
            f"completed runs are removed after {inspection.keeps_days:.0f} days, jobs after {settings.keep_days}: jobs of removed runs may stay longer",
            f"temporal operator namespace update --address {where} --namespace {namespace} --retention {settings.keep_days + 1}d",
        )
    if inspection.orchestrators and inspection.hands:
        yield CheckResult("orchestrators", GOOD, f"{inspection.orchestrators} on the queue {queue}")
    else:
        yield CheckResult(
            "orchestrators",
            MISSING,
            f"no orchestrator polls the queue {queue}, so runs do not advance",
            "Start one or more: forestay orchestrator. If some are running, they have another FORESTAY_TASK_QUEUE or FORESTAY_TEMPORAL_NAMESPACE.",
        )


def _program(settings: Settings) -> Iterator[CheckResult]:
    if settings.temporal_program == "none":
        yield CheckResult("temporal", NOTE, "flows are disabled by FORESTAY_TEMPORAL_PROGRAM")
        return
    try:
        program = find_program(settings.temporal_program, os.environ, settings.cache)
    except Permanent as error:
        yield CheckResult("temporal", MISSING, str(error), HOW_TO_GET_TEMPORAL)
        return
    if program is not None:
        yield CheckResult("temporal", GOOD, f"{program.path} ({program.source})")
    else:
        words = "not installed; `forestay dev` downloads it at its first start, which needs the network"
        yield CheckResult("temporal", NOTE, words, HOW_TO_GET_TEMPORAL)


def storage(settings: Settings) -> Iterator[CheckResult]:
    """Check each storage element by the door that this machine would use."""
    reach = build_storage_access(settings)
    for element in reach.elements.values():
        yield _element(reach, element)


def _element(reach: StorageAccess, element: StorageElement) -> CheckResult:
    about, door = f"storage {element.name}", element.doors[0]
    if door.kind is AccessProtocol.FILE and not os.path.isdir(door.place("")):
        return CheckResult(
            about,
            NOTE,
            f"{door.base} is not a folder on this machine",
            "Pilots must be able to use it; servers only if they read results there.",
        )
    try:
        # A file that does not exist: an element that reports this is reachable and accepts our credentials.
        _ask(lambda: reach.read(element, ".forestay-doctor", 64))
    except PortError as error:
        return CheckResult(
            about, MISSING, f"{door.base}: {error}", "Start it, or correct its address and credentials in `storage`."
        )
    return CheckResult(about, GOOD, f"{door.base} answers")
