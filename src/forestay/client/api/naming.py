"""Jobs and cases named by the beginning of their id.

The interface has no search by the beginning of an id. So the newest jobs are looked through, as far as is cheap. If that
were all jobs there are, the answer is certain. If there are more, a short beginning proves nothing: at least eight
characters must be given, which by chance fit a second job among a million older ones about once in 4,000 cases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forestay.client.api.forestay_client import ForestayClient
from forestay.client.transport.errors import Ambiguous, NotFound

NEWEST = "newest"
SHORTEST = 4
SURE = 8
LOOK_THROUGH = 10_000
"""So many of the newest jobs are looked through."""
_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
_BEGINNING = re.compile(r"[0-9A-Za-z_.:-]+")


def is_whole(name: str) -> bool:
    """Whether a text is a whole id and need not be looked up."""
    return _WHOLE.fullmatch(name.lower()) is not None


def resolve(client: ForestayClient, names: Sequence[str]) -> list[str]:
    """The ids that the names stand for, in order; all names are looked up in one pass."""
    asked = {name: name.lower() for name in names if not is_whole(name)}
    for name in asked:
        if len(name) < SHORTEST or not _BEGINNING.fullmatch(name):
            raise Ambiguous(f"{name!r} is not a job's id; give the id, or at least its first {SHORTEST} characters")
    found: dict[str, set[str]] = {name: set() for name in asked}
    seen, more = 0, False
    if asked:
        beginnings = tuple(asked.values())
        cursor = None
        while True:
            page = client.find_jobs(sort="-created", limit=1000, cursor=cursor)
            seen += len(page.jobs)
            for job in page.jobs:
                if job["id"].startswith(beginnings):
                    for name, beginning in asked.items():
                        if job["id"].startswith(beginning):
                            found[name].add(job["id"])
            cursor = page.cursor
            if cursor is None or seen >= LOOK_THROUGH:
                more = cursor is not None
                break
    return [name.lower() if name not in asked else _only(name, found[name], seen=seen, more=more) for name in names]


def _only(name: str, fits: set[str], *, seen: int, more: bool, what: str = "job") -> str:
    if len(fits) > 1:
        some = ", ".join(sorted(fits)[:3]) + (", …" if len(fits) > 3 else "")
        raise Ambiguous(f"{name!r} fits {len(fits)} {what}s ({some}); give more characters")
    if not fits:
        among = f"among the {seen:,} newest {what}s; give the whole id" if more else "in this tenant"
        raise NotFound(f"no {what}'s id begins with {name!r} {among}", status=404)
    if more and len(name) < SURE:
        raise Ambiguous(
            f"{name!r} fits one of the {seen:,} newest {what}s, but there are more; give at least {SURE} characters"
        )
    return next(iter(fits))


def resolve_case(client: ForestayClient, name: str) -> str:
    """The id of the case that a name stands for; the newest cases are looked through, as with jobs."""
    if is_whole(name):
        return name.lower()
    if len(name) < SHORTEST or not _BEGINNING.fullmatch(name):
        raise Ambiguous(f"{name!r} is not a case's id; give the id, or at least its first {SHORTEST} characters")
    fits: set[str] = set()
    seen, cursor = 0, None
    while True:
        page = client.find_cases(limit=1000, cursor=cursor)
        seen += len(page.cases)
        fits |= {one["id"] for one in page.cases if one["id"].startswith(name.lower())}
        cursor = page.cursor
        if cursor is None or seen >= LOOK_THROUGH:
            return _only(name, fits, seen=seen, more=cursor is not None, what="case")


def resolve_incident(client: ForestayClient, name: str) -> str:
    """The id of the incident that a name stands for: its own, its beginning, a job, whose newest incident is meant, or `newest` of all that wait for a person."""
    if name == NEWEST:
        page = client.find_incidents({"state": "held"}, limit=1)
        if not page.incidents:
            raise NotFound("nothing waits for a person", status=404)
        return page.incidents[0]["id"]
    seen, more, cursor = 0, False, None
    fits: dict[str, None] = {}
    if is_whole(name):
        try:
            return client.incident(name.lower())["id"]
        except NotFound:
            pass
    elif len(name) >= SHORTEST and _BEGINNING.fullmatch(name):
        while seen < LOOK_THROUGH:
            page = client.find_incidents({}, limit=1000, cursor=cursor)
            seen += len(page.incidents)
            fits |= {one["id"]: None for one in page.incidents if one["id"].startswith(name.lower())}
            cursor = page.cursor
            if cursor is None:
                break
        more = cursor is not None
    if fits:
        return _only(name, set(fits), seen=seen, more=more, what="incident")
    (job,) = resolve(client, [name])
    page = client.find_incidents({"job": job}, limit=1)
    if not page.incidents:
        raise NotFound(f"nothing is known to have gone wrong with job {job}", status=404)
    return page.incidents[0]["id"]
