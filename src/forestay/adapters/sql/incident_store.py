"""Incidents on PostgreSQL or SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import orjson
import structlog
from sqlalchemy import ColumnElement, and_, bindparam, func, literal, or_, select, tuple_

from forestay.adapters.sql.database import SqlDatabase
from forestay.adapters.sql.errors import VENDOR_ERRORS, meaning, translated
from forestay.adapters.sql.rows import TERM, Row, check_key, escaped, to_json, unescaped
from forestay.adapters.sql.search import in_steps, read_cursor, tallied, write_cursor
from forestay.adapters.sql.tables import STATUS_NUMBERS, STATUS_TAGS, STATUS_TEXT, papers, statuses
from forestay.domain.exceptions.incidents.inbox import InboxTally, WaitCondition, asks_approval
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
    """Implements the port `IncidentStore`, in the database of the job store, which opens and closes it."""

    def __init__(self, database: SqlDatabase) -> None:
        self.database = database
        self.readable = Readable(lambda name, why: _log.error("a document cannot be read", document=name, why=why))

    async def add_incidents(self, incidents: Sequence[tuple[Incident, IncidentStatus]]) -> Sequence[bool]:
        places = {status.id: _row(status, 1) for _, status in reversed(incidents)}
        added = await self._add([(incident.id, incident.id, incident) for incident, _ in incidents])
        if places:
            with translated():
                await self.database.create(statuses, list(places.values()))
        return added

    async def get_incidents(self, ids: Sequence[str]) -> Mapping[str, Incident]:
        return {incident.id: incident for incident in await self._get(Incident, ids)}

    async def get_statuses(self, ids: Sequence[str]) -> Mapping[str, StoredIncidentStatus]:
        wanted = self.database.dialect.any_of(statuses.c.id, [escaped(identifier) for identifier in ids])
        found_rows = await self.database.rows(
            select(statuses.c.id, statuses.c.version, statuses.c.document).where(wanted)
        )
        rows = ((unescaped(name), row) for name, *row in found_rows)
        read, spoilt = self.readable.split(rows, lambda row: _stored(*row))
        if spoilt:
            raise Unreadable(spoilt, "incident status")
        return {stored.status.id: stored for stored in read}

    async def put_statuses(self, statuses: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        return await self._put(statuses)

    async def _put(self, wanted: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        rows = [_row(status, expected.number + 1) for status, expected in wanted if expected.term == TERM]
        done: set[str] = set()
        if rows:
            try:
                done = await self.database.write(statuses, (), rows)
            except VENDOR_ERRORS as error:
                return [Unknown(str(meaning(error)))] * len(wanted)
        return [
            Written(Version(expected.number + 1, TERM))
            if escaped(status.id) in done and expected.term == TERM
            else Conflicted("it is not at the expected version")
            for status, expected in wanted
        ]

    async def find(
        self, query: IncidentQuery, *, sort: str = "-at", limit: int = 100, cursor: str | None = None
    ) -> IncidentPage:
        field, down = sort.removeprefix("-"), sort.startswith("-")
        if field not in SORT_FIELDS:
            raise Permanent(f"incidents cannot be sorted by {field!r}")
        if not 1 <= limit <= MAX_FOUND:
            raise Permanent(f"the limit of a page is 1 to {MAX_FOUND} incidents, not {limit}")
        place = statuses.c[field]
        wanted = select(statuses.c.version, statuses.c.document, place, statuses.c.id).where(*_conditions(query))
        by_id = statuses.c.id.desc() if down else statuses.c.id.asc()
        wanted = wanted.order_by((place.desc() if down else place.asc()).nulls_last(), by_id).limit(limit + 1)
        if cursor is not None:
            value, name = read_cursor(cursor, sort, place)
            wanted = wanted.where(_after(place, value, name, down=down))
        found_rows = await self.database.rows(wanted)
        more = (
            write_cursor(sort, found_rows[limit - 1][2], found_rows[limit - 1][3]) if len(found_rows) > limit else None
        )
        rows = ((unescaped(name), (version, document)) for version, document, _, name in found_rows[:limit])
        return IncidentPage(self.readable.each(rows, lambda row: _stored(*row)), more)

    async def refresh(self) -> None:
        """Nothing to do: what is acknowledged can be seen."""

    async def count(self, query: IncidentQuery, *, by: str) -> Mapping[str, int]:
        if by not in COUNT_FIELDS:
            raise Permanent(f"incidents cannot be counted by {by!r}")
        place: ColumnElement[Any] = func.coalesce(statuses.c[by], "") if by in STATUS_TAGS else statuses.c[by]
        many = func.count()
        wanted = select(place, many).where(*_conditions(query)).group_by(place)
        rows = await self.database.rows(wanted.order_by(many.desc(), place).limit(MAX_FOUND))
        return {unescaped(value): total for value, total in rows}

    async def inbox_tallies(self, query: IncidentQuery) -> Sequence[InboxTally]:
        place = statuses.c
        kept = [place[name] for name in ("state", "second", "group", "fingerprint", "cause", "owner")]
        # The time before the id, so that the least text is the oldest's.
        first = func.min(self.database.dialect.padded(place.at) + literal(":") + place.id)
        hosts = func.min(place.host), func.max(place.host)
        costs = func.count(), func.sum(place.core_seconds)
        wanted = select(*kept, *costs, first, func.max(place.at), *hosts).where(*_conditions(query))
        rows = await self.database.rows(wanted.group_by(*kept).limit(MAX_PILES))
        return [
            InboxTally(
                IncidentState(state),
                bool(second),
                unescaped(group),
                unescaped(fingerprint or ""),
                unescaped(cause),
                unescaped(owner),
                many,
                int(cost or 0),
                unescaped(oldest.partition(":")[2]),
                int(oldest.partition(":")[0]),
                newest,
                frozenset(unescaped(host or "") for host in hosts),
            )
            for state, second, group, fingerprint, cause, owner, many, cost, oldest, newest, *hosts in rows
        ]

    async def tally(self, query: IncidentQuery, *, step: int, by: str) -> Sequence[Mapping[str, int]]:
        since, steps = tally_bounds(query, step, by)
        wanted = tallied(statuses.c.at, since, step, statuses.c[by], _conditions(query))
        return in_steps(await self.database.rows(wanted), steps)

    async def add_decisions(self, decisions: Sequence[Decision]) -> Sequence[bool]:
        return await self._add([(decision.id, decision.incident, decision) for decision in decisions])

    async def get_decision(self, incident: str, n: int) -> Decision | None:
        decisions = await self._get(Decision, [decision_id(incident, n)])
        return decisions[0] if decisions else None

    async def get_decisions(self, names: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Decision]:
        decisions = await self._get(Decision, [decision_id(*name) for name in names])
        return {(decision.incident, decision.n): decision for decision in decisions}

    async def decisions_of(self, incidents: Sequence[str]) -> Sequence[Decision]:
        wanted = self.database.dialect.any_of(papers.c.incident, [escaped(incident) for incident in incidents])
        bodies = await self._bodies(Decision, wanted & (papers.c.kind == Decision.__name__))
        return self.readable.each(bodies, lambda body: _paper(Decision, body))

    async def decisions(self, incident: str) -> Sequence[Decision]:
        return sorted(await self._of(Decision, incident), key=lambda decision: decision.n)

    async def add_steps(self, steps: Sequence[StepRecord]) -> Sequence[bool]:
        return await self._add([(step.id, step.incident, step) for step in steps])

    async def get_steps(self, ids: Sequence[str]) -> Mapping[str, StepRecord]:
        return {record.id: record for record in await self._get(StepRecord, ids)}

    async def steps(self, incident: str) -> Sequence[StepRecord]:
        return sorted(await self._of(StepRecord, incident), key=lambda record: (record.n, record.step, record.mark))

    async def remove(self, statuses: Sequence[StoredIncidentStatus]) -> int:
        return await self._remove(statuses)

    async def _remove(self, wanted: Sequence[StoredIncidentStatus]) -> int:
        at = [(escaped(stored.status.id), stored.version.number) for stored in wanted if stored.version.term == TERM]
        return await self.database.remove(statuses, at, papers.c.incident) if at else 0

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
        names = [_key(kind, identifier) for identifier in ids]
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
        rows = await self.database.rows(select(papers.c.id, papers.c.body).where(wanted).limit(MAX_FOUND * 10))
        return [(unescaped(name.removeprefix(f"{kind.__name__}:")), body) for name, body in rows]


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


def _row(status: IncidentStatus, version: int) -> Row:
    data = to_document(status)
    for name in ("id", "run", "instance", "job", "flow", "owner"):
        check_key(data[name], status.id)
    texts = [escaped(data[name]) for name in STATUS_TEXT]
    numbers = [data[name] for name in STATUS_NUMBERS]
    tags = (escaped(data[name]) for name in STATUS_TAGS)
    counted = (asks_approval(status), status.core_seconds, *tags)
    return (
        escaped(status.id),
        version,
        *texts,
        *numbers,
        *counted,
        _bounded(to_json(data, status.id), status.id),
    )


def _stored(version: int, document: bytes) -> StoredIncidentStatus:
    return StoredIncidentStatus(from_document(IncidentStatus, orjson.loads(document)), Version(version, TERM))


def _conditions(query: IncidentQuery) -> list[ColumnElement[bool]]:
    wanted: list[ColumnElement[bool]] = [statuses.c[name] == escaped(value) for name, value in query.texts().items()]
    if query.states:
        wanted.append(_in_states(query.states))
    if query.waits:
        conditions = query.wait_conditions()
        wanted.append(_in_states(frozenset().union(*(condition.states for condition in conditions))))
        wanted.append(or_(*map(_waits, conditions)))
    if query.jobs:
        wanted.append(statuses.c.job.in_(sorted(escaped(job) for job in query.jobs)))
    if query.fingerprints:
        wanted.append(statuses.c.fingerprint.in_(sorted(escaped(name) for name in query.fingerprints)))
    if query.not_fingerprints:
        others = statuses.c.fingerprint.not_in(sorted(escaped(name) for name in query.not_fingerprints))
        wanted.append(statuses.c.fingerprint.is_(None) | others)
    if query.since is not None:
        wanted.append(statuses.c.at >= query.since)
    if query.changed is not None:
        wanted.append(statuses.c.changed >= query.changed)
    if query.until is not None:
        wanted.append(statuses.c.at < query.until)
    if query.due is not None:
        wanted.append(statuses.c.due <= query.due)
    return wanted


def _in_states(states: frozenset[IncidentState]) -> ColumnElement[bool]:
    """Spelt out in the statement: a database uses an index of some states only if it sees that no others are meant."""
    values = sorted(state.value for state in states)
    return statuses.c.state.in_(bindparam(None, values, expanding=True, literal_execute=True))


def _waits(condition: WaitCondition) -> ColumnElement[bool]:
    wanted = [_in_states(condition.states)]
    if condition.approval is not None:
        # A row of an earlier release has neither.
        wanted.append(statuses.c.second.is_(True) if condition.approval else statuses.c.second.is_not(True))
    if condition.storm is not None:
        wanted.append(statuses.c.group != "" if condition.storm else statuses.c.group == "")
    return and_(*wanted)


def _after(place: ColumnElement[Any], value: object, name: str, *, down: bool) -> ColumnElement[bool]:
    here, last = statuses.c.id, literal(name, statuses.c.id.type)
    if value is None:
        return place.is_(None) & (here < last if down else here > last)
    pair, end = tuple_(place, here), tuple_(literal(value, place.type), last)
    later: ColumnElement[bool] = pair < end if down else pair > end
    return or_(later, place.is_(None)) if place is statuses.c.due else later
