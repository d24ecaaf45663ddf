"""Stores the listings that scatters iterate over, in pages, so that runs carry only a name and a count.

Pages are create-only records. A listing of the files that exist when a task begins is named by the digest of its run and members, and a record under the
round's own name refers to it: a repeat gets the first listing. A watched listing is named by its round and grows by pages: of two processes that watch
at once and write the same page, one finds the other's.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from forestay.ports.clock import Clock
from forestay.ports.data.file_lists import MAX_LISTED, FileLists
from forestay.ports.errors import NotFound, Permanent
from forestay.ports.jobs.job_store import JobStore, Record

PAGE = 1000
"""The most members of a page."""
CACHED_PAGES = 300
CACHED_NAMES = 2_000_000
"""Names of watched files that an orchestrator keeps in memory, all listings together."""
PAGES_AT_ONCE = 20
GATHER = ((100, 0.3), (5000, 5.0), (MAX_LISTED, 30.0))
"""Seconds that new files wait for others, by the number of earlier files: the first start almost at once, many arrive in few batches."""


@dataclass(frozen=True, slots=True)
class ListingSummary:
    """The part of a listing that a run stores."""

    listing: str
    count: int
    ended: bool = True


class ListingPage(NamedTuple):
    first: int
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class ListingRound:
    """The round to which a listing belongs."""

    tenant: str
    run: str
    work: str
    dimension: str

    @property
    def name(self) -> str:
        text = orjson.dumps([self.tenant, self.run, self.work, self.dimension])
        return hashlib.sha256(text).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Watch:
    """A pattern of files to watch for, and the conditions that end the watch."""

    pattern: str
    until_file: str = ""
    until_count: int | None = None
    until_quiet: int | None = None
    begun: int = 0
    """Milliseconds since 1970; the quiet time counts from here until a file appears."""


@dataclass(slots=True)
class _Seen:
    """The part of a watched listing that this process has read."""

    pages: int = 0
    names: set[str] = field(default_factory=set)
    at: int = 0
    """When the last page was written."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class Listings:
    """The service."""

    store: JobStore
    clock: Clock
    files: FileLists
    every: float = 1.0
    """Seconds between polls of a watched folder."""
    gather: Sequence[tuple[int, float]] = GATHER
    longest: float = 300.0
    """Seconds after which a watch reports that nothing is new."""
    _pages: OrderedDict[tuple[str, str, int], ListingPage] = field(default_factory=OrderedDict)
    _seen: OrderedDict[str, _Seen] = field(default_factory=OrderedDict)

    async def list_files(self, round_: ListingRound, pattern: str, *, lines: bool) -> ListingSummary:
        """Store the present listing; a repeat returns the one stored first. `Permanent` if it cannot be listed."""
        head = f"listing-of:{round_.name}"
        before = await self.store.get_record(head)
        if before is None:
            members = await (self.files.lines(pattern) if lines else self.files.files(pattern))
            # With the run: what a run has stored is removed with it, and another may list the same files.
            digest = hashlib.sha256(orjson.dumps([round_.run, members])).hexdigest()[:32]
            await self._write(round_, digest, _cut(members, 0))
            body: dict[str, object] = {"listing": digest, "count": len(members)}
            record = Record(head, round_.tenant, "listing", round_.run, self.clock.now(), body)
            if (await self.store.add_records([record]))[0]:
                return ListingSummary(digest, len(members))
            before = await self.store.get_record(head)
            if before is None:
                raise NotFound(f"the listing of {round_.work} cannot be read back")
        return ListingSummary(str(before.body["listing"]), int(str(before.body["count"])))

    async def _write(
        self, round_: ListingRound, listing: str, pages: Sequence[ListingPage], number: int = 0
    ) -> Sequence[bool]:
        now = self.clock.now()
        records = [
            Record(
                page_name(round_.tenant, listing, number + place), round_.tenant, "listing-page", round_.run, now,
                {"first": page.first, "members": list(page.members)},
            )
            for place, page in enumerate(pages)
        ]  # fmt: skip
        written: list[bool] = []
        for start in range(0, len(records), PAGES_AT_ONCE):
            written += await self.store.add_records(records[start : start + PAGES_AT_ONCE])
        return written

    # Watching

    async def watch(self, round_: ListingRound, watch: Watch, known: int) -> ListingSummary:
        """Wait until there are more than the known members, or no more will come; after a long time without either, return the same again."""
        listing = round_.name
        seen = self._seen.setdefault(listing, _Seen())
        self._seen.move_to_end(listing)
        async with seen.turn:
            await self._catch_up(round_, seen)
        self._forget()
        began = self.clock.monotonic()
        first_new: float | None = None
        while True:
            if len(seen.names) > known:
                return ListingSummary(listing, len(seen.names), ended=_full(watch, seen))
            started = self.clock.monotonic()
            closed = bool(watch.until_file) and await self.files.there(watch.until_file)
            new = [file for file in await self.files.files(watch.pattern) if file not in seen.names]
            if watch.until_count is not None:
                new = new[: max(0, watch.until_count - len(seen.names))]
            at = self.clock.monotonic()
            first_new = at if new and first_new is None else first_new
            full = watch.until_count is not None and len(seen.names) + len(new) >= watch.until_count
            waited = at - first_new if first_new is not None else 0.0
            if new and (closed or full or len(new) >= PAGE // 2 or waited >= self._patience(len(seen.names))):
                if len(seen.names) + len(new) > MAX_LISTED:
                    raise Permanent(f"more than {MAX_LISTED} files appeared at {watch.pattern}")
                async with seen.turn:
                    await self._append(round_, seen, watch, new)
                return ListingSummary(listing, len(seen.names), ended=closed or _full(watch, seen))
            if not new:
                quiet = self.clock.now() - max(seen.at, watch.begun)
                ended = watch.until_quiet is not None and quiet >= 1000 * watch.until_quiet
                if closed or full or ended or at - began >= self.longest:
                    return ListingSummary(listing, len(seen.names), ended=closed or full or ended)
            # A folder that takes long to read is polled less often.
            await asyncio.sleep(max(self.every, 5 * (at - started)))

    def _patience(self, known: int) -> float:
        return next(seconds for most, seconds in self.gather if known <= most)

    async def _append(self, round_: ListingRound, seen: _Seen, watch: Watch, new: Sequence[str]) -> None:
        """Append members. If another process was faster, read what it wrote instead."""
        new = [name for name in new if name not in seen.names]
        if watch.until_count is not None:
            new = new[: max(0, watch.until_count - len(seen.names))]
        for page in _cut(new, len(seen.names)):
            (mine,) = await self._write(round_, round_.name, [page], seen.pages)
            if not mine:
                break
            seen.pages += 1
            seen.names.update(page.members)
            seen.at = self.clock.now()
        await self._catch_up(round_, seen)

    async def _catch_up(self, round_: ListingRound, seen: _Seen) -> None:
        while True:
            record = await self.store.get_record(page_name(round_.tenant, round_.name, seen.pages))
            if record is None:
                break
            seen.pages += 1
            seen.names.update(_page(record).members)
            seen.at = record.at

    def _forget(self) -> None:
        while len(self._seen) > 1 and sum(len(listing.names) for listing in self._seen.values()) > CACHED_NAMES:
            self._seen.popitem(last=False)

    # Reading

    async def members(self, tenant: str, listing: str, places: Iterable[int]) -> Mapping[int, str]:
        """The members at these positions; `NotFound` if the listing is shorter."""
        members: dict[int, str] = {}
        number, page = 0, ListingPage(0, ())
        for place in sorted(places):
            if not page.first <= place < page.first + len(page.members):
                number, page = await self._holding(tenant, listing, place, number + 1)
            members[place] = page.members[place - page.first]
        return members

    async def _holding(self, tenant: str, listing: str, place: int, likely: int) -> tuple[int, ListingPage]:
        """The page that holds a member. No page has more than `PAGE`, so the member's position gives the first page that may hold it."""
        low = place // PAGE
        for guess in (low, likely):
            page = await self._read(tenant, listing, guess)
            if page is not None and page.first <= place < page.first + len(page.members):
                return guess, page
        step = 1
        while (page := await self._read(tenant, listing, low + step)) is not None and page.first <= place:
            low, step = low + step, 2 * step
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            page = await self._read(tenant, listing, middle)
            low, high = (middle, high) if page is not None and page.first <= place else (low, middle)
        page = await self._read(tenant, listing, low)
        if page is None or not page.first <= place < page.first + len(page.members):
            raise NotFound(f"listing {listing} has no member {place}")
        return low, page

    async def _read(self, tenant: str, listing: str, number: int) -> ListingPage | None:
        key = tenant, listing, number
        known = self._pages.get(key)
        if known is not None:
            self._pages.move_to_end(key)
            return known
        record = await self.store.get_record(page_name(tenant, listing, number))
        if record is None or record.tenant != tenant:
            return None
        page = self._pages[key] = _page(record)
        while len(self._pages) > CACHED_PAGES:
            self._pages.popitem(last=False)
        return page


def page_name(tenant: str, listing: str, number: int) -> str:
    return f"listing:{tenant}:{listing}:{number}"


def _cut(members: Sequence[str], first: int) -> list[ListingPage]:
    return [ListingPage(first + start, members[start : start + PAGE]) for start in range(0, len(members), PAGE)]


def _page(record: Record) -> ListingPage:
    members = record.body["members"]
    assert isinstance(members, Sequence)  # noqa: S101 - written above
    return ListingPage(int(str(record.body["first"])), members)


def _full(watch: Watch, seen: _Seen) -> bool:
    return watch.until_count is not None and len(seen.names) >= watch.until_count
