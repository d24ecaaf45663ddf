"""Imports of libraries that declare pydantic models which are rarely used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel


@contextmanager
def models_deferred() -> Iterator[None]:
    """Models that are declared in the block are built when they are first used, not when they are declared."""
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        del BaseModel.model_config["defer_build"]
