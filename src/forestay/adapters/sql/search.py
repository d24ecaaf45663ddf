"""Job queries as SQL, and the cursors with which a search continues."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Select,
    Text,
    and_,
    bindparam,
    case,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    true,
    tuple_,
    union_all,
)

from forestay.adapters.sql.dialects import Dialect
from forestay.adapters.sql.rows import LARGEST, escaped, label, unescaped
from forestay.adapters.sql.tables import jobs
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import (
    COUNT_FIELDS,
    MAX_PAGE,
    NUMBER_FIELDS,
    SORT_FIELDS,
    TEXT_FIELDS,
    JobQuery,
    tally_bounds,
)

MAX_COUNTS = 10_000


class SortOrder(NamedTuple):
    """The field by which jobs are sorted, and the direction."""

    place: Column[Any]
    down: bool
    may_lack: bool
    """Whether jobs without a value may be found; they come last."""

    @classmethod
    def of(cls, sort: str, query: JobQuery) -> SortOrder:
        down = sort.startswith("-")
        field = sort.removeprefix("-")
        if field not in SORT_FIELDS:
            raise Permanent(f"jobs cannot be sorted by {field!r}")
        place = jobs.c[field]
        bounded = field in query.at_least or field in query.at_most
        return cls(place, down, bool(place.nullable) and not bounded)

    def clauses(self) -> list[ColumnElement[Any]]:
        first = self.place.desc() if self.down else self.place.asc()
        if self.place is jobs.c.id:
            return [first]
        # Only where it matters: PostgreSQL does not use an index with a different order of nulls, even if there are none.
        return [first.nulls_last() if self.may_lack else first, jobs.c.id.desc() if self.down else jobs.c.id.asc()]

    def after(self, value: str | int | None, job: str) -> ColumnElement[bool]:
        """The condition for jobs after the last one of a page."""
        last: ColumnElement[Any] = literal(job, jobs.c.id.type)
        here: ColumnElement[Any] = jobs.c.id
        if value is None:
            return and_(self.place.is_(None), here < last if self.down else here > last)
        if self.place is not jobs.c.id:
            # Compared as pairs: both databases then seek directly in the index.
            here, last = tuple_(self.place, here), tuple_(literal(value, self.place.type), last)
        later = here < last if self.down else here > last
        return or_(later, self.place.is_(None)) if self.may_lack else later


def page(dialect: Dialect, query: JobQuery, *, sort: str, limit: int, cursor: str | None) -> Select[Any]:
    """Version, document, sort value and id of the jobs of a page, plus one more if there is one."""
    if not 1 <= limit <= MAX_PAGE:
        raise Permanent(f"the limit of a page is 1 to {MAX_PAGE} jobs, not {limit}")
    order = SortOrder.of(sort, query)
    found_select = select(jobs.c.version, jobs.c.document, order.place, jobs.c.id.label("job"))
    page = found_select.where(*conditions(dialect, query)).order_by(*order.clauses()).limit(limit + 1)
    if cursor is not None:
        page = page.where(order.after(*read_cursor(cursor, sort, order.place)))
    return page


def counts(dialect: Dialect, query: JobQuery, *, by: str) -> Select[Any]:
    """The values of a field and how many jobs have each."""
    if by not in COUNT_FIELDS:
        raise Permanent(f"jobs cannot be counted by {by!r}")
    place = jobs.c[by]
    many = func.count()
    group = select(place, many).where(*conditions(dialect, query)).group_by(place)
    if place.nullable:
        group = group.where(place.is_not(None))
    return group.order_by(many.desc(), place).limit(MAX_COUNTS)


def tallies(dialect: Dialect, query: JobQuery, *, over: str, step: int, by: str) -> tuple[Select[Any], int]:
    """The query for the number of jobs by step and value, and the number of steps."""
    least, steps = tally_bounds(query, over, step, by)
    known = {
        "state": [state.value for state in sorted(query.states)],
        "tenant": [escaped(query.tenant)] if query.tenant else [],
    }
    if known[by]:
        return _counted(dialect, query, over, step, steps, jobs.c[by], known[by]), steps
    return tallied(jobs.c[over], least, step, jobs.c[by], conditions(dialect, query)), steps


def _counted(
    dialect: Dialect, query: JobQuery, over: str, step: int, steps: int, by: Column[Any], values: Sequence[str]
) -> Select[Any]:
    """The same rows where the values are known beforehand: each step and value is a run of an index that is only counted, which takes a tenth of what putting rows into groups does."""
    least, most = query.at_least[over], query.at_most[over]
    rest = replace(
        query,
        at_least={field: bound for field, bound in query.at_least.items() if field != over},
        at_most={field: bound for field, bound in query.at_most.items() if field != over},
    )
    number = select(literal(0, BigInteger).label("number")).cte("steps", recursive=True)
    number = number.union_all(select(number.c.number + 1).where(number.c.number < steps - 1))
    value = union_all(*(select(literal(other_value, Text).label("value")) for other_value in values)).cte("known")
    begins = literal(least, BigInteger) + number.c.number * literal(step, BigInteger)
    # Only one bound on each side: with two, SQLite might use either.
    ends = case((number.c.number == steps - 1, literal(most + 1, BigInteger)), else_=begins + literal(step, BigInteger))
    inside = (jobs.c[over] >= begins, jobs.c[over] < ends, by == value.c.value)
    many = select(func.count()).select_from(jobs).where(*conditions(dialect, rest), *inside)
    counted = many.correlate(number, value).scalar_subquery()
    return select(number.c.number, value.c.value, counted).select_from(number.join(value, true()))


def tallied(
    time: Column[Any], least: int, step: int, by: Column[Any], wanted: list[ColumnElement[bool]]
) -> Select[Any]:
    """Rows of a step's number, a value and how many there are."""
    # Literals, not parameters: PostgreSQL takes two parameters for different expressions, and would not group by one and select the other.
    number = (time - literal_column(str(least))) // literal_column(str(step), BigInteger)
    return select(number.label("step"), by, func.count()).where(*wanted).group_by("step", by)


def in_steps(rows: Iterable[Sequence[Any]], steps: int) -> list[dict[str, int]]:
    """The rows of a tally, one mapping a step."""
    result: list[dict[str, int]] = [{} for _ in range(steps)]
    for number, value, many in rows:
        if many:
            result[number][shown(value)] = many
    return result


def shown(value: str | int) -> str:
    """A counted value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return unescaped(value) if isinstance(value, str) else str(value)


def conditions(dialect: Dialect, query: JobQuery) -> list[ColumnElement[bool]]:
    """All conditions of a query."""
    wanted: list[ColumnElement[bool]] = []
    if query.tenant is not None:
        wanted.append(jobs.c.tenant == escaped(query.tenant))
    if query.states:
        # States are literals in the statement, so that the planner sees which partial index applies.
        names: list[ColumnElement[str]] = [
            bindparam(None, state.value, literal_execute=True) for state in sorted(query.states)
        ]
        wanted.append(jobs.c.state == names[0] if len(names) == 1 else or_(*(jobs.c.state == name for name in names)))
    for field, texts in query.anyof.items():
        place = _field(field, TEXT_FIELDS)
        values = [escaped(value) for value in texts]
        if len(values) == 1:
            wanted.append(place == values[0])
        else:
            wanted.append(dialect.any_of(place, values) if values else false())
    wanted.extend(_field(field, NUMBER_FIELDS) >= _bound(bound) for field, bound in query.at_least.items())
    wanted.extend(_field(field, NUMBER_FIELDS) <= _bound(bound) for field, bound in query.at_most.items())
    wanted.extend(dialect.labelled(jobs.c.labels, label(key, value)) for key, value in query.labels.items())
    if query.held is not None:
        wanted.append(jobs.c.held.is_(query.held))
    if query.slots is not None:
        wanted.append(dialect.any_of(jobs.c.slot, sorted(query.slots)) if query.slots else false())
    return wanted


def _field(name: str, known: frozenset[str]) -> Column[Any]:
    if name not in known:
        raise Permanent(f"jobs cannot be searched by {name!r}")
    return jobs.c[name]


def _bound(number: int) -> int:
    if abs(number) > LARGEST:
        raise Permanent(f"a bound is beyond 64 bits: {number}")
    return number


def write_cursor(sort: str, value: str | int | None, job: str) -> str:
    """Where a page ended."""
    return urlsafe_b64encode(orjson.dumps([sort, value, job])).decode()


def read_cursor(cursor: str, sort: str, place: Column[Any]) -> tuple[str | int | None, str]:
    """The position of a cursor; `Permanent` unless it belongs to this order."""
    try:
        parts = orjson.loads(urlsafe_b64decode(cursor.encode("ascii")))
    except (ValueError, BadBase64) as error:
        raise Permanent("invalid cursor") from error
    match parts:
        case [str(order), value, str(job)] if order == sort and _fits(value, place) and "\0" not in job:
            return value, job
    raise Permanent(f"the cursor belongs to a search that is not sorted by {sort!r}")


def _fits(value: object, place: Column[Any]) -> bool:
    if value is None:
        return bool(place.nullable)
    if isinstance(place.type, BigInteger):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    return isinstance(value, str) and "\0" not in value
