"""Job documents, specifications and their parts as JSON, for the stores.

Defaults are left out, so that a document is small. Fields that this code does not know are carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.domain.jobs.job_document import (
    Claim,
    Delivery,
    Ending,
    JobDocument,
    Manifest,
    Outcome,
    Phase,
    State,
    Token,
    Transition,
    search_fields,
)
from holdfast.domain.jobs.resources import Resources
from holdfast.domain.jobs.specification import Effects, RetryPolicy, Specification, WhenExhausted

Json = dict[str, Any]

_DERIVED = frozenset(
    {
        "slot", "lane", "rank", "resource_class", "retries", "held", "pilot", "host", "cpus", "memory", "disk", "gpus",
        "overdue", "notify_due", "exit_code",
    }
)  # fmt: skip
_NO_RETRY = RetryPolicy()


def job_to_json(document: JobDocument) -> Json:
    """The stored form, with the fields that stores index."""
    out: Json = dict(document.extra)
    out |= {
        "id": document.id,
        "tenant": document.tenant,
        "specification": document.specification,
        "name": document.name,
        "owner": document.owner,
        "created": document.created,
        "changed": document.changed,
        "resources": resources_to_json(document.resources),
        "priority": document.priority,
        "not_before": document.not_before,
        "state": document.state.value,
        "generation": document.generation,
        "attempt": document.attempt,
        "rev": document.rev,
        "history": [tuple(line) for line in document.history],
        "min_writer": document.min_writer,
        "faults": document.faults,
        "releases": document.releases,
    }
    if document.index is not None:
        out["index"] = document.index
    if document.parameters:
        out["parameters"] = document.parameters
    if document.team:
        out["team"] = document.team
    if document.labels:
        out["labels"] = document.labels
    if document.expected_runtime is not None:
        out["expected_runtime"] = document.expected_runtime
    if document.retry != _NO_RETRY:
        out["retry"] = retry_to_json(document.retry)
    if document.phase is not None:
        out["phase"] = document.phase.value
    claim = document.claim
    if claim is not None:
        out["claim"] = {"id": claim.id, "pilot": claim.pilot, "host": claim.host, "granted": claim.granted}
    if document.former_claim is not None:
        out["former_claim"] = document.former_claim
    if document.holders:
        out["holders"] = list(document.holders)
    for name in ("held_end", "last"):
        ending: Ending | None = getattr(document, name)
        if ending is not None:
            out[name] = ending_to_json(ending)
    if document.winner is not None:
        # The winner nearly always is the last end: one word instead of the same thing twice.
        same = document.winner == document.last
        out["winner"] = "last" if same else ending_to_json(document.winner)
    if document.overlap_possible:
        out["overlap_possible"] = True
    if document.confirmations:
        out["confirmations"] = document.confirmations
    delivery = document.delivery
    if delivery is not None:
        out["delivery"] = {"url": delivery.url, "tries": delivery.tries, "due": delivery.due, "done": delivery.done}
    for name, value in search_fields(document).items():
        if value is not None:
            out[name] = value
    return out


_KNOWN = frozenset(
    {
        "id", "tenant", "specification", "name", "owner", "created", "changed", "resources", "priority", "not_before",
        "state", "generation", "attempt", "rev", "history", "min_writer", "faults", "releases", "index", "parameters",
        "team", "labels", "expected_runtime", "retry", "phase", "claim", "former_claim", "holders", "held_end", "last",
        "winner", "overlap_possible", "confirmations", "delivery",
    }
)  # fmt: skip
_READ = _KNOWN | _DERIVED


def job_from_json(data: Mapping[str, Any]) -> JobDocument:
    """Read the stored form back."""
    get = data.get
    last = ending_from_json(data["last"]) if "last" in data else None
    winner = get("winner")
    claim = get("claim")
    delivery = get("delivery")
    phase = get("phase")
    retry = get("retry")
    extra: Mapping[str, object] = {}
    if not data.keys() <= _READ:
        extra = {key: value for key, value in data.items() if key not in _READ}
    return JobDocument.whole(
        {
            "id": data["id"],
            "tenant": data["tenant"],
            "specification": data["specification"],
            "name": data["name"],
            "owner": data["owner"],
            "created": data["created"],
            "changed": data["changed"],
            "resources": resources_from_json(data["resources"]),
            "index": get("index"),
            "parameters": get("parameters", {}),
            "team": get("team", ""),
            "labels": get("labels", {}),
            "priority": data["priority"],
            "expected_runtime": get("expected_runtime"),
            "retry": retry_from_json(retry) if retry else _NO_RETRY,
            "not_before": data["not_before"],
            "state": State(data["state"]),
            "phase": Phase(phase) if phase else None,
            "generation": data["generation"],
            "attempt": data["attempt"],
            "claim": Claim(claim["id"], claim["pilot"], claim["host"], claim["granted"]) if claim else None,
            "former_claim": get("former_claim"),
            "holders": tuple(get("holders", ())),
            "held_end": ending_from_json(data["held_end"]) if "held_end" in data else None,
            "last": last,
            "winner": (last if winner == "last" else ending_from_json(winner)) if winner else None,
            "faults": data["faults"],
            "releases": data["releases"],
            "overlap_possible": get("overlap_possible", False),
            "confirmations": get("confirmations", 0),
            "delivery": Delivery(**delivery) if delivery else None,
            "rev": data["rev"],
            "history": tuple(Transition(*line[:7]) for line in data["history"]),
            "min_writer": data["min_writer"],
            "extra": extra,
        }
    )


def resources_to_json(resources: Resources) -> Json:
    out: Json = {"cpus": resources.cpus, "memory": resources.memory, "disk": resources.disk, "gpus": resources.gpus}
    if resources.wall is not None:
        out["wall"] = resources.wall
    return out


def resources_from_json(data: Mapping[str, Any]) -> Resources:
    return Resources(data["cpus"], data["memory"], data["disk"], data["gpus"], data.get("wall"))


def retry_to_json(retry: RetryPolicy) -> Json:
    return {"max_attempts": retry.max_attempts, "wait": retry.wait, "when_exhausted": retry.when_exhausted.value}


def retry_from_json(data: Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy(data["max_attempts"], data["wait"], WhenExhausted(data["when_exhausted"]))


_ENDING_FACTS = ("exit_code", "signal", "started", "wall", "cpu", "peak_memory")


def ending_to_json(ending: Ending) -> Json:
    out: Json = {
        "generation": ending.token.generation,
        "attempt": ending.token.attempt,
        "claim": ending.claim,
        "outcome": ending.outcome.value,
        "reason": ending.reason,
        "host": ending.host,
    }
    for name in _ENDING_FACTS:
        value = getattr(ending, name)
        if value is not None:
            out[name] = value
    manifest = ending.manifest
    if manifest is not None:
        out["manifest"] = {
            "path": manifest.path, "sha256": manifest.sha256, "files": manifest.files, "bytes": manifest.size,
        }  # fmt: skip
    return out


def ending_from_json(data: Mapping[str, Any]) -> Ending:
    manifest = data.get("manifest")
    return Ending(
        token=Token(data["generation"], data["attempt"]),
        claim=data["claim"],
        outcome=Outcome(data["outcome"]),
        reason=data["reason"],
        host=data.get("host", ""),
        manifest=Manifest(manifest["path"], manifest["sha256"], manifest["files"], manifest["bytes"])
        if manifest
        else None,
        **{name: data.get(name) for name in _ENDING_FACTS},
    )


def specification_to_json(spec: Specification) -> Json:
    return dict(spec.extra) | {
        "id": spec.id,
        "tenant": spec.tenant,
        "name": spec.name,
        "command": list(spec.command),
        "environment": dict(spec.environment),
        "resources": resources_to_json(spec.resources),
        "outputs": list(spec.outputs),
        "effects": spec.effects.value,
        "retry": retry_to_json(spec.retry),
    }


_SPEC_KNOWN = frozenset({"id", "tenant", "name", "command", "environment", "resources", "outputs", "effects", "retry"})


def specification_from_json(data: Mapping[str, Any]) -> Specification:
    return Specification(
        id=data["id"],
        tenant=data["tenant"],
        name=data["name"],
        command=tuple(data["command"]),
        environment=data["environment"],
        resources=resources_from_json(data["resources"]),
        outputs=tuple(data["outputs"]),
        effects=Effects(data["effects"]),
        retry=retry_from_json(data["retry"]),
        extra={key: value for key, value in data.items() if key not in _SPEC_KNOWN},
    )
