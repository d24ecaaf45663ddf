"""Jobs as the HTTP interface shows them: times in RFC 3339, no internal fields."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from forestay.domain.jobs.checkpoint import checkpoint_as_plain
from forestay.domain.jobs.colocation_key import COLOCATE
from forestay.domain.jobs.job_document import AttemptResult, JobDocument, Manifest, SavedCheckpoint, State, Transition
from forestay.domain.jobs.job_flow_pattern import patterns_in_use
from forestay.domain.jobs.lifecycle import words
from forestay.domain.jobs.requirements import needs_as_plain
from forestay.domain.jobs.resources import resource_class
from forestay.domain.jobs.specification import Specification
from forestay.formats.jobs.job_json import Json, ending_to_json, input_to_json, resources_to_json


def time_text(millis: int | None) -> str | None:
    """A time in RFC 3339."""
    if millis is None:
        return None
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def time_millis(text: str) -> int:
    """Read a time; one without a zone is UTC. `ValueError` for anything else."""
    read = datetime.fromisoformat(text)
    return round((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)


def job_public(document: JobDocument, version: str | None = None) -> Json:
    claim = document.claim
    delivery = document.delivery
    return {
        "id": document.id,
        "name": document.name,
        "tenant": document.tenant,
        "owner": document.owner,
        "team": document.team,
        "labels": dict(document.labels),
        "patterns": [pattern.value for pattern in patterns_in_use(document)],
        "state": document.state.value,
        "phase": document.phase.value if document.phase else None,
        "holders": list(document.holders),
        "held": bool(document.holders),
        "priority": document.priority,
        "index": document.index,
        "parameters": dict(document.parameters),
        "specification": document.specification,
        "resources": resources_to_json(document.resources) | {"wall": document.resources.wall},
        "resource_class": resource_class(document.resources),
        "expected_runtime": document.expected_runtime,
        "created": time_text(document.created),
        "changed": time_text(document.changed),
        "not_before": None if document.state is State.FAULTED else time_text(document.not_before or None),
        "generation": document.generation,
        "attempt": document.attempt,
        "retries": max(0, document.attempt - 1),
        "failures": document.failures,
        "releases": document.releases,
        "max_attempts": document.retry.max_attempts,
        "claim": {
            "id": claim.id, "pilot": claim.pilot, "host": claim.host, "granted": time_text(claim.granted),
        } if claim else None,
        "last": ending_public(document.last),
        "winner": {
            "attempt": document.winner.token.attempt, "manifest": manifest_public(document.winner.manifest),
        } if document.winner else None,
        "callback": {"url": delivery.url, "tries": delivery.tries, "done": delivery.done} if delivery else None,
        "run": document.flow_ref.run if document.flow_ref else None,
        "work": document.flow_ref.work if document.flow_ref else None,
        "overlap_possible": document.overlap_possible,
        "version": version,
        **checkpoint_public(document.checkpoint if document.state is not State.COMPLETED else None),
    }  # fmt: skip


def checkpoint_public(checkpoint: SavedCheckpoint | None) -> Json:
    """What the next attempt begins with; nothing for a job without any."""
    if checkpoint is None:
        return {}
    return {
        "checkpoint": {
            "attempt": checkpoint.token.attempt,
            "at": time_text(checkpoint.at),
            "manifest": manifest_public(checkpoint.manifest),
            "continuations": checkpoint.continuations,
        }
    }


def ending_public(ending: AttemptResult | None) -> Json | None:
    if ending is None:
        return None
    facts = {"exit_code": None, "signal": None, "wall": None, "cpu": None, "peak_memory": None, "result": None}
    return facts | ending_to_json(ending) | {"started": time_text(ending.started)}


def manifest_public(manifest: Manifest | None) -> Json | None:
    if manifest is None:
        return None
    return {"path": manifest.path, "sha256": manifest.sha256, "files": manifest.files, "bytes": manifest.size}


def transition_public(line: Transition) -> Json:
    return line._asdict() | {"at": time_text(line.at), "words": words(line)}


def story_public(lines: Iterable[Transition]) -> list[Json]:
    return [transition_public(line) for line in lines]


def specification_public(spec: Specification) -> Json:
    return {
        "id": spec.id,
        "name": spec.name,
        "command": list(spec.command),
        "environment": dict(spec.environment),
        "resources": resources_to_json(spec.resources),
        "inputs": [input_to_json(job_input) for job_input in spec.inputs],
        "staging": spec.staging.value,
        "outputs": list(spec.outputs),
        "effects": spec.effects.value,
        "runner": spec.runner.value,
        "max_attempts": spec.retry.max_attempts,
        "retry_wait": spec.retry.wait,
        "when_exhausted": spec.retry.when_exhausted.value,
        **({"container": spec.container} if spec.container else {}),
        **needs_as_plain(spec),
        **checkpoint_as_plain(spec.checkpoint),
        **({COLOCATE: spec.extra[COLOCATE]} if COLOCATE in spec.extra else {}),
    }
