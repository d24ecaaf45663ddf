"""Job documents, specifications and their parts as JSON, for the stores.

Defaults are left out, so that a document is small. Fields that this code does not know are carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from operator import itemgetter
from typing import Any

from forestay.domain.jobs.checkpoint import checkpoint_as_plain, checkpoint_from_plain
from forestay.domain.jobs.inputs import JobInput, Staging
from forestay.domain.jobs.job_document import (
    AttemptOutcome,
    AttemptResult,
    Claim,
    Delivery,
    FlowRef,
    JobDocument,
    JobPhase,
    Manifest,
    RankEnd,
    SavedCheckpoint,
    State,
    Token,
    Transition,
    search_fields,
)
from forestay.domain.jobs.job_secrets import secrets_from_plain
from forestay.domain.jobs.requirements import needs_as_plain
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Effects, RetryPolicy, RunnerKind, Specification, WhenExhausted

Json = dict[str, Any]

_NO_RETRY = RetryPolicy()

# Every claim and every end decodes and encodes a whole document, so both handle the usual fields all at once,
# and others only where there are any.
_PLAIN = (
    "id", "tenant", "specification", "name", "owner", "created", "changed", "priority", "not_before", "generation",
    "attempt", "rev", "min_writer", "failures", "releases",
)  # fmt: skip
_plain = itemgetter(*_PLAIN)
_CONVERTED = frozenset({"resources", "state", "history"})
_DERIVED = frozenset(
    {
        "slot", "lane", "rank", "resource_class", "retries", "held", "pilot", "host", "cpus", "memory", "disk", "gpus",
        "overdue", "notify_due", "exit_code", "run", "work", "ended",
    }
)  # fmt: skip
_USUAL = frozenset(_PLAIN) | _CONVERTED | _DERIVED
_STATES = {state.value: state for state in State}


def job_to_json(document: JobDocument) -> Json:
    """The stored form, with the fields that stores index."""
    return own_fields(document) | search_fields(document)


def own_fields(document: JobDocument) -> Json:
    """The stored form without derived fields."""
    own = document.__dict__
    out: Json = dict(zip(_PLAIN, _plain(own), strict=True))
    out["resources"] = resources_to_json(document.resources)
    out["state"] = document.state.value
    out["history"] = [tuple(line) for line in document.history]
    for name, write in _OPTIONAL_WRITERS:
        value = own[name]
        if value is not None:
            out[name] = write(value)
    for name in _FILLED:
        if own[name]:
            out[name] = own[name]
    if document.retry is not _NO_RETRY and document.retry != _NO_RETRY:
        out["retry"] = retry_to_json(document.retry)
    if document.winner is not None:
        # The winner nearly always is the last end: a short mark instead of the same content twice.
        out["winner"] = "last" if document.winner == document.last else ending_to_json(document.winner)
    return {**document.extra, **out} if document.extra else out


def job_from_json(data: Mapping[str, Any]) -> JobDocument:
    """Read the stored form."""
    fields = _DEFAULTS.copy()
    fields.update(zip(_PLAIN, _plain(data), strict=True))
    fields["resources"] = resources_from_json(data["resources"])
    fields["state"] = _STATES[data["state"]]
    fields["history"] = tuple(_transition(line) for line in data["history"])
    others = data.keys() - _USUAL
    if others:
        _read_others(fields, data, others)
    return JobDocument.whole(fields)


def _read_others(fields: Json, data: Mapping[str, Any], others: Set[str]) -> None:
    extra: Json = {}
    for name in others:
        read = _OPTIONAL_READERS.get(name)
        if read is not None:
            fields[name] = read(data[name])
        elif name != "winner":
            extra[name] = data[name]
    if "winner" in others:
        winner = data["winner"]
        fields["winner"] = fields["last"] if winner == "last" else ending_from_json(winner)
    fields["extra"] = extra


def _transition(line: Sequence[Any]) -> Transition:
    return Transition._make(line[:7])  # a newer writer may add fields


def _as_it_is(value: Any) -> Any:
    return value


def claim_to_json(claim: Claim) -> Json:
    return {"id": claim.id, "pilot": claim.pilot, "host": claim.host, "granted": claim.granted}


def claim_from_json(data: Mapping[str, Any]) -> Claim:
    return Claim(data["id"], data["pilot"], data["host"], data["granted"])


def delivery_to_json(delivery: Delivery) -> Json:
    return {"url": delivery.url, "tries": delivery.tries, "due": delivery.due, "done": delivery.done}


def delivery_from_json(data: Mapping[str, Any]) -> Delivery:
    return Delivery(data["url"], data["tries"], data["due"], data["done"])


def resources_to_json(resources: Resources) -> Json:
    out: Json = {"cpus": resources.cpus, "memory": resources.memory, "disk": resources.disk, "gpus": resources.gpus}
    if resources.wall is not None:
        out["wall"] = resources.wall
    if resources.nodes != 1:
        out["nodes"] = resources.nodes
    return out


def resources_from_json(data: Mapping[str, Any]) -> Resources:
    return _resources(data["cpus"], data["memory"], data["disk"], data["gpus"], data.get("wall"), data.get("nodes", 1))


# Thousands of jobs have the same needs.
_resources = lru_cache(maxsize=4096)(Resources)


def retry_to_json(retry: RetryPolicy) -> Json:
    return {"max_attempts": retry.max_attempts, "wait": retry.wait, "when_exhausted": retry.when_exhausted.value}


def retry_from_json(data: Mapping[str, Any]) -> RetryPolicy:
    return RetryPolicy(data["max_attempts"], data["wait"], WhenExhausted(data["when_exhausted"]))


def flow_ref_to_json(flow_ref: FlowRef) -> Json:
    out = flow_ref._asdict()
    if not flow_ref.result:
        del out["result"]
    if flow_ref.above:
        out["above"] = list(flow_ref.above)
    else:
        del out["above"]
    if not flow_ref.prompt:
        del out["prompt"]
    return out


def flow_ref_from_json(data: Mapping[str, Any]) -> FlowRef:
    places = (data["run"], data["work"], data["flow"], data["shard"], data["place"], data["of"])
    return FlowRef(*places, data.get("result", ""), tuple(data.get("above", ())), data.get("prompt", False))


_ENDING_FACTS = (
    "exit_code", "signal", "started", "wall", "cpu", "peak_memory", "oom_kills", "disk_left", "stage", "error", "file", "left_running", "result", "input_bytes", "image",
)  # fmt: skip


def ending_to_json(ending: AttemptResult) -> Json:
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
        out["manifest"] = manifest_to_json(manifest)
    if ending.devices:
        out["devices"] = list(ending.devices)
    if ending.ranks:
        out["ranks"] = [rank_end_to_json(rank) for rank in ending.ranks]
    return out


def rank_end_to_json(rank: RankEnd) -> Json:
    return {name: value for name, value in rank._asdict().items() if value not in (None, "")}


def manifest_to_json(manifest: Manifest) -> Json:
    return {"path": manifest.path, "sha256": manifest.sha256, "files": manifest.files, "bytes": manifest.size}


def manifest_from_json(data: Mapping[str, Any] | None) -> Manifest | None:
    return _manifest(data) if data else None


def _manifest(data: Mapping[str, Any]) -> Manifest:
    return Manifest(data["path"], data["sha256"], data["files"], data["bytes"])


def ending_from_json(data: Mapping[str, Any]) -> AttemptResult:
    return AttemptResult(
        token=Token(data["generation"], data["attempt"]),
        claim=data["claim"],
        outcome=AttemptOutcome(data["outcome"]),
        reason=data["reason"],
        host=data.get("host", ""),
        manifest=manifest_from_json(data.get("manifest")),
        devices=tuple(data.get("devices", ())),
        ranks=tuple(RankEnd(**rank) for rank in data.get("ranks", ())),
        **{name: data.get(name) for name in _ENDING_FACTS},
    )


def saved_checkpoint_to_json(checkpoint: SavedCheckpoint) -> Json:
    out: Json = {
        "generation": checkpoint.token.generation,
        "attempt": checkpoint.token.attempt,
        "claim": checkpoint.claim,
        "number": checkpoint.number,
        "manifest": manifest_to_json(checkpoint.manifest),
        "content": checkpoint.content,
        "at": checkpoint.at,
    }
    if checkpoint.continuations:
        out["continuations"] = checkpoint.continuations
    if checkpoint.replaced is not None:
        out["replaced"] = manifest_to_json(checkpoint.replaced)
    return out


def saved_checkpoint_from_json(data: Mapping[str, Any]) -> SavedCheckpoint:
    return SavedCheckpoint(
        token=Token(data["generation"], data["attempt"]),
        claim=data["claim"],
        number=data["number"],
        manifest=_manifest(data["manifest"]),
        content=data["content"],
        at=data["at"],
        continuations=data.get("continuations", 0),
        replaced=manifest_from_json(data.get("replaced")),
    )


_OPTIONAL_WRITERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("index", _as_it_is),
    ("expected_runtime", _as_it_is),
    ("phase", _as_it_is),
    ("claim", claim_to_json),
    ("former_claim", _as_it_is),
    ("held_completion", ending_to_json),
    ("last", ending_to_json),
    ("checkpoint", saved_checkpoint_to_json),
    ("delivery", delivery_to_json),
    ("flow_ref", flow_ref_to_json),
)
_FILLED = ("parameters", "team", "labels", "holders", "overlap_possible", "confirmations", "stages")
"""Fields that are left out if empty."""
_OPTIONAL_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(
        (
            "index",
            "parameters",
            "team",
            "labels",
            "expected_runtime",
            "former_claim",
            "overlap_possible",
            "confirmations",
            "stages",
        ),
        _as_it_is,
    ),
    "phase": JobPhase,
    "claim": claim_from_json,
    "holders": tuple,
    "held_completion": ending_from_json,
    "last": ending_from_json,
    "retry": retry_from_json,
    "checkpoint": saved_checkpoint_from_json,
    "delivery": delivery_from_json,
    "flow_ref": flow_ref_from_json,
}
_DEFAULTS: Json = {
    "index": None, "parameters": {}, "team": "", "labels": {}, "expected_runtime": None, "retry": _NO_RETRY, "phase": None,
    "claim": None, "former_claim": None, "holders": (), "held_completion": None, "last": None, "winner": None,
    "checkpoint": None, "overlap_possible": False, "confirmations": 0, "stages": False, "delivery": None, "flow_ref": None, "extra": {},
}  # fmt: skip


def input_to_json(job_input: JobInput) -> Json:
    return {"name": job_input.name, "source": job_input.source, "bytes": job_input.size, "sha256": job_input.sha256}


def input_from_json(data: Mapping[str, Any]) -> JobInput:
    return JobInput(data["name"], data["source"], data.get("bytes"), data.get("sha256"))


def specification_to_json(spec: Specification) -> Json:
    return dict(spec.extra) | {
        "id": spec.id,
        "tenant": spec.tenant,
        "name": spec.name,
        "command": list(spec.command),
        "environment": dict(spec.environment),
        "resources": resources_to_json(spec.resources),
        "inputs": [input_to_json(job_input) for job_input in spec.inputs],
        "staging": spec.staging.value,
        "outputs": list(spec.outputs),
        **({"named_outputs": dict(spec.named_outputs)} if spec.named_outputs else {}),
        "effects": spec.effects.value,
        "runner": spec.runner.value,
        **({"container": spec.container} if spec.container else {}),
        **needs_as_plain(spec),
        **checkpoint_as_plain(spec.checkpoint),
        "retry": retry_to_json(spec.retry),
    }


_SPEC_KNOWN = frozenset(
    {
        "id", "tenant", "name", "command", "environment", "resources", "inputs", "staging", "outputs", "named_outputs",
        "effects", "runner", "container", "retry", "requires", "licences", "checkpoint", "secrets",
    }
)  # fmt: skip


def specification_from_json(data: Mapping[str, Any]) -> Specification:
    return Specification(
        id=data["id"],
        tenant=data["tenant"],
        name=data["name"],
        command=tuple(data["command"]),
        environment=data["environment"],
        resources=resources_from_json(data["resources"]),
        inputs=tuple(input_from_json(input_) for input_ in data.get("inputs", ())),
        staging=Staging(data.get("staging", Staging.PARALLEL)),
        outputs=tuple(data["outputs"]),
        named_outputs=data.get("named_outputs", {}),
        effects=Effects(data["effects"]),
        runner=RunnerKind(data.get("runner", RunnerKind.PROCESS)),
        container=data.get("container", ""),
        requires=data.get("requires", ""),
        licences=data.get("licences", {}),
        secrets=secrets_from_plain(data["secrets"]) if "secrets" in data else {},
        checkpoint=checkpoint_from_plain(data.get("checkpoint")),
        retry=retry_from_json(data["retry"]),
        extra={key: value for key, value in data.items() if key not in _SPEC_KNOWN},
    )
