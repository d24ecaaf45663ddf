"""The incident store: incidents, decisions and actions. It is the same store as the jobs', with the same contract.

* Incidents, decisions and steps are *create-only*: the first one under an id is kept; a later writer learns that it exists and reads it. They are
  removed together, with the status, when the incident was closed long ago.
* A status is written whole over the version that was read. `Conflicted` and `Unknown` mean that the write may have taken place: read again.
* What is read by id is realtime. What is found by search may be a second old.
* No document has more than `MAX_DOCUMENT` bytes as JSON; a larger one is refused with `Permanent`. Calls that read or create raise `Transient` when
  the store gives no clear answer: repeating the call is safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from forestay.domain.exceptions.incidents.inbox import WAIT_CONDITIONS, InboxTally, WaitCondition, WaitsFor
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, IncidentStatus, StepRecord
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import Version, WriteResult, steps_between

QUERY_TEXTS = (
    "tenant", "owner", "kind", "cause", "flow", "run", "instance", "job", "group", "fingerprint", "host", "site", "exit_code",
)  # fmt: skip
TEXT_FIELDS = frozenset({*QUERY_TEXTS, "state"})
COUNT_FIELDS = TEXT_FIELDS - {"run", "instance", "job"}
TALLY_FIELDS = frozenset({"state", "cause", "kind", "fingerprint"})
"""Fields with few values: a tally has a number for each value and step. Fingerprints are few where the query names them."""
MAX_TALLIED = 100
"""Values of a step that are counted separately."""
SORT_FIELDS = frozenset({"at", "due", "changed"})
MAX_FOUND = 1000
"""The most incidents of a page, and values of a count."""
MAX_PILES = 10_000
"""The most groups returned by `inbox_tallies`."""
SHOWN_AFTER = 1.2
"""Seconds after which a search is certain to find what was written."""


class StoredIncidentStatus(NamedTuple):
    """A status as it was read, with its version."""

    status: IncidentStatus
    version: Version


@dataclass(frozen=True, slots=True)
class IncidentQuery:
    """Selects incidents; omitted fields do not restrict."""

    tenant: str | None = None
    owner: str | None = None
    kind: str | None = None
    states: frozenset[IncidentState] = frozenset()
    cause: str | None = None
    flow: str | None = None
    run: str | None = None
    instance: str | None = None
    job: str | None = None
    group: str | None = None
    fingerprint: str | None = None
    """The fingerprint's id."""
    host: str | None = None
    site: str | None = None
    exit_code: str | None = None
    jobs: frozenset[str] = frozenset()
    """Incidents of one of these jobs."""
    fingerprints: frozenset[str] = frozenset()
    """Incidents with one of these fingerprints."""
    not_fingerprints: frozenset[str] = frozenset()
    """Incidents with none of these fingerprints."""
    waits: frozenset[WaitsFor] = frozenset()
    """Incidents that wait for one of these."""
    since: int | None = None
    """Incidents that happened at this time or later."""
    until: int | None = None
    """Incidents that happened before this time."""
    due: int | None = None
    """Incidents that are due by this time."""
    changed: int | None = None
    """Incidents whose status changed at this time or later."""

    def wait_conditions(self) -> Sequence[WaitCondition]:
        """One of these must be true; none: `waits` does not restrict."""
        return [condition for condition in WAIT_CONDITIONS if condition.waits in self.waits]

    def texts(self) -> Mapping[str, str]:
        """The fields that must have exactly one value."""
        return {name: value for name in QUERY_TEXTS if (value := getattr(self, name)) is not None}


def tally_bounds(query: IncidentQuery, step: int, by: str) -> tuple[int, int]:
    """The start of the first step of a tally, and the number of steps; `Permanent` for a query that cannot be tallied."""
    if by not in TALLY_FIELDS or query.since is None or query.until is None:
        raise Permanent(f"a tally of incidents wants both bounds, and is by one of {', '.join(sorted(TALLY_FIELDS))}")
    return query.since, steps_between(query.since, query.until - 1, step)


class IncidentPage(NamedTuple):
    """A page of incidents, and a cursor for the next page; no cursor: this is the last."""

    statuses: Sequence[StoredIncidentStatus]
    cursor: str | None


class IncidentStore(Protocol):
    """The port. Opened and closed with the job store."""

    async def add_incidents(self, incidents: Sequence[tuple[Incident, IncidentStatus]]) -> Sequence[bool]:
        """Create each with its first status; False where that id existed already, which is kept with its status.

        The incident is written first. If its writer died before writing the status, the next writer that sends the incident adds the status.
        """
        ...

    async def get_incidents(self, ids: Sequence[str]) -> Mapping[str, Incident]:
        """Missing ids are left out."""
        ...

    async def get_statuses(self, ids: Sequence[str]) -> Mapping[str, StoredIncidentStatus]:
        """Missing ids are left out."""
        ...

    async def put_statuses(self, statuses: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        """Write each over the version that was read, independently of the others. The ids must differ."""
        ...

    async def find(
        self, query: IncidentQuery, *, sort: str = "-at", limit: int = 100, cursor: str | None = None
    ) -> IncidentPage:
        """Statuses by search, sorted by one of `SORT_FIELDS` (with ``-`` descending), ties by id. Those that are not due come last.

        `Permanent` for an unknown field, a bad cursor, or a limit above `MAX_FOUND`.
        """
        ...

    async def refresh(self) -> None:
        """Make everything that was acknowledged visible to searches, for what must not be a second behind."""
        ...

    async def count(self, query: IncidentQuery, *, by: str) -> Mapping[str, int]:
        """The number of incidents for each value of one of `COUNT_FIELDS`, largest first; at most `MAX_FOUND` values.

        Incidents without a fingerprint, a host, a site or an exit code count under the empty value.
        """
        ...

    async def inbox_tallies(self, query: IncidentQuery) -> Sequence[InboxTally]:
        """Incidents of equal status, counted in the store: by state, whether an approval is requested, group, fingerprint, cause and owner; in no order.

        At most `MAX_PILES`; exactly that many mean that there may be more. An incident whose status was last written by a release before this method counts as
        without a requested approval and with no cost, and one without a fingerprint under the empty one.
        """
        ...

    async def tally(self, query: IncidentQuery, *, step: int, by: str) -> Sequence[Mapping[str, int]]:
        """The number of incidents in each step from `since` to before `until`, for each value of one of `TALLY_FIELDS`; a step is `step` milliseconds long.

        `Permanent` without both bounds, and for more than `MAX_STEPS` of the job store.
        """
        ...

    async def add_decisions(self, decisions: Sequence[Decision]) -> Sequence[bool]:
        """Create each; False where it existed already, which is kept."""
        ...

    async def get_decision(self, incident: str, n: int) -> Decision | None: ...

    async def get_decisions(self, names: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Decision]:
        """By incident and number; missing decisions are left out."""
        ...

    async def decisions_of(self, incidents: Sequence[str]) -> Sequence[Decision]:
        """All decisions of up to `MAX_FOUND` incidents, by search, in no order."""
        ...

    async def decisions(self, incident: str) -> Sequence[Decision]:
        """All of an incident, by search, in their order."""
        ...

    async def add_steps(self, steps: Sequence[StepRecord]) -> Sequence[bool]:
        """Create each; False where it existed already, which is kept."""
        ...

    async def get_steps(self, ids: Sequence[str]) -> Mapping[str, StepRecord]:
        """By the ids of `step_record_id`; missing steps are left out."""
        ...

    async def steps(self, incident: str) -> Sequence[StepRecord]:
        """All of an incident, by search, in their order."""
        ...

    async def remove(self, statuses: Sequence[StoredIncidentStatus]) -> int:
        """Remove incidents for good with their decisions and steps, each only if its status is still at the version that was read; return how many.

        For incidents that were closed long ago. `Transient` if unsure: read again, and remove again. The decisions of an incident whose status is at another
        version by then may be gone.
        """
        ...
