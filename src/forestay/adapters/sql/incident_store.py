"""Incidents on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
import structlog
from sqlalchemy import ColumnElement, bindparam, func, literal, or_, select, tuple_

from forestay.adapters.sql.database import SqlDatabase
from forestay.adapters.sql.errors import VENDOR_ERRORS, meaning, translated
from forestay.adapters.sql.rows import TERM, Row, check_key, escaped, to_json, unescaped
from forestay.adapters.sql.search import in_steps, read_cursor, tallied, write_cursor
from forestay.adapters.sql.tables import STANDING_NUMBERS, STANDING_TEXT, papers, standings
from forestay.domain.exceptions.incidents.inbox import InboxTally, asks_approval
from forestay.domain.exceptions.incidents.incident import (
    MAX_DOCUMENT,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    StepRecord,
    decision_id,
)
from forestay.formats.rules.incident_json import from_document, to_document
from forestay.formats.text.readable import Readable
from forestay.ports.errors import Permanent, Unreadable
from forestay.ports.exceptions.incident_store import (
    COUNT_FIELDS,
    MAX_FOUND,
    MAX_PILES,
    SORT_FIELDS,
    IncidentPage,
    IncidentQuery,
    StoredIncidentStatus,
    tally_bounds,
)
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, WriteResult, Written

_log = structlog.get_logger(__name__)
_Paper = TypeVar("_Paper", Incident, Decision, StepRecord)


class SqlIncidentStore:
    """Fills the port `IncidentStore`, in the database of the job store, which opens and closes it."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))

    async def add_incidents(self, incidents: Sequence[tuple[Incident, IncidentStatus]]) -> Sequence[bool]:
        places = {standing.id: _row(standing, 1) for _, standing in reversed(incidents)}
        added = await self._add([(one.id, one.id, one) for one, _ in incidents])
        if places:
            with translated():
                await self.database.create(standings, list(places.values()))
        return added

    async def get_incidents(self, ids: Sequence[str]) -> Mapping[str, Incident]:
        return {one.id: one for one in await self._get(Incident, ids)}

    async def get_standings(self, ids: Sequence[str]) -> Mapping[str, StoredIncidentStatus]:
        wanted = self.database.dialect.any_of(standings.c.id, [escaped(one) for one in ids])
        found = await self.database.rows(
            select(standings.c.id, standings.c.version, standings.c.document).where(wanted)
        )
        rows = ((unescaped(name), row) for name, *row in found)
        read, spoilt = self.readable.split(rows, lambda row: _stored(*row))
        if spoilt:
            raise Unreadable(spoilt, "incident status")
        return {stored.standing.id: stored for stored in read}

    async def put_standings(self, standings: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        return await self._put(standings)

    async def _put(self, wanted: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        rows = [_row(one, expected.number + 1) for one, expected in wanted if expected.term == TERM]
        done: set[str] = set()
        if rows:
            try:
                done = await self.database.write(standings, (), rows)
            except VENDOR_ERRORS as error:
                return [Unknown(str(meaning(error)))] * len(wanted)
        return [
            Written(Version(expected.number + 1, TERM))
            if escaped(one.id) in done and expected.term == TERM
            else Conflicted("it is not at the expected version")
            for one, expected in wanted
        ]

    async def find(
        self, query: IncidentQuery, *, sort: str = "-at", limit: int = 100, cursor: str | None = None
    ) -> IncidentPage:
        field, down = sort.removeprefix("-"), sort.startswith("-")
        if field not in SORT_FIELDS:
            raise Permanent(f"incidents cannot be sorted by {field!r}")
        if not 1 <= limit <= MAX_FOUND:
            raise Permanent(f"the limit of a page is 1 to {MAX_FOUND} incidents, not {limit}")
        place = standings.c[field]
        wanted = select(standings.c.version, standings.c.document, place, standings.c.id).where(*_conditions(query))
        by_id = standings.c.id.desc() if down else standings.c.id.asc()
        wanted = wanted.order_by((place.desc() if down else place.asc()).nulls_last(), by_id).limit(limit + 1)
        if cursor is not None:
            value, name = read_cursor(cursor, sort, place)
            wanted = wanted.where(_after(place, value, name, down=down))
        found = await self.database.rows(wanted)
        more = write_cursor(sort, found[limit - 1][2], found[limit - 1][3]) if len(found) > limit else None
        rows = ((unescaped(name), (version, document)) for version, document, _, name in found[:limit])
        return IncidentPage(self.readable.each(rows, lambda row: _stored(*row)), more)

    async def count(self, query: IncidentQuery, *, by: str) -> Mapping[str, int]:
        if by not in COUNT_FIELDS:
            raise Permanent(f"incidents cannot be counted by {by!r}")
        place, many = standings.c[by], func.count()
        wanted = select(place, many).where(*_conditions(query)).group_by(place)
        found = await self.database.rows(wanted.order_by(many.desc(), place).limit(MAX_FOUND))
        return {unescaped(value): total for value, total in found}

    async def inbox_tallies(self, query: IncidentQuery) -> Sequence[InboxTally]:
        place = standings.c
        kept = [place[name] for name in ("state", "second", "group", "cause", "owner")]
        # The time before the id, so that the least text is the oldest's.
        first = func.min(self.database.dialect.padded(place.at) + literal(":") + place.id)
        wanted = select(*kept, func.count(), func.sum(place.core_seconds), first).where(*_conditions(query))
        found = await self.database.rows(wanted.group_by(*kept).limit(MAX_PILES))
        return [
            InboxTally(
                IncidentState(state),
                bool(second),
                unescaped(group),
                unescaped(cause),
                unescaped(owner),
                many,
                int(cost or 0),
                unescaped(oldest.partition(":")[2]),
                int(oldest.partition(":")[0]),
            )
            for state, second, group, cause, owner, many, cost, oldest in found
        ]

    async def tally(self, query: IncidentQuery, *, step: int, by: str) -> Sequence[Mapping[str, int]]:
        since, steps = tally_bounds(query, step, by)
        wanted = tallied(standings.c.at, since, step, standings.c[by], _conditions(query))
        return in_steps(await self.database.rows(wanted), steps)

    async def add_decisions(self, decisions: Sequence[Decision]) -> Sequence[bool]:
        return await self._add([(one.id, one.incident, one) for one in decisions])

    async def get_decision(self, incident: str, n: int) -> Decision | None:
        found = await self._get(Decision, [decision_id(incident, n)])
        return found[0] if found else None

    async def get_decisions(self, names: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Decision]:
        found = await self._get(Decision, [decision_id(*one) for one in names])
        return {(one.incident, one.n): one for one in found}

    async def decisions_of(self, incidents: Sequence[str]) -> Sequence[Decision]:
        wanted = self.database.dialect.any_of(papers.c.incident, [escaped(one) for one in incidents])
        found = await self._bodies(Decision, wanted & (papers.c.kind == Decision.__name__))
        return self.readable.each(found, lambda body: _paper(Decision, body))

    async def decisions(self, incident: str) -> Sequence[Decision]:
        return sorted(await self._of(Decision, incident), key=lambda one: one.n)

    async def add_steps(self, steps: Sequence[StepRecord]) -> Sequence[bool]:
        return await self._add([(one.id, one.incident, one) for one in steps])

    async def get_steps(self, ids: Sequence[str]) -> Mapping[str, StepRecord]:
        return {one.id: one for one in await self._get(StepRecord, ids)}

    async def steps(self, incident: str) -> Sequence[StepRecord]:
        return sorted(await self._of(StepRecord, incident), key=lambda one: (one.n, one.step, one.mark))

    async def _add(self, wanted: Sequence[tuple[str, str, Incident | Decision | StepRecord]]) -> Sequence[bool]:
        rows: dict[str, Row] = {}
        first: dict[str, int] = {}
        for place, (name, incident, document) in enumerate(wanted):
            if first.setdefault(name, place) == place:
                check_key(name, name)
                body = _bounded(to_json(to_document(document), name), name)
                rows[name] = (_key(document, name), escaped(incident), type(document).__name__, body)
        if not rows:
            return []
        with translated():
            added = await self.database.create(papers, list(rows.values()))
        return [
            first[name] == place and _key(document, name) in added for place, (name, _, document) in enumerate(wanted)
        ]

    async def _get(self, kind: type[_Paper], ids: Sequence[str]) -> list[_Paper]:
        names = [_key(kind, one) for one in ids]
        wanted = self.database.dialect.any_of(papers.c.id, names)
        read, spoilt = self.readable.split(await self._bodies(kind, wanted), lambda body: _paper(kind, body))
        if spoilt:
            raise Unreadable(spoilt, f"documents of the kind {kind.__name__}")
        return read

    async def _of(self, kind: type[_Paper], incident: str) -> list[_Paper]:
        wanted = (papers.c.incident == escaped(incident)) & (papers.c.kind == kind.__name__)
        return self.readable.each(await self._bodies(kind, wanted), lambda body: _paper(kind, body))

    async def _bodies(self, kind: type[object], wanted: ColumnElement[bool]) -> Sequence[tuple[str, bytes]]:
        """Names, as callers give them, and bodies."""
        found = await self.database.rows(select(papers.c.id, papers.c.body).where(wanted).limit(MAX_FOUND * 10))
        return [(unescaped(name.removeprefix(f"{kind.__name__}:")), body) for name, body in found]


def _paper(kind: type[_Paper], body: bytes) -> _Paper:
    return from_document(kind, orjson.loads(body))


def _key(document: object, name: str) -> str:
    """Incidents, decisions and steps share a table; their ids could be the same."""
    kind = document if isinstance(document, type) else type(document)
    return f"{kind.__name__}:{escaped(name)}"


def _bounded(body: bytes, what: str) -> bytes:
    if len(body) > MAX_DOCUMENT:
        raise Permanent(f"{what[:80]!r} has {len(body)} bytes as JSON; the limit is {MAX_DOCUMENT}")
    return body


def _row(standing: IncidentStatus, version: int) -> Row:
    data = to_document(standing)
    for name in ("id", "case", "item", "job", "flow", "owner"):
        check_key(data[name], standing.id)
    texts = [escaped(data[name]) for name in STANDING_TEXT]
    numbers = [data[name] for name in STANDING_NUMBERS]
    counted = (asks_approval(standing), standing.core_seconds)
    return (
        escaped(standing.id),
        version,
        *texts,
        *numbers,
        *counted,
        _bounded(to_json(data, standing.id), standing.id),
    )


def _stored(version: int, document: bytes) -> StoredIncidentStatus:
    return StoredIncidentStatus(from_document(IncidentStatus, orjson.loads(document)), Version(version, TERM))


def _conditions(query: IncidentQuery) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = [standings.c[name] == escaped(value) for name, value in query.texts().items()]
    if query.states:
        # Spelt out in the statement: a database uses an index of some states only if it sees that no others are meant.
        states = sorted(state.value for state in query.states)
        wanted.append(standings.c.state.in_(bindparam(None, states, expanding=True, literal_execute=True)))
    if query.jobs:
        wanted.append(standings.c.job.in_(sorted(escaped(one) for one in query.jobs)))
    if query.since is not None:
        wanted.append(standings.c.at >= query.since)
    if query.changed is not None:
        wanted.append(standings.c.changed >= query.changed)
    if query.until is not None:
        wanted.append(standings.c.at < query.until)
    if query.due is not None:
        wanted.append(standings.c.due <= query.due)
    return wanted


def _after(place: ColumnElement[Any], value: object, name: str, *, down: bool) -> ColumnElement[bool]:
    here, last = standings.c.id, literal(name, standings.c.id.type)
    if value is None:
        return place.is_(None) & (here < last if down else here > last)
    pair, end = tuple_(place, here), tuple_(literal(value, place.type), last)
    later: ColumnElement[bool] = pair < end if down else pair > end
    return or_(later, place.is_(None)) if place is standings.c.due else later
