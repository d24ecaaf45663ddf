"""What callbacks of task servers may contain."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class ToldIn(BaseModel):
    """What a callback says; only which task it is about counts."""

    model_config = ConfigDict(extra="ignore")

    job: Annotated[str, Field(min_length=1, max_length=200)]
