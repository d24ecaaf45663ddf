"""Downstream task servers as an operator writes them: tables of the settings file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forestay.domain.jobs.job_document import ANY_DOWNSTREAM

_Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Reference = Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")]
"""Where a secret is: a variable of the environment, or a file. Never the secret itself."""


class DownstreamTable(BaseModel):
    """A GA4GH TES server that tasks are sent on to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    url: Annotated[str, Field(max_length=500, pattern=r"^https?://[^@?#]+$")]
    """Its address; `/ga4gh/tes/v1` is put behind one without a path."""
    token: _Reference | None = None
    """Where the token for it is: `env:NAME` or `file:PATH`."""
    tenants: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    """Whose jobs may be sent there."""
    default: bool = False
    """Whether tasks that do not say where they are to go are sent there; to any of those that say so."""
    most: Annotated[int, Field(ge=1, le=5000)] = 500
    """Tasks under way there at once."""
    patience: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that it may be silent before its tasks are given up."""
    callbacks: bool = False
    """Whether it is a Forestay that may call this one back, so that ends are heard of at once."""
    image: Annotated[str, Field(max_length=500)] = "docker.io/library/alpine:3"
    """The image for jobs that name no container."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.name == ANY_DOWNSTREAM:
            raise ValueError(f"{ANY_DOWNSTREAM} stands for all of them, and is no name")
        return self


def check_downstreams(tables: Sequence[DownstreamTable]) -> None:
    """`ValueError` if two have one name."""
    names = [one.name for one in tables]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two downstreams are called {', '.join(double)}")


def downstream_for(tables: Sequence[DownstreamTable], tenant: str, wanted: str) -> str | None:
    """Where a job of a tenant goes that wants to go there, or says nothing: a name, `any`, empty for pilots; None: there is no such downstream."""
    able = [one for one in tables if tenant in one.tenants]
    if wanted:
        known = {one.name for one in able} | ({ANY_DOWNSTREAM} if able else set())
        return wanted if wanted in known else None
    chosen = [one.name for one in able if one.default]
    return "" if not chosen else chosen[0] if len(chosen) == 1 and len(able) == 1 else ANY_DOWNSTREAM
