"""Resolves short ids of jobs, runs, incidents, pilots, rules, approvals and questions: the beginning of an id is enough.

The HTTP interface has no search by the beginning of an id. So the newest are looked through, as far as is cheap. If these
are all there are, the answer is certain. If there are more, a short beginning proves nothing: at least eight characters
must be given, which by chance match a second one among a million older ones about once in 4,000 times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from forestay.client.api import approval_calls, calls, run_calls
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.transport.errors import Ambiguous, NotFoundError

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentJson

NEWEST = "newest"
SHORTEST = 4
SURE = 8
LOOK_THROUGH = 10_000
"""So many of the newest are looked through."""
PAGE = 1000
_WHOLE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{64}")
_BATCH_ID = re.compile(r"[0-9]+([_+][0-9]+)?")
"""A batch system's id of a job, of an element of an array, or of a part of a heterogeneous job."""
_BEGINNING = re.compile(r"[0-9A-Za-z_.:-]+")


class Kind(NamedTuple):
    """Something that has an id: what it is called, and how a page of ids is read, the newest first."""

    word: str
    page: Callable[[ForestayClient, str | None], tuple[Iterable[str], str | None]]


def _jobs(client: ForestayClient, cursor: str | None) -> tuple[Iterable[str], str | None]:
    page = client.find_jobs(sort="-created", limit=PAGE, cursor=cursor)
    return (job["id"] for job in page.jobs), page.cursor


def _runs(client: ForestayClient, cursor: str | None) -> tuple[Iterable[str], str | None]:
    page = client.find_runs(limit=PAGE, cursor=cursor)
    return (run["id"] for run in page.runs), page.cursor


def _flows(client: ForestayClient, cursor: str | None) -> tuple[Iterable[str], str | None]:
    page = client.find_runs(limit=PAGE, cursor=cursor)
    return (run["version"] for run in page.runs), page.cursor


def _specifications(client: ForestayClient, cursor: str | None) -> tuple[Iterable[str], str | None]:
    page = client.find_jobs(sort="-created", limit=PAGE, cursor=cursor)
    return (job["specification"] for job in page.jobs), page.cursor


def _pilots(client: ForestayClient, _: str | None) -> tuple[Iterable[str], str | None]:
    return (str(pilot["id"]) for pilot in client.send(calls.fleet())["pilots"]), None


def _approvals(client: ForestayClient, _: str | None) -> tuple[Iterable[str], str | None]:
    return (str(request["id"]) for request in client.send(approval_calls.approvals())), None


def _questions(client: ForestayClient, _: str | None) -> tuple[Iterable[str], str | None]:
    found = [*client.send(run_calls.questions()), *client.send(run_calls.questions(state="closed"))]
    return (str(question["id"]) for question in found), None


JOB = Kind("job", _jobs)
RUN = Kind("run", _runs)
FLOW = Kind("flow version", _flows)
SPECIFICATION = Kind("specification", _specifications)
PILOT = Kind("pilot", _pilots)
APPROVAL = Kind("approval request", _approvals)
QUESTION = Kind("question", _questions)


def is_whole(name: str) -> bool:
    """Whether a text is a whole id and need not be looked up."""
    return _WHOLE.fullmatch(name.lower()) is not None


def is_batch_id(name: str) -> bool:
    """Whether a text may be the id that a batch system gave a job."""
    return _BATCH_ID.fullmatch(name) is not None


def resolve(client: ForestayClient, kind: Kind, names: Sequence[str]) -> list[str]:
    """The ids of the names, in order; all names are looked up in one pass."""
    asked = {name: name.lower() for name in names if not is_whole(name)}
    sets: dict[str, set[str]] = {name: set() for name in asked}
    for name in asked:
        check_beginning(name, kind.word)
    seen, more, cursor = 0, False, None
    while asked:
        ids, cursor = kind.page(client, cursor)
        for identifier in ids:
            seen += 1
            for name, beginning in asked.items():
                if identifier.lower().startswith(beginning):
                    sets[name].add(identifier)
        if cursor is None or seen >= LOOK_THROUGH:
            more = cursor is not None
            break
    return [
        only(name, sets[name], kind.word, seen=seen, more=more) if name in asked else name.lower() for name in names
    ]


def check_beginning(name: str, word: str) -> None:
    if len(name) < SHORTEST or not _BEGINNING.fullmatch(name):
        raise Ambiguous(f"{name!r} is not the id of a {word}; give the id, or at least its first {SHORTEST} characters")


def only(name: str, fits: set[str], word: str, *, seen: int = 0, more: bool = False) -> str:
    """The one id with this prefix; the errors for none and several differ."""
    exact = [fit for fit in fits if fit.lower() == name.lower()]
    if exact:
        return exact[0]
    if len(fits) > 1:
        some = ", ".join(sorted(fits)[:3]) + (", …" if len(fits) > 3 else "")
        raise Ambiguous(f"{name!r} is ambiguous: {len(fits)} {word}s begin with it ({some}); give more characters")
    if not fits:
        among = f"among the {seen:,} newest {word}s; give the whole id" if more else "in this tenant"
        raise NotFoundError(f"there is no {word} with an id that begins with {name!r} {among}", status=404)
    if more and len(name) < SURE:
        raise Ambiguous(
            f"{name!r} matches one of the {seen:,} newest {word}s, but there are more; give at least {SURE} characters"
        )
    return next(iter(fits))


def resolve_rule(client: ForestayClient, name: str, rule_set: str | None = None) -> tuple[str, str]:
    """The rule set and the id of a rule, given by its id, a prefix of it, or its name in a file of rules, in the named set or in all of them."""
    sets = (
        [rule_set]
        if rule_set
        else [f"{other_rule_set['level']}/{other_rule_set['name']}" for other_rule_set in client.rule_sets()]
    )
    if is_whole(name):
        for home in sets:
            with suppress(NotFoundError):
                return home, str(client.rule(home, name.lower())["id"])
        raise NotFoundError(f"there is no rule {name}", status=404)
    rules = [(set_, rule) for set_ in sets for tree in client.rule_set(set_)["trees"] for rule in tree["rules"]]
    homes = {str(rule["id"]): set_ for set_, rule in rules if rule.get("name") == name}
    if not homes:
        check_beginning(name, "rule")
        homes = {str(rule["id"]): set_ for set_, rule in rules if str(rule["id"]).startswith(name.lower())}
    text = only(name, set(homes), "rule")
    return homes[text], text


def resolve_incident(client: ForestayClient, name: str) -> str:
    """The id of the incident with a name.

    It may be the incident's own id, or that of its job or run, whose newest incident is meant; the id that a batch system
    gave the job; or `newest`, of those that need attention, and if there is none, of all. Each of them may be shortened.
    """
    if name == NEWEST:
        page = client.find_incidents({"state": "held"}, limit=1)
        if not page.incidents:
            page = client.find_incidents({}, limit=1)
        if not page.incidents:
            raise NotFoundError("no failures need attention, and none is recorded", status=404)
        return page.incidents[0]["id"]
    if is_whole(name):
        try:
            return client.incident(name.lower())["id"]
        except NotFoundError:
            for field in ("job", "run"):
                page = client.find_incidents({field: name.lower()}, limit=1)
                if page.incidents:
                    return page.incidents[0]["id"]
            raise NotFoundError(f"there is no incident {name}, and none of a job or a run {name}", status=404) from None
    fields, seen, more = _matching_incidents(client, name.lower())
    # A batch system's whole id first: its digits may also be the beginning of another one's id.
    for field, matches in sorted(fields.items(), key=lambda pair: pair[0] != "task"):
        if matches:
            word = "incident" if field == "id" else field
            return matches[only(name, set(matches), word, seen=seen, more=more and field != "task")]
    (job,) = resolve(client, JOB, [name])
    page = client.find_incidents({"job": job}, limit=1)
    if not page.incidents:
        raise NotFoundError(f"nothing is known to have gone wrong with job {job}", status=404)
    return page.incidents[0]["id"]


def resolve_batch_id(client: ForestayClient, name: str) -> str | None:
    """The newest incident of the job to which a batch system gave this id, or of the only element of this array that failed.

    None: there is none, or this is no such id. Raises Ambiguous if several elements failed.
    """
    if not is_batch_id(name):
        return None
    matches = _matching_incidents(client, name)[0]["task"]
    if name not in matches and len(matches) > 1:
        elements = sorted(matches, key=lambda task: [int(number) for number in re.findall(r"[0-9]+", task)])
        some = ", ".join(elements[:5]) + (", …" if len(elements) > 5 else "")
        raise Ambiguous(f"{len(elements)} elements of {name} failed: {some}; name one of them")
    return matches.get(name) or next(iter(matches.values()), None)


def _matching_incidents(client: ForestayClient, name: str) -> tuple[Mapping[str, dict[str, str]], int, bool]:
    """The newest incident of each incident, job, run and task that begins so; how many were seen, and whether there are more."""
    fields: dict[str, dict[str, str]] = {"id": {}, "job": {}, "run": {}, "task": {}}
    seen, cursor = 0, None
    while seen < LOOK_THROUGH:
        page = client.find_incidents({}, limit=PAGE, cursor=cursor)
        seen += len(page.incidents)
        for incident in page.incidents:
            for field, text in _names_of(incident):
                if _is_task(text, name) if field == "task" else len(name) >= SHORTEST and text.startswith(name):
                    fields[field].setdefault(text, incident["id"])
        cursor = page.cursor
        if cursor is None:
            break
    return fields, seen, cursor is not None


def _is_task(text: str, name: str) -> bool:
    """Whether a task is the one with this name, or an element of this array."""
    return text == name or (name.isdecimal() and text.startswith((f"{name}_", f"{name}+")))


def _names_of(incident: IncidentJson) -> Iterable[tuple[str, str]]:
    """What an incident may be named by; a task is `name:id`, with the id of its engine or batch system."""
    yield "id", incident["id"]
    yield "job", incident["job"]
    yield "run", incident["run"]
    yield "task", incident["task"].rpartition(":")[2].lower()
