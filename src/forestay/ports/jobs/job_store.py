"""The job store: holds the document of every job.

The contract of every adapter:

* A document is written whole, and only if it is still at the version that its writer read. There is no partial update, no
  merge and no retry inside an adapter: a repeated write would conflict with itself.
* `Written` means durable: the document is on disk, on every copy that the store waits for, before the call returns.
* `Conflicted` and `Unknown` both mean that the write *may have taken place or may yet*. Only a later acknowledged
  write on a version read afterwards settles it (`services.shared.checked_writer`). The two differ only in statistics.
  * `get` is realtime but may be stale during a failover; `search` and `count` lag by up to a second: all are hints.
  * Every document carries its tenant. The store does not check it; the caller does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.specification import Specification
from forestay.ports.errors import Permanent


class Version(NamedTuple):
    """Identifies one write of a document: a number that is meaningful only together with its term."""

    number: int
    term: int


class Stored(NamedTuple):
    """A document as it was read, with its version."""

    document: JobDocument
    version: Version


class DocumentChange(NamedTuple):
    """A document to be written over the version that was read; None: it must not exist yet."""

    document: JobDocument
    expected: Version | None


class Written(NamedTuple):
    """Acknowledged and durable, at this version."""

    version: Version


class Conflicted(NamedTuple):
    """The store reports that the document was not at the expected version. A hint, not a proof."""

    detail: str = ""


class Unknown(NamedTuple):
    """No clear answer: timeout, reset, server error."""

    detail: str = ""


WriteResult = Written | Conflicted | Unknown


class Record(NamedTuple):
    """A create-only document beside a job: evidence, a log tail, a part of its story, an alert, an order, a key."""

    id: str
    tenant: str
    kind: str
    job: str
    at: int
    body: Mapping[str, object]


class SpecificationUse(NamedTuple):
    """When a specification was last known to be used, and the version of that note."""

    id: str
    used: int
    """Milliseconds since 1970, at most `USE_NOTED` too early."""
    version: Version


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Selects jobs. Several values of one field mean any of them; all fields must match."""

    tenant: str | None = None
    """None only for Forestay's own services, which serve every tenant."""
    states: frozenset[State] = frozenset()
    anyof: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Exact values of the fields in `TEXT_FIELDS`."""
    at_least: Mapping[str, int] = field(default_factory=dict)
    """Lower bounds, inclusive, of the fields in `NUMBER_FIELDS`."""
    at_most: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    held: bool | None = None
    slots: frozenset[int] | None = None
    """None means all slots."""


TEXT_FIELDS = frozenset(
    {"id", "name", "owner", "team", "specification", "pilot", "host", "lane", "resource_class", "phase", "run", "work"}
)
NUMBER_FIELDS = frozenset(
    {
        "priority", "expected_runtime", "retries", "failures", "releases", "attempt", "generation", "index", "exit_code",
        "cpus", "memory", "disk", "gpus", "created", "changed", "not_before", "overdue", "notify_due", "rank", "slot",
        "ended",
    }
)  # fmt: skip
COUNT_FIELDS = TEXT_FIELDS - {"id"} | {"state", "priority", "retries", "tenant", "held", "exit_code"}
TALLY_TIMES = frozenset({"created", "changed"})
TALLY_FIELDS = frozenset({"state", "tenant"})
"""Fields with few values: a tally has a number for each value and step."""
MAX_STEPS = 500
SORT_FIELDS = NUMBER_FIELDS | {"id", "name", "owner", "team", "state"}
MAX_PAGE = 10_000
USE_NOTED = 86_400_000
"""Milliseconds within which further uses of a specification are not written again."""


class JobPage(NamedTuple):
    """A page of jobs in order, and a cursor for the next page; no cursor: this is the last."""

    jobs: Sequence[Stored]
    cursor: str | None


def steps_between(least: int, most: int, step: int) -> int:
    """The number of steps between two bounds, both inclusive; `Permanent` for none, and for too many."""
    if step < 1 or not 0 <= most - least < step * MAX_STEPS:
        raise Permanent(f"a tally has 1 to {MAX_STEPS} steps")
    return (most - least) // step + 1


def tally_bounds(query: JobQuery, over: str, step: int, by: str) -> tuple[int, int]:
    """The start of the first step of a tally, and the number of steps; `Permanent` for a query that cannot be tallied."""
    least, most = query.at_least.get(over), query.at_most.get(over)
    if over not in TALLY_TIMES or by not in TALLY_FIELDS or least is None or most is None:
        raise Permanent(
            f"jobs are tallied over one of {sorted(TALLY_TIMES)} by one of {sorted(TALLY_FIELDS)}, with both bounds"
        )
    return least, steps_between(least, most, step)


class JobStore(Protocol):
    """The port. Calls that read raise `Transient` when the store does not answer; `write` never raises for it."""

    async def open(self) -> None:
        """Connect, and create missing tables or indexes."""
        ...

    async def close(self) -> None: ...

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        """Write each document over its expected version, all in one round trip, independently of each other.

        Returns one result for each change, in order. A failure of the whole call is `Unknown` for every change. The changes
        must name different documents.
        """
        ...

    async def get(self, jobs: Sequence[str]) -> Mapping[str, Stored]:
        """The present documents, as far as one copy knows; missing ids are left out."""
        ...

    async def search(
        self, query: JobQuery, *, sort: str = "created", limit: int = 100, cursor: str | None = None
    ) -> JobPage:
        """A page of jobs sorted by a field of `SORT_FIELDS` (`-field`: descending), ties by id in the same direction.

        Text is sorted by code points. Jobs without the sort value come last in both directions.
        The cursor is stable: jobs that are added, removed or changed between pages neither repeat nor hide others, except
        those whose own sort value changed. Cursors are opaque, and valid for any adapter instance of the same store.
        `Permanent` for an unknown field, a bad cursor, or a limit over `MAX_PAGE`. A document that cannot be read is
        left out, and logged: it must not hide the others.
        """
        ...

    async def count(self, query: JobQuery, *, by: str) -> Mapping[str, int]:
        """The number of jobs for each value of a field of `COUNT_FIELDS`; jobs without a value are left out.

        Numbers are written in digits, `held` as `true` or `false`.
        At most 10,000 different values, those with the most jobs first.
        """
        ...

    async def tally(self, query: JobQuery, *, over: str, step: int, by: str) -> Sequence[Mapping[str, int]]:
        """The number of jobs in each step of a time field of `TALLY_TIMES`, for each value of a field of `TALLY_FIELDS`.

        The query has both bounds of that time; the first step begins at the lower one, and each is `step` milliseconds long. `Permanent` for more than
        `MAX_STEPS` of them.
        """
        ...

    async def remove(self, jobs: Sequence[Stored]) -> int:
        """Remove jobs for good with the records beside them, each only if it is still at the version that was read; return how many.

        The only way to remove a document: for jobs that ended long ago. `Transient` if unsure: read again. The records of a job that is at another version
        by then may be gone.
        """
        ...

    async def put_specifications(self, specifications: Sequence[Specification], *, used: int = 0) -> None:
        """Store those that do not exist yet; ids are digests, so an existing one is the same. `Transient` if unsure.

        `used` is when (milliseconds since 1970). It is noted with each, also with one that exists, unless a note of the last `USE_NOTED` is there. A removal
        that read the earlier note does not take place any more: what is acknowledged here stays until it was not used for long.
        """
        ...

    async def get_specifications(self, ids: Sequence[str]) -> Mapping[str, Specification]: ...

    async def unused_specifications(self, before: int, *, limit: int = 500) -> Sequence[SpecificationUse]:
        """Those last used before then, the longest unused first; up to a second old. One without a note, of an earlier release, has 0."""
        ...

    async def note_use(self, uses: Sequence[SpecificationUse], used: int) -> int:
        """Note a use of those whose note is still at the version that was read; returns how many."""
        ...

    async def remove_specifications(self, uses: Sequence[SpecificationUse]) -> int:
        """Remove those whose note is still at the version that was read; returns how many. `Transient` if unsure: read again."""
        ...

    async def add_records(self, records: Sequence[Record]) -> Sequence[bool]:
        """Create each; False where that id existed already, which is kept. `Transient` if unsure: add again."""
        ...

    async def get_record(self, record: str) -> Record | None:
        """Realtime."""
        ...

    async def find_records(
        self,
        *,
        kind: str | None = None,
        job: str | None = None,
        tenant: str | None = None,
        since: int | None = None,
        after: tuple[int, str] | None = None,
        newest_first: bool = False,
        limit: int = 1000,
    ) -> Sequence[Record]:
        """By search: the oldest, oldest first, or the newest, newest first; ties by id. At most `MAX_PAGE`.

        `after`: those that follow the record of this time and id in the order oldest first. A page that is full is followed by another.
        """
        ...

    async def drop_records(
        self, before: int, *, kinds: Sequence[str] = (), jobs: Sequence[str] = (), ids: Sequence[str] = ()
    ) -> int:
        """Remove records older than `before` (milliseconds since 1970), of these kinds, beside these jobs or runs, or with these ids; return how many.

        A record that was created again under its id since is younger, and is kept.

        `Transient` if unsure: drop again.
        """
        ...

    async def refresh(self, *, only_jobs: bool = False) -> None:
        """Make all acknowledged writes visible to searches and counts; `only_jobs`: records may stay hidden, which is faster."""
        ...
