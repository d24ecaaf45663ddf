"""Reads the filters of a search from a request's query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.datastructures import QueryParams

from forestay.apps.server.http.problems import HttpProblem
from forestay.domain.jobs.job_document import JobDocument, State, search_fields
from forestay.formats.jobs.job_public import time_millis
from forestay.ports.jobs.job_store import JobQuery

TEXTS = ("id", "name", "owner", "team", "specification", "pilot", "host", "resource_class", "phase", "run", "work")
NUMBERS = (
    "priority", "expected_runtime", "retries", "failures", "releases", "attempt", "cpus", "memory", "disk", "gpus",
    "index", "exit_code",
)  # fmt: skip
TIMES = ("created", "changed", "not_before")
OTHERS = frozenset({"sort", "limit", "cursor", "by", "access_token"})
MOST = 100
INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class _FilterReader:
    query: QueryParams
    errors: list[dict[str, object]]

    def wrong(self, name: str, detail: str) -> None:
        self.errors.append({"at": f"query.{name}", "detail": detail})

    def number(self, name: str) -> int | None:
        text = self.query.get(name)
        if text is None:
            return None
        try:
            value = int(text) if len(text) <= 20 else INT64 + 1
        except ValueError:
            self.wrong(name, "expected an integer")
            return None
        if abs(value) > INT64:
            self.wrong(name, "the number is too large")
            return None
        return value

    def time(self, name: str) -> int | None:
        text = self.query.get(name)
        if text is None:
            return None
        try:
            return time_millis(text)
        except (ValueError, OverflowError):
            self.wrong(name, "expected a time such as 2026-01-31T12:00:00Z")
            return None

    def texts(self, name: str) -> list[str]:
        values = self.query.getlist(name)
        if len(values) > MOST:
            self.wrong(name, f"at most {MOST} values")
        return [value[:1000] for value in values[:MOST]]


def job_query(query: QueryParams, tenant: str) -> JobQuery:
    """The query for a tenant's jobs in a request; all invalid filters are reported at once."""
    read = _FilterReader(query, [])
    at_least: dict[str, int] = {}
    at_most: dict[str, int] = {}
    known = set(OTHERS) | {"state", "label", "held"} | set(TEXTS)
    for name in NUMBERS:
        _bound(at_least, name, read.number(f"min_{name}"))
        _bound(at_most, name, read.number(f"max_{name}"))
        known |= {f"min_{name}", f"max_{name}"}
    for name in TIMES:
        _bound(at_least, name, read.time(f"{name}_after"))
        _bound(at_most, name, read.time(f"{name}_before"))
        known |= {f"{name}_after", f"{name}_before"}
    states = _states(read)
    labels = _labels(read)
    anyof = {name: values for name in TEXTS if (values := read.texts(name))}
    held = query.get("held")
    if held not in (None, "true", "false"):
        read.wrong("held", "true or false")
    for name in sorted(set(query.keys()) - known):
        read.wrong(name[:100], "there is no such filter")
    if read.errors:
        raise HttpProblem(422, f"{len(read.errors)} filter(s) are invalid", read.errors[:MOST])
    return JobQuery(
        tenant=tenant,
        states=states,
        anyof=anyof,
        at_least=at_least,
        at_most=at_most,
        labels=labels,
        held=None if held is None else held == "true",
    )


def _bound(bounds: dict[str, int], name: str, value: int | None) -> None:
    if value is not None:
        bounds[name] = value


def _states(read: _FilterReader) -> frozenset[State]:
    states: set[State] = set()
    for text in read.texts("state"):
        try:
            states.add(State(text))
        except ValueError:
            read.wrong("state", f"one of {', '.join(State)}")
    return frozenset(states)


def _labels(read: _FilterReader) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in read.texts("label"):
        name, equals, value = text.partition("=")
        if equals:
            labels[name] = value
        else:
            read.wrong("label", "expected key=value")
    return labels


def wanted(query: JobQuery) -> Callable[[JobDocument], bool]:
    """The same filter for a single document; for event streams."""

    def check(document: JobDocument) -> bool:
        if document.tenant != query.tenant or (query.states and document.state not in query.states):
            return False
        if query.held is not None and bool(document.holders) != query.held:
            return False
        if any(document.labels.get(name) != value for name, value in query.labels.items()):
            return False
        fields = _fields(document)
        if any(fields.get(name) not in values for name, values in query.anyof.items()):
            return False
        return all(_at_least(fields, name, bound) for name, bound in query.at_least.items()) and all(
            _at_least(fields, name, bound, sign=-1) for name, bound in query.at_most.items()
        )

    return check


def _at_least(fields: Mapping[str, object], name: str, bound: int, sign: int = 1) -> bool:
    value = fields.get(name)
    return isinstance(value, int) and sign * value >= sign * bound


def _fields(document: JobDocument) -> dict[str, object]:
    return search_fields(document) | {
        "id": document.id,
        "name": document.name,
        "owner": document.owner,
        "team": document.team,
        "specification": document.specification,
        "phase": document.phase,
        "priority": document.priority,
        "expected_runtime": document.expected_runtime,
        "failures": document.failures,
        "releases": document.releases,
        "attempt": document.attempt,
        "index": document.index,
        "created": document.created,
        "changed": document.changed,
        "not_before": document.not_before,
    }
