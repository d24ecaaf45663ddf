"""Downstream task servers: tables of the settings file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forestay.domain.jobs.job_document import ANY_DOWNSTREAM

_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Reference = Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")]
"""Where a secret is: a variable of the environment, or a file. Never the secret itself."""


class DownstreamTable(BaseModel):
    """A GA4GH TES server to which tasks are forwarded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    url: Annotated[str, Field(max_length=500, pattern=r"^https?://[^@?#]+$")]
    """Its address; `/ga4gh/tes/v1` is appended to one without a path."""
    token: _Reference | None = None
    """Where the token for it is: `env:NAME` or `file:PATH`."""
    tenants: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    """The tenants whose jobs may be forwarded to it."""
    default: bool = False
    """Whether tasks that name no downstream are forwarded to it."""
    most: Annotated[int, Field(ge=1, le=5000)] = 500
    """Maximum number of active tasks there."""
    patience: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for which it may be silent before its tasks are given up."""
    callbacks: bool = False
    """Whether it is a Forestay server that may call this one back, so that completions are reported at once."""
    image: Annotated[str, Field(max_length=500)] = "docker.io/library/alpine:3"
    """The image for jobs that name no container."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.name == ANY_DOWNSTREAM:
            raise ValueError(f"{ANY_DOWNSTREAM} means all of them and cannot be a name")
        return self


def downstream_for(tables: Sequence[DownstreamTable], tenant: str, wanted: str) -> str | None:
    """The destination of a tenant's job that names a downstream, or none: a name, `any`, empty for pilots; None: there is no such downstream."""
    able = [table for table in tables if tenant in table.tenants]
    if wanted:
        known = {table.name for table in able} | ({ANY_DOWNSTREAM} if able else set())
        return wanted if wanted in known else None
    chosen = [table.name for table in able if table.default]
    return "" if not chosen else chosen[0] if len(chosen) == 1 and len(able) == 1 else ANY_DOWNSTREAM
