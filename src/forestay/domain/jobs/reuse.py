"""Whether the result of an earlier job may replace that of a new one: only if everything that can affect the result is the same.

That is its *reuse key*: the specification as it is for this job (command, environment, references of secrets, container, outputs, parameters, number) and the digest of every input.
Resources, priority, retries, labels and names of runs are not part of it. Jobs with external effects are never reused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import NamedTuple

from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Effects, RunnerKind, Specification

REUSE = "reuse"
"""The field of a job's document for the decision about reusing a result."""
NOT_ASKED = "its flow does not reuse results; 'reuse: true' in the flow asks for it"
NO_FLOW = "it belongs to no flow, and only the results of flows are reused"
FIRST = "no earlier result of this element of the task is known"


def never_reused(spec: Specification) -> str:
    """Why results of this specification are never reused; empty: they may be."""
    if spec.effects is not Effects.INTERNAL:
        return f"its effects are {spec.effects.value}: they would be missing"
    if spec.runner is not RunnerKind.PROCESS:
        return "it is a call in an interpreter that keeps its state"
    return ""


def reuse_fields(
    spec: Specification,
    parameters: Mapping[str, object],
    index: int | None,
    digests: Mapping[str, str],
    contents: Mapping[str, str] | None = None,
    *,
    owner: str = "",
) -> dict[str, str]:
    """The digest of everything that a job's result can depend on, by name.

    The owner is part of it: at sites where jobs run as their submitters, each owner's pilots write results that no other owner can trust.

    ``digests``: of its inputs, by their names in its folder; ``contents``: of the files that its parameters name.
    """

    def filled(text: str) -> str:
        return filled_text(text, parameters, index)

    values: dict[str, object] = {
        "owner": owner,
        "command": [filled(word) for word in spec.command],
        "container": spec.container,
        "outputs": [[filled(text) for text in spec.outputs], sorted(spec.named_outputs.items())],
        "index": index,
        "specification": sorted(spec.extra.items()),
    }
    values |= {f"environment {name}": filled(value) for name, value in spec.environment.items()}
    # By reference: a value that is replaced at its source changes no key, and none can be guessed from one.
    values |= {f"secret {name}": [str(reference), reference.as_file] for name, reference in spec.secrets.items()}
    values |= {f"parameter {name}": value for name, value in parameters.items()}
    values |= {f"input {name}": digest for name, digest in digests.items()}
    values |= {f"file {path}": digest for path, digest in (contents or {}).items()}
    return {name: _digest(value) for name, value in values.items()}


def named_files(parameters: Mapping[str, object]) -> list[str]:
    """The paths that parameters name, however deep inside: a job may read what is there without having it as an input."""
    found: dict[str, None] = {}
    wanted: list[object] = list(parameters.values())
    while wanted:
        match wanted.pop():
            case str() as text if text.startswith("/"):
                found[text] = None
            case Mapping() as record:
                wanted += record.values()
            case list() | tuple() as values:
                wanted += values
    return list(found)


def reuse_key(tenant: str, fields: Mapping[str, str]) -> str:
    """The digest of all fields together."""
    return _digest([tenant, sorted(fields.items())])


def differing(fields: Mapping[str, str], before: Mapping[str, object]) -> list[str]:
    """The fields in which a job differs from an earlier one."""
    return sorted(name for name in fields.keys() | before.keys() if fields.get(name) != before.get(name))


def reuse_note(document: JobDocument) -> Mapping[str, object]:
    """The decision about a job; empty: none."""
    note = document.extra.get(REUSE) if document.extra else None
    return note if isinstance(note, Mapping) else {}


def result_job(document: JobDocument) -> str:
    """The job that made the result of this one: itself, or the one whose result is reused."""
    made_by = reuse_note(document).get("from")
    return made_by if isinstance(made_by, str) and made_by else document.id


class ReuseExplanation(NamedTuple):
    """Why a job runs, or whose result it has instead."""

    reused: str | None
    """The job whose result replaces its own."""
    why: str
    differs: tuple[str, ...] = ()
    """The fields of its key that differ from those of the nearest earlier job."""
    nearest: str | None = None


def why_run(document: JobDocument) -> ReuseExplanation:
    """Why a job runs."""
    note = reuse_note(document)
    if "from" in note:
        return ReuseExplanation(
            result_job(document), f"everything is as in job {result_job(document)}, whose result is reused"
        )
    differs, nearest = note.get("differs"), note.get("nearest")
    fields = tuple(str(name) for name in differs) if isinstance(differs, list | tuple) else ()
    unasked = NO_FLOW if document.flow_ref is None else NOT_ASKED
    return ReuseExplanation(None, str(note.get("why", unasked)), fields, str(nearest) if nearest else None)


def expected_digests(document: JobDocument) -> Mapping[str, str]:
    """The digests that the inputs of a job had when its key was made: staged inputs must have the same, or the key would not apply."""
    known = reuse_note(document).get("inputs")
    return {str(name): str(digest) for name, digest in known.items()} if isinstance(known, Mapping) else {}


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
