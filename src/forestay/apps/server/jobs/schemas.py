"""Requests about jobs, with all limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, model_validator

from forestay.apps.server.http.schemas import INT64, EnvName, Id, Model, Name, NoNul, Reason, Word, one_line
from forestay.domain.jobs.checkpoint import MAX_EVERY, MAX_FILES, MAX_GRACE
from forestay.domain.jobs.container_image import image_problem
from forestay.domain.jobs.job_secrets import LONGEST, MAX_SECRETS, secrets_from_plain, wrong_secrets
from forestay.domain.jobs.specification import MAX_NODES


def inside_folder(pattern: str) -> str:
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError("an output is a file in the job's folder; no leading '/' and no '..'")
    return pattern


OutputPattern = Annotated[Name, Field(max_length=1000), AfterValidator(inside_folder)]


class ResourcesIn(Model):
    cpus: int = Field(default=1, ge=0, le=100_000)
    memory: int = Field(default=0, ge=0, le=2**50)
    disk: int = Field(default=0, ge=0, le=2**55)
    gpus: int = Field(default=0, ge=0, le=100_000)
    wall: int | None = Field(default=None, ge=1, le=31_536_000)
    nodes: int = Field(default=1, ge=1, le=MAX_NODES)
    """The other amounts are of each of them."""


class InputIn(Model):
    name: Annotated[Name, Field(max_length=1000)]
    source: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(one_line)]
    bytes: int | None = Field(default=None, ge=0, le=INT64)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class ColocateIn(Model):
    """The co-location of the jobs: with those that share the key, which may contain `{name}` for a parameter."""

    key: Annotated[Name, Field(max_length=500)]
    room: int = Field(default=1, ge=1, le=10_000)
    of: int = Field(default=0, ge=0, le=1_000_000)


class CheckpointIn(Model):
    """The files from which a job continues in its next attempt, and how it is told to write them."""

    files: list[OutputPattern] = Field(min_length=1, max_length=MAX_FILES)
    signal: Literal["TERM", "INT", "HUP", "USR1", "USR2"] = "TERM"
    every: int = Field(default=0, ge=0, le=MAX_EVERY)
    grace: int = Field(default=10, ge=1, le=MAX_GRACE)


SecretText = Annotated[str, Field(min_length=1, max_length=LONGEST + 10), AfterValidator(one_line)]


class SpecificationIn(Model):
    name: Name = "job"
    command: list[Annotated[NoNul, Field(max_length=131_072)]] = Field(min_length=1, max_length=10_000)
    environment: dict[EnvName, Annotated[NoNul, Field(max_length=131_072)]] = Field(
        default_factory=dict, max_length=1000
    )
    resources: ResourcesIn = ResourcesIn()
    inputs: list[InputIn] = Field(default_factory=list, max_length=1000)
    staging: Literal["parallel", "sequential"] = "parallel"
    outputs: list[OutputPattern] = Field(default_factory=list, max_length=1000)
    effects: Literal["internal", "external", "resumable"] = "internal"
    runner: Literal["process", "warm"] = "process"
    max_attempts: int = Field(default=1, ge=1, le=100)
    retry_wait: int = Field(default=0, ge=0, le=86_400)
    when_exhausted: Literal["fail", "hold"] = "fail"
    colocate: ColocateIn | None = None
    container: Annotated[str, Field(max_length=1000, pattern=r"^([A-Za-z0-9/][^\x00-\x20\x7f]*)?$")] = ""
    requires: Annotated[NoNul, Field(max_length=1000)] = ""
    licences: dict[
        Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")],
        Annotated[int, Field(ge=1, le=10_000)],
    ] = Field(default_factory=dict, max_length=8)
    checkpoint: CheckpointIn | None = None
    secrets: dict[
        Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")],
        SecretText | dict[Literal["file", "vault", "as"], SecretText],
    ] = Field(default_factory=dict, max_length=MAX_SECRETS)
    """By variable: `file:NAME` or `vault:PATH#KEY`; with `{"file": NAME, "as": "file"}` the variable has the path of a file with the value."""

    @model_validator(mode="after")
    def _calls_are_plain(self) -> SpecificationIn:
        if self.container and (why := image_problem(self.container)):
            raise ValueError(f"container: {why}")
        if self.container and self.runner == "warm":
            raise ValueError("a function call cannot run in a container; use runner `process`")
        if self.secrets and (why := _wrong_secrets(self)):
            raise ValueError(f"secrets: {why}")
        if self.secrets and self.runner == "warm":
            raise ValueError(
                "a function call cannot have secrets: its interpreter serves other calls, too; use runner `process`"
            )
        if self.checkpoint is not None and self.runner == "warm":
            raise ValueError("a function call cannot have checkpoints; use runner `process`")
        return self


def _wrong_secrets(specification: SpecificationIn) -> str:
    """The first error; a reference that makes no sense raises ValueError."""
    wrong = wrong_secrets(secrets_from_plain(specification.secrets), specification.environment)
    return next((f"{': '.join(at)}: {words}" if at else words for at, words in wrong), "")


class JobIn(Model):
    specification: SpecificationIn | None = None
    parameters: dict[Annotated[str, Field(max_length=100)], JsonValue] = Field(default_factory=dict, max_length=100)
    index: int | None = Field(default=None, ge=0, le=INT64)
    name: Name | None = None
    owner: Word | None = None
    team: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._@+-]*$")] = ""
    labels: dict[
        Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._/-]+$")],
        Annotated[str, Field(max_length=200), AfterValidator(one_line)],
    ] = Field(default_factory=dict, max_length=32)
    priority: int = Field(default=0, ge=-1000, le=1000)
    expected_runtime: int | None = Field(default=None, ge=1, le=31_536_000)
    resources: ResourcesIn | None = None
    not_before: Annotated[str, Field(max_length=40)] | None = None
    callback: Annotated[str, Field(max_length=2000)] | None = None
    hold: bool = False


class SubmitIn(Model):
    specification: SpecificationIn | None = None
    jobs: list[JobIn] = Field(min_length=1, max_length=10_000)


class ReasonIn(Model):
    reason: Reason = ""


class ContinueIn(Model):
    holder: Annotated[str, Field(max_length=200)] | None = None


class ReleaseIn(Model):
    expected_attempt: int = Field(ge=0, le=INT64)
    expected_claim: Id
    reason: Annotated[Reason, Field(min_length=1)]


class ForceIn(Model):
    expected_attempt: int = Field(ge=0, le=INT64)
    expected_generation: int = Field(default=0, ge=0, le=INT64)
    reason: Annotated[Reason, Field(min_length=1)]
