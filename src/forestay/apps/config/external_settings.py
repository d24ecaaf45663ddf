"""External sources of values for rules: tables of the settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Name = Annotated[str, Field(max_length=64, pattern=r"^[a-z][a-z0-9_]*$")]
RESERVED = "raised"
"""The reserved name for who raised a trigger."""


class ExternalSourceTable(BaseModel):
    """A source of values that rules ask about as `external.NAME.FIELD`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    url: Annotated[str, Field(max_length=500, pattern=r"^https?://[^@?#\s]+(\?[^#\s]*)?$")] = ""
    """An address that answers with a JSON object."""
    secret: Annotated[str, Field(max_length=1000, pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")] | None = None
    """Where the bearer token for it is, `env:NAME` or `file:PATH`."""
    command: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    """A program with its arguments that prints a JSON object."""
    file: Path | None = None
    """A file with a JSON object."""
    fields: Annotated[dict[_Name, Literal["int", "double", "string", "bool"]], Field(min_length=1, max_length=100)]
    """What is read of it, with its type; a source that tells otherwise counts as unavailable."""
    fresh: Annotated[float, Field(ge=1, le=86_400)] = 60.0
    """Seconds for which its values are used again."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if [bool(self.url), bool(self.command), self.file is not None].count(True) != 1:
            raise ValueError("an external source needs exactly one of url, command and file")
        if self.secret and not self.url:
            raise ValueError("only an external source with a url has a secret")
        if self.name == RESERVED:
            raise ValueError(f"an external source cannot be named {RESERVED}: rules find there who raised a trigger")
        return self
