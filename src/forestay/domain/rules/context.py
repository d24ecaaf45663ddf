"""The typed context: every field that a condition can use (P1-24).

One description, from which the types of conditions, the reference and the editor's completion are made. A context is a flat mapping
from a field's dotted name to a plain value; `read_context` makes one from JSON, nested or flat, and reports all errors in it.
Missing fields are filled in: with `null` if a field may be unknown, otherwise with the empty value.
Fields that could not be determined are listed under `UNFILLED`, and a condition that uses one of them fails with an error.
`told_by` returns the fields that an incident contains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.jobs.job_document import task_of

MOST_MEMBERS = 400
"""The longest list and the largest map that a condition sees, at any depth."""
LONGEST_TEXT = 4_000
MOST_TEXT = 128 * 1024
"""Characters of all texts together."""
DEEPEST = 8
_LARGEST = 2**63 - 1
UNFILLED = "unfilled"
"""The entry of a context that lists the fields that could not be determined, such as a run's data while its engine is unreachable."""


class FieldType(StrEnum):
    """The type of a field; the value is its name in conditions."""

    INT = "int"
    NUMBER = "double"
    TEXT = "string"
    TRUTH = "bool"
    TEXTS = "list(string)"
    WORDS = "map(string, string)"
    DATA = "map(string, dyn)"
    RECORDS = "list(map(string, dyn))"


class Field(NamedTuple):
    """A field that a condition may use."""

    name: str
    kind: FieldType
    words: str
    optional: bool = False
    """The value may be unknown, and is then `null`."""


_I, _N, _T, _B, _TEXTS = FieldType.INT, FieldType.NUMBER, FieldType.TEXT, FieldType.TRUTH, FieldType.TEXTS

FIELDS: tuple[Field, ...] = (
    Field("exception.type", _T, "the exception's type, such as `abort`"),
    Field("exception.task", _T, "the task it concerns; empty for a run"),
    Field("exception.trigger", _T, "the name of the external trigger"),
    Field("exception.fingerprint", _T, "the error that a failure is, as `forestay inbox` names it; it is another one once its cause is taught"),
    Field("exception.task_id", _T, "for a timeout: the task instance past its deadline; empty if it is the run's"),
    Field("cause", _T, "the cause, such as `memory`, or `unknown`"),
    Field("confidence", _N, "the confidence of the classification, from 0 to 1"),
    Field("retry", _T, "what a retry needs: `same`, `changed`, `elsewhere` or `no`"),
    Field("pattern", _T, "the pattern that decided the cause"),
    Field("job.id", _T, "the job"),
    Field("job.name", _T, "its name"),
    Field("job.owner", _T, "its owner"),
    Field("job.team", _T, "the owner's team"),
    Field("job.labels", FieldType.WORDS, "its labels"),
    Field("job.patterns", _TEXTS, "the job-flow patterns it is in: `synchronous`, `polling`, `notification` or `fire-and-forget`; `staging`; `execution`"),
    Field("job.parameters", FieldType.DATA, "its parameters"),
    Field("job.index", _I, "its index in an array", optional=True),
    Field("job.priority", _I, "its priority"),
    Field("job.attempt", _I, "the number of the attempt, from 1"),
    Field("job.generation", _I, "the generation"),
    Field("job.failures", _I, "attempts that failed"),
    Field("job.releases", _I, "attempts free of charge: lost with their pilot, or answered by a free retry"),
    Field("job.cpus", _I, "its number of processors"),
    Field("job.memory", _I, "its memory in bytes; 0: not specified"),
    Field("job.disk", _I, "its disk space in bytes; 0: not specified"),
    Field("job.gpus", _I, "GPUs"),
    Field("job.wall", _I, "its time limit in seconds", optional=True),
    Field("job.age", _N, "seconds since it was submitted"),
    Field("attempts", FieldType.RECORDS, "the earlier attempts, oldest first: attempt, host, cause, exit_code, …"),
    Field("evidence.exit_code", _I, "the exit code", optional=True),
    Field("evidence.signal", _I, "the signal that killed it", optional=True),
    Field("evidence.scheduler", _T, "the batch system: `slurm`, `htcondor`, …, `none`"),
    Field("evidence.scheduler_state", _T, "the state that the batch system reports"),
    Field("evidence.scheduler_reason", _T, "the batch system's reason"),
    Field("evidence.hold_code", _I, "HTCondor's hold code", optional=True),
    Field("evidence.hold_subcode", _I, "its subcode", optional=True),
    Field("evidence.log_tail", FieldType.TEXTS, "the last lines of the log"),
    Field("evidence.peak_memory", _I, "its peak memory in bytes", optional=True),
    Field("evidence.memory_limit", _I, "its memory limit in bytes", optional=True),
    Field("evidence.oom_kills", _I, "processes killed by the kernel's out-of-memory killer", optional=True),
    Field("evidence.disk_left", _I, "free bytes on the disk it wrote to", optional=True),
    Field("evidence.wall_time", _N, "seconds it ran", optional=True),
    Field("evidence.time_limit", _N, "its time limit in seconds", optional=True),
    Field("evidence.node", _T, "the node's name in the batch system"),
    Field("evidence.transfer", _T, "the error message of a failed transfer"),
    Field("evidence.stage", _T, "the stage it reached: `staging-in`, `executing`, `staging-out`, `cleanup`; empty if unknown"),
    Field("evidence.more", FieldType.DATA, "other evidence"),
    Field("run.id", _T, "the run"),
    Field("run.flow", _T, "the flow's name"),
    Field("run.version", _T, "the flow's version"),
    Field("run.data", FieldType.DATA, "the run's parameters, and the results of its tasks under `tasks`"),
    Field("run.depth", _I, "how many parent runs it has"),
    Field("run.age", _N, "seconds since it started"),
    Field("task.name", _T, "the task instance"),
    Field("task.status", _T, "its status"),
    Field("task.data", FieldType.DATA, "its data: result, outputs and counts so far"),
    Field("task.round", _I, "the number of its round"),
    Field("task.age", _N, "seconds since it was enabled"),
    Field("tasks", FieldType.WORDS, "the status of every task of the run, by name"),
    Field("host.name", _T, "the host"),
    Field("host.closed", _B, "whether it is closed to new jobs"),
    Field("site.name", _T, "the site"),
    Field("history.same_cause", _I, "earlier attempts of this job with the same cause"),
    Field("history.same_host", _I, "earlier attempts of this job on the same host"),
    Field("history.cause_1h", _I, "failures with the same cause within the last hour, over all jobs of the tenant"),
    Field("history.flow_1h", _I, "failures of the same version of the flow within the last hour"),
    Field("history.owner_1h", _I, "failures of the same owner within the last hour"),
    Field("external", FieldType.DATA, "values of registered external sources, by name"),
    Field("now.hour", _I, "the hour of the day in UTC"),
    Field("now.weekday", _I, "the day of the week, 1 for Monday"),
)  # fmt: skip

BY_NAME: Mapping[str, Field] = {field.name: field for field in FIELDS}
_GROUPS = frozenset(field.name.partition(".")[0] for field in FIELDS if "." in field.name)

Context = Mapping[str, object]
"""The value of every field by its name."""

_EMPTY: Mapping[FieldType, object] = {
    FieldType.INT: 0, FieldType.NUMBER: 0.0, FieldType.TEXT: "", FieldType.TRUTH: False,
    FieldType.TEXTS: [], FieldType.WORDS: {}, FieldType.DATA: {}, FieldType.RECORDS: [],
}  # fmt: skip
NOTHING_KNOWN: Context = {field.name: None if field.optional else _EMPTY[field.kind] for field in FIELDS} | {
    UNFILLED: []
}
"""The context in which every field is missing."""


def read_context(facts: Mapping[str, object]) -> tuple[Context, tuple[str, ...]]:
    """The complete context from the given values, and all errors in them; wrong values are left out.

    Too long lists and texts are not errors: they are cut, and the newest part, at the end, is kept.
    """
    context = dict(NOTHING_KNOWN)
    wrong: list[str] = []
    left = [MOST_TEXT]
    for name, value in _flat(facts):
        if name == UNFILLED and isinstance(value, Sequence):
            context[UNFILLED] = [field for field in value if field in BY_NAME]
            continue
        field = BY_NAME.get(name)
        if field is None:
            close = get_close_matches(name, BY_NAME, n=1)
            wrong.append(f"{name}: there is no such field" + (f"; did you mean {close[0]}?" if close else ""))
            continue
        if value is None:
            if not field.optional:
                wrong.append(f"{name}: it is never null; omit it or give a {field.kind}")
            continue
        fitting, problem = _fit(field, value, left)
        if problem:
            wrong.append(f"{name}: {problem}")
        else:
            context[name] = fitting
    return context, tuple(wrong)


def _flat(facts: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in facts.items():
        if name in _GROUPS and name not in BY_NAME and isinstance(value, Mapping):
            for inner, entry in value.items():
                yield f"{name}.{inner}", entry
        else:
            yield name, value


def _fit(field: Field, value: object, left: list[int]) -> tuple[object, str]:
    kind = field.kind
    # The most frequent types first: replays read hundreds of thousands of contexts.
    if kind is _T and type(value) is str and len(value) <= 200 and len(value) <= left[0] and value.isascii():
        left[0] -= len(value)
        return value, ""
    if kind is _I and type(value) is int and -_LARGEST <= value <= _LARGEST:
        return value, ""
    if kind is _TEXTS and type(value) is list and _fits_whole(value, left):
        return value, ""
    bad = f"it is {type(value).__name__}; expected a {field.kind}"
    if field.kind is FieldType.TRUTH:
        return (value, "") if isinstance(value, bool) else (None, bad)
    if isinstance(value, bool):
        return None, bad
    if field.kind is FieldType.INT:
        return (value, "") if isinstance(value, int) and abs(value) <= _LARGEST else (None, bad)
    if field.kind is FieldType.NUMBER:
        return (float(value), "") if isinstance(value, int | float) and abs(value) < 1e300 else (None, bad)
    if field.kind is FieldType.TEXT:
        return (_cut(value, left), "") if isinstance(value, str) else (None, bad)
    if field.kind in {FieldType.TEXTS, FieldType.RECORDS}:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            return None, bad
        wanted: type = str if field.kind is FieldType.TEXTS else Mapping
        if not all(isinstance(member, wanted) for member in value):
            return None, f"an element has another type; expected a {field.kind}"
        # The newest comes last; it is kept, even when the texts together are too long.
        kept = [_plain(member, left, DEEPEST) for member in reversed(value[-MOST_MEMBERS:])]
        return kept[::-1], ""
    if not isinstance(value, Mapping):
        return None, bad
    if field.kind is FieldType.WORDS and not all(isinstance(member, str) for member in value.values()):
        return None, f"an element has another type; expected a {field.kind}"
    return _plain(value, left, DEEPEST), ""


def _fits_whole(lines: list[object], left: list[int]) -> bool:
    """Whether a list contains only texts, none of which has to be cut."""
    try:
        together = "".join(lines)  # type: ignore[arg-type]
    except TypeError:
        return False
    size = len(together)
    if size > left[0] or len(lines) > MOST_MEMBERS or not together.isascii():
        return False
    if size > LONGEST_TEXT and max(map(len, lines)) > LONGEST_TEXT:  # type: ignore[arg-type]
        return False
    left[0] -= size
    return True


def _plain(value: object, left: list[int], depth: int) -> object:
    """A JSON value within the bounds: parts that are too deep or not JSON become null, parts that are too long are cut."""
    if isinstance(value, str):
        return _cut(value, left)
    if value is None or isinstance(value, bool) or (isinstance(value, float) and abs(value) < 1e300):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST else float(value) if abs(value) < 10**300 else None
    if depth <= 0:
        return None
    if isinstance(value, Mapping):
        few = list(value.items())[:MOST_MEMBERS]
        return {_cut(str(key), left): _plain(entry, left, depth - 1) for key, entry in few}
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return [_plain(entry, left, depth - 1) for entry in value[-MOST_MEMBERS:]]
    return None


def _cut(text: str, left: list[int]) -> str:
    kept = text[: min(LONGEST_TEXT, max(0, left[0]))]
    left[0] -= len(kept)
    # A lone surrogate cannot be encoded.
    return kept if kept.isascii() else kept.encode("utf-8", "replace").decode()


def worst_context() -> Context:
    """A context at its bounds, which a condition must be able to evaluate before it is saved."""
    line = "a" * 300
    values: dict[FieldType, object] = {
        FieldType.INT: _LARGEST, FieldType.NUMBER: 1e299, FieldType.TEXT: "a" * 200, FieldType.TRUTH: True,
        FieldType.TEXTS: [line] * MOST_MEMBERS,
        FieldType.WORDS: {f"name-{n}": "running" for n in range(MOST_MEMBERS)},
        FieldType.DATA: {f"name{n}": [n] * 20 for n in range(MOST_MEMBERS)},
        FieldType.RECORDS: [{"attempt": 1, "host": "node", "cause": "memory", "exit_code": 137}] * MOST_MEMBERS,
    }  # fmt: skip
    return {field.name: values[field.kind] for field in FIELDS}


_INCIDENT_GROUPS = ("job", "evidence", "run", "task", "host", "site", "history", "now", "exception")
_HOUR = 3_600_000
_RESOURCES = ("cpus", "memory", "disk", "gpus", "wall")
_FIELD_NAMES: Mapping[str, Mapping[str, str]] = {
    group: {name.removeprefix(f"{group}."): name for name in BY_NAME if name.startswith(f"{group}.")}
    for group in _INCIDENT_GROUPS
}
"""The fields of each group by the name that they have in it."""


ALL_FIELDS = frozenset(BY_NAME)


@lru_cache(maxsize=64)
def _names_of(wanted: frozenset[str]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """The wanted fields by group, each with its name within the group."""
    found = (
        (group, tuple((inner, name) for inner, name in _FIELD_NAMES[group].items() if name in wanted))
        for group in _INCIDENT_GROUPS
    )
    return tuple((group, names) for group, names in found if names)


def told_by(incident: Incident, wanted: frozenset[str] = ALL_FIELDS) -> dict[str, object]:
    """The values of some fields in an incident; `read_context` makes a complete context from them.

    Parts of an incident without a field (the lines that decided, advice) are skipped. `host.name` may follow from `evidence.node`: a caller that needs the former names both.
    """
    kept: Mapping[str, Any] = incident.context
    values: dict[str, object] = {name: value for name, value in kept.items() if name in wanted and value is not None}
    if kept.get(UNFILLED):
        values[UNFILLED] = kept[UNFILLED]
    for group, names in _names_of(wanted):
        inner = kept.get(group)
        if isinstance(inner, Mapping):
            for short, name in names:
                value = inner.get(short)
                if value is not None:
                    values[name] = value
    job = kept.get("job")
    resources = job.get("resources") if isinstance(job, Mapping) else None
    if isinstance(resources, Mapping):
        values |= {f"job.{name}": resources[name] for name in _RESOURCES if resources.get(name) is not None}
    finding = kept.get("finding")
    if isinstance(finding, Mapping):
        values |= {
            name: finding[name] for name in ("cause", "confidence", "retry", "pattern") if finding.get(name) is not None
        }
    lines = values.get("evidence.log_tail")
    if isinstance(lines, str):
        values["evidence.log_tail"] = lines.splitlines()
    named = {
        "job.id": incident.job,
        "job.owner": incident.owner,
        "run.id": incident.run,
        "run.version": incident.flow,
    }
    values |= {name: value for name, value in named.items() if value}
    values |= {"exception.type": incident.kind.value, "job.attempt": incident.attempt}
    if "evidence" in kept:
        values.setdefault("evidence.scheduler", "none")
    # Fields that incidents written before 0.2 did not keep.
    if values.get("evidence.node"):
        values.setdefault("host.name", values["evidence.node"])
    values.setdefault("now.hour", incident.at // _HOUR % 24)
    values.setdefault("now.weekday", (incident.at // _HOUR // 24 + 3) % 7 + 1)
    values.setdefault("cause", incident.cause)
    if incident.instance:
        values.setdefault("task.name", incident.instance)
        values.setdefault("exception.task", task_of(incident.instance).partition(":")[0].partition("[")[0])
    return values
