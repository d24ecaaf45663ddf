"""Responses to pilots, and about pilots."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from forestay.apps.server.http.answers import Out, Time
from forestay.apps.server.jobs.job_answers import (
    ManifestOut,
    OutputsToOut,
    ResourcesOut,
    SpecificationOut,
    StagedInputOut,
)


class PilotOut(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)

    id: str
    tenant: str
    host: str
    site: str
    slots: int
    resources: ResourcesOut
    lease: int
    registered: Time
    state: Literal["alive", "gone", "silent"]
    changed: Time
    batch_job: str | None
    version: str
    note: str
    launch: str = ""
    owner: str = ""
    """The one owner whose jobs it gets; empty: those of all."""
    drain: str = ""
    revoked: str = ""
    """Who took its right away, and why."""
    activity: Literal["idle", "busy"] | None
    """Of one that is alive."""
    claims: int


class InactiveOut(Out):
    launch: str
    site: str
    state: Literal["planned", "submitted", "running"]
    batch_job: str
    planned: Time


class PilotsOut(Out):
    pilots: list[PilotOut]
    whole: bool = True
    """These are all; otherwise the 10,000 that registered last."""
    inactive: list[InactiveOut]
    """Pilots that wait in their batch systems."""


class DrainedOut(Out):
    pilots: list[str]


class TokenOut(Out):
    token: str
    token_seconds: int


class NeighbourOut(Out):
    pilot: str
    cache: str


class RegisteredOut(TokenOut):
    pilot: str
    lease: int
    heartbeat_every: float
    servers: list[str]
    neighbours: list[NeighbourOut]


class EnrolmentOut(Out):
    secret: str
    expires: Time


class HeartbeatOut(Out):
    token: str | None
    token_seconds: int
    cancel: list[str]
    drain: bool
    neighbours: list[NeighbourOut] | None = None


class BeginFromOut(Out):
    """The checkpoint with which an attempt begins: by its manifest, or file by file if that is on a storage element."""

    attempt: int
    manifest: ManifestOut
    files: list[StagedInputOut] | None = None
    missing: str | None = None


class CheckpointReplyOut(Out):
    path: str
    """The manifest of the checkpoint that counts; another one's if the content did not change."""


class ClaimOut(Out):
    job: str
    generation: int
    attempt: int
    claim: str
    tenant: str
    owner: str
    name: str
    index: int | None
    parameters: dict[str, Any]
    resources: ResourcesOut
    inputs: list[StagedInputOut] | None = None
    outputs_to: OutputsToOut | None = None
    free: int | None = None
    checkpoint: BeginFromOut | None = None
    task: dict[str, Any] | None = None
    """How to run a TES task, or which outputs of one to bring where."""
    specification: SpecificationOut


class CacheKnownOut(Out):
    known: int


class ClaimsOut(Out):
    claims: list[ClaimOut]
    cache: CacheKnownOut | None = None


class CompletionReplyOut(Out):
    claim: str
    result: Literal["committed", "held", "superseded", "unknown"]
    detail: str


class CompletionRepliesOut(Out):
    results: list[CompletionReplyOut]
    claims: list[ClaimOut] | None = None
    """If work was asked for as well."""
    cache: CacheKnownOut | None = None


class ByeOut(Out):
    released: int
