"""Every call of the HTTP interface as a value: the request, how to read the response, and whether a repeat does harm.

Nothing is sent here; `ForestayClient` and `AsyncForestayClient` do that.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from urllib.parse import quote

import httpx
import orjson

from forestay.client.api.answers import JobList
from forestay.client.transport.errors import BadAnswer, WaitsForApproval

if TYPE_CHECKING:
    from forestay.client.api.schemas import (
        AcceptedJson,
        Job,
        NewJob,
        SpecificationJson,
        StoredSpecificationJson,
        Story,
        WhyRun,
    )

T = TypeVar("T")
Json = dict[str, Any]

Filters = Mapping[str, str | int | bool | Sequence[str]]
"""Filters of a search by name; several values of one filter mean any of them."""

LARGEST_PAGE = 1000
LARGEST_REQUEST = 10_000
"""Jobs in one request."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and how its answer is read."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    job: str | None = None
    settled: Callable[[Job], bool] | None = None
    """Of a call that steers a job: whether the job shows that an earlier sending of it took place.

    The repeat of such a call is refused when the first sending did its work and only the answer was lost. The client
    then reads the job, and if it stands as was asked for, that is the answer.
    """

    def request(self, http: httpx.Client | httpx.AsyncClient, server: str, **headers: str) -> httpx.Request:
        """The request to one server."""
        kind = {"Content-Type": "application/json"} if self.body is not None else {}
        return http.build_request(
            self.method,
            server + self.path,
            params=list(self.query) or None,
            content=self.body,
            headers={**self.headers, **kind, **headers},
        )


def document(answer: httpx.Response) -> Json:
    """The JSON object in an answer."""
    try:
        value = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise BadAnswer(
            f"{answer.request.url.copy_with(query=None)} did not return a JSON object; is this a Forestay server?"
        )
    waits = value.get("waits") if answer.status_code == 202 else None
    if isinstance(waits, dict):
        raise WaitsForApproval(str(waits["id"]), str(waits["words"]))
    return value


def _part(name: str) -> Callable[[httpx.Response], Any]:
    def read(answer: httpx.Response) -> Any:
        whole = document(answer)
        if name not in whole:
            raise BadAnswer(f"the response has no {name!r}; does the server have another version?")
        return whole[name]

    return read


def _job(answer: httpx.Response) -> Job:
    return cast("Job", document(answer))


def _page(answer: httpx.Response) -> JobList:
    whole = document(answer)
    return JobList(whole.get("jobs", []), whole.get("cursor"))


def query_of(filters: Filters) -> list[tuple[str, str]]:
    """Filters as query parameters of a URL."""
    pairs: list[tuple[str, str]] = []
    for name, value in filters.items():
        values: Iterable[object] = [value] if isinstance(value, str | int) else value
        pairs += [(name, str(value).lower() if isinstance(value, bool) else str(value)) for value in values]
    return pairs


def _place(job: str, what: str = "") -> str:
    return f"/v1/jobs/{quote(job, safe='')}{what}"


def new_key() -> str:
    """A unique key."""
    return uuid.uuid4().hex


def request_body(jobs: Sequence[NewJob], specification: SpecificationJson | None = None) -> bytes:
    """The body of a submission."""
    whole: Json = {"jobs": jobs}
    if specification is not None:
        whole["specification"] = specification
    return orjson.dumps(whole)


def submit(
    jobs: Sequence[NewJob], specification: SpecificationJson | None = None, *, key: str | None = None
) -> Call[list[AcceptedJson]]:
    """At most 10,000 jobs. Always sent with a key, so that a repeat is harmless; the same key goes with the same jobs."""
    return Call(
        "POST", "/v1/jobs", _part("jobs"),
        body=request_body(jobs, specification), headers={"Idempotency-Key": key or new_key()},
    )  # fmt: skip


def find_jobs(
    filters: Filters | None = None, *, sort: str | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[JobList]:
    query = query_of(filters or {})
    query += [
        (name, str(value))
        for name, value in (("sort", sort), ("limit", limit), ("cursor", cursor))
        if value is not None
    ]
    return Call("GET", "/v1/jobs", _page, query)


def count_jobs(by: str = "state", filters: Filters | None = None) -> Call[dict[str, int]]:
    return Call("GET", "/v1/jobs/counts", _part("counts"), [("by", by), *query_of(filters or {})])


def job(name: str) -> Call[Job]:
    return Call("GET", _place(name), _job, job=name)


def specification(name: str) -> Call[StoredSpecificationJson]:
    return Call("GET", _place(name, "/specification"), lambda answer: cast("StoredSpecificationJson", document(answer)))


def story(name: str) -> Call[Story]:
    return Call("GET", _place(name, "/story"), lambda answer: cast("Story", document(answer)))


def why_run(name: str) -> Call[WhyRun]:
    return Call("GET", _place(name, "/why-run"), lambda answer: cast("WhyRun", document(answer)))


def sizes(*, task: str = "", flow: str | None = None) -> Call[Json]:
    """The resources that jobs should have requested, from the usage of the newest."""
    query = [(name, value) for name, value in (("task", task or None), ("flow", flow)) if value is not None]
    return Call("GET", "/v1/sizes", document, query)


def log(name: str, *, attempt: int | None = None) -> Call[str]:
    query = [("attempt", str(attempt))] if attempt is not None else []
    return Call("GET", _place(name, "/log"), lambda answer: answer.content.decode("utf-8", "replace"), query)


def outputs(name: str) -> Call[Json]:
    return Call("GET", _place(name, "/outputs"), document)


def _steer(name: str, what: str, body: Json, settled: Callable[[Job], bool]) -> Call[Job]:
    whole = {key: value for key, value in body.items() if value is not None}
    return Call("POST", _place(name, f"/{what}"), _job, body=orjson.dumps(whole), job=name, settled=settled)


def cancel(name: str, *, reason: str | None = None) -> Call[Job]:
    return _steer(name, "cancel", {"reason": reason}, lambda job: job["state"] == "cancelled")


def hold(name: str, *, reason: str | None = None) -> Call[Job]:
    return _steer(name, "hold", {"reason": reason}, lambda job: job["held"])


def let_go(name: str, *, holder: str | None = None) -> Call[Job]:
    """Take a hold away: the caller's own, or an operator any."""
    return _steer(
        name, "continue", {"holder": holder}, lambda job: holder not in job["holders"] if holder else not job["held"]
    )


def release(name: str, *, expected_attempt: int, expected_claim: str, reason: str) -> Call[Job]:
    """Release a pilot's claim, if the job has not changed since it was read."""
    body = {"expected_attempt": expected_attempt, "expected_claim": expected_claim, "reason": reason}
    return _steer(name, "release", body, lambda job: job["claim"] is None or job["claim"]["id"] != expected_claim)


def retry(name: str, *, reason: str | None = None) -> Call[Job]:
    return _steer(name, "retry", {"reason": reason}, lambda job: job["state"] != "faulted")


def force_complete(name: str, *, expected_attempt: int, expected_generation: int = 0, reason: str) -> Call[Job]:
    """Declare a job completed, if it has not changed since it was read."""
    body = {"expected_attempt": expected_attempt, "expected_generation": expected_generation, "reason": reason}
    return _steer(name, "force-complete", body, lambda job: job["state"] == "forced_complete")


def force_fail(name: str, *, expected_attempt: int, expected_generation: int = 0, reason: str) -> Call[Job]:
    """Declare a job failed, if it has not changed since it was read."""
    body = {"expected_attempt": expected_attempt, "expected_generation": expected_generation, "reason": reason}
    return _steer(name, "force-fail", body, lambda job: job["state"] == "failed")


def pilots(*, state: str | None = None) -> Call[list[Json]]:
    return Call("GET", "/v1/pilots", _part("pilots"), [("state", state)] if state else [])


def fleet(*, state: str | None = None) -> Call[Json]:
    """The pilots with what they do, and those that wait in their batch systems."""
    return Call("GET", "/v1/pilots", document, [("state", state)] if state else [])


def revoke(pilot: str, *, reason: str) -> Call[Json]:
    """Take the right of one pilot away."""
    return Call("POST", f"/v1/pilots/{quote(pilot, safe='')}/revoke", document, body=orjson.dumps({"reason": reason}))


def revoke_tokens(subject: str, *, reason: str) -> Call[Json]:
    """Take back all tokens of a person or program of the tenant."""
    body = orjson.dumps({"reason": reason})
    return Call("POST", f"/v1/people/{quote(subject, safe='')}/revoke", document, body=body)


def drain(pilots: Sequence[str], *, site: str, host: str, reason: str) -> Call[Json]:
    """Order pilots to take no more jobs."""
    body = {"pilots": list(pilots), "site": site, "host": host, "reason": reason}
    return Call("POST", "/v1/pilots/drain", document, body=orjson.dumps(body))


def alerts(*, limit: int = 100) -> Call[list[Json]]:
    return Call("GET", "/v1/alerts", _part("alerts"), [("limit", str(limit))])


def status() -> Call[Json]:
    return Call("GET", "/v1/status", document)


def overview(span: str) -> Call[Json]:
    """The results of the tenant's jobs in the last hour, day, week or month."""
    return Call("GET", "/v1/overview", document, [("span", span)])


def enrol(site: str, *, launch: str = "", seconds: int = 3600, owner: str | None = None) -> Call[Json]:
    """A secret by which one pilot may register, once; with an owner it gets the jobs of nobody else."""
    body = {"site": site, "launch": launch, "seconds": seconds} | ({"owner": owner} if owner else {})
    return Call("POST", "/v1/enrolments", document, body=orjson.dumps(body))


def login_link() -> Call[Json]:
    """A link that logs a browser in once, to look."""
    return Call("POST", "/v1/logins", document)


def follow_log(name: str, *, attempt: int | None = None) -> Call[None]:
    """A stream of `log` events, ended by an `end` event."""
    query = [("follow", "true")]
    if attempt is not None:
        query.append(("attempt", str(attempt)))
    return Call("GET", _place(name, "/log"), lambda _: None, query)


def events(filters: Filters | None = None) -> Call[None]:
    """A stream of `job` events, one a transition."""
    return Call("GET", "/v1/events", lambda _: None, query_of(filters or {}))
