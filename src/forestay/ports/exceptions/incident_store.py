"""The incident store: incidents, decisions and actions. It is the same store as the jobs', with the same contract.

* Incidents, decisions and steps are *create-only*: the first one under an id stays, and everyone who sends it again is told so and reads the first.
* A status is written whole over the version that was read. `Conflicted` and `Unknown` mean that the write may have taken place: read again.
* What is read by id is realtime. What is found by search may be a second old.
* No document has more than `MAX_DOCUMENT` bytes as JSON; a larger one is refused by `Permanent`. Calls that read, and those that create, raise `Transient` when
  the store does not answer clearly: the same call again is safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from forestay.domain.exceptions.incidents.inbox import InboxTally
from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentState, IncidentStatus, StepRecord
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import Version, WriteResult, steps_between

QUERY_TEXTS = (
    "tenant", "owner", "kind", "cause", "flow", "run", "instance", "job", "group", "fingerprint", "host", "site", "exit_code",
)  # fmt: skip
TEXT_FIELDS = frozenset({*QUERY_TEXTS, "state"})
COUNT_FIELDS = TEXT_FIELDS - {"run", "instance", "job"}
TALLY_FIELDS = frozenset({"state", "cause", "kind", "fingerprint"})
"""Fields with few values: a tally has one number a step for each. Fingerprints are few where the query names them."""
MAX_TALLIED = 100
"""Values of a step that are told apart."""
SORT_FIELDS = frozenset({"at", "due", "changed"})
MAX_FOUND = 1000
"""Incidents of a page, and values of a count."""
MAX_PILES = 10_000
"""Piles of one answer."""
SHOWN_AFTER = 1.2
"""Seconds after which a search surely finds what was written."""


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
    """Its id."""
    host: str | None = None
    site: str | None = None
    exit_code: str | None = None
    jobs: frozenset[str] = frozenset()
    """They are about one of these jobs."""
    fingerprints: frozenset[str] = frozenset()
    """They are one of these errors."""
    since: int | None = None
    """They happened at this time or later."""
    until: int | None = None
    """They happened before this time."""
    due: int | None = None
    """They are due by this time."""
    changed: int | None = None
    """Where they stand has changed at this time or later."""

    def texts(self) -> Mapping[str, str]:
        """The fields that must have exactly a value."""
        return {name: value for name in QUERY_TEXTS if (value := getattr(self, name)) is not None}


def tally_bounds(query: IncidentQuery, step: int, by: str) -> tuple[int, int]:
    """Where the first step of a tally begins, and how many there are; `Permanent` for what cannot be tallied."""
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
        """Create each with where it stands at first; False where one with that id stood already, and stays with its status.

        The incident is written first. One whose writer died before its status was written gets it from whoever sends it again.
        """
        ...

    async def get_incidents(self, ids: Sequence[str]) -> Mapping[str, Incident]:
        """A missing one is left out."""
        ...

    async def get_statuses(self, ids: Sequence[str]) -> Mapping[str, StoredIncidentStatus]:
        """A missing one is left out."""
        ...

    async def put_statuses(self, statuses: Sequence[tuple[IncidentStatus, Version]]) -> Sequence[WriteResult]:
        """Write each over the version that was read, each for itself. The ids differ."""
        ...

    async def find(
        self, query: IncidentQuery, *, sort: str = "-at", limit: int = 100, cursor: str | None = None
    ) -> IncidentPage:
        """Statuses by search, sorted by one of `SORT_FIELDS` (with ``-`` downwards), ties by id. Those that are not due come last.

        `Permanent` for an unknown field, a bad cursor, or a limit above `MAX_FOUND`.
        """
        ...

    async def count(self, query: IncidentQuery, *, by: str) -> Mapping[str, int]:
        """How many there are for each value of one of `COUNT_FIELDS`, the most first; at most `MAX_FOUND` values.

        Those without a fingerprint, a host, a site or an exit code count under the empty one.
        """
        ...

    async def inbox_tallies(self, query: IncidentQuery) -> Sequence[InboxTally]:
        """Those that stand alike, counted in the store without reading them: by state, whether an approval is requested, group, fingerprint, cause and owner; in no order.

        At most `MAX_PILES`; so many mean that there may be more. An incident whose status was last written by a release before this method counts as one for
        which no approval is asked, at no cost, and one without a fingerprint under the empty one.
        """
        ...

    async def tally(self, query: IncidentQuery, *, step: int, by: str) -> Sequence[Mapping[str, int]]:
        """How many happened in each step from `since` to before `until`, for each value of one of `TALLY_FIELDS`; each step is so many milliseconds long.

        `Permanent` without both bounds, and for more than `MAX_STEPS` of the job store.
        """
        ...

    async def add_decisions(self, decisions: Sequence[Decision]) -> Sequence[bool]:
        """Create each; False where one stood already, and stays."""
        ...

    async def get_decision(self, incident: str, n: int) -> Decision | None: ...

    async def get_decisions(self, names: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Decision]:
        """By the incident and the number; a missing one is left out."""
        ...

    async def decisions_of(self, incidents: Sequence[str]) -> Sequence[Decision]:
        """All of up to `MAX_FOUND` incidents, by search, in no order."""
        ...

    async def decisions(self, incident: str) -> Sequence[Decision]:
        """All of an incident, by search, in their order."""
        ...

    async def add_steps(self, steps: Sequence[StepRecord]) -> Sequence[bool]:
        """Create each; False where one stood already, and stays."""
        ...

    async def get_steps(self, ids: Sequence[str]) -> Mapping[str, StepRecord]:
        """By the ids of `step_record_id`; a missing one is left out."""
        ...

    async def steps(self, incident: str) -> Sequence[StepRecord]:
        """All of an incident, by search, in their order."""
        ...
