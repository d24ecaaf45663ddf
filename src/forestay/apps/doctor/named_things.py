"""What settings refer to: secrets by reference, files, addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from forestay.apps.config.settings import Settings

REFERENCE = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)")


class NamedSetting(NamedTuple):
    """A value and its position in the settings."""

    where: str
    value: object


def references(settings: Settings) -> Iterator[tuple[str, str]]:
    """References to secrets."""
    for where, value in _walk(settings, ""):
        if isinstance(value, str) and REFERENCE.fullmatch(value):
            yield where, value


def files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for where, value in _walk(settings, ""):
        if isinstance(value, Path) and value.is_file():
            yield where, value


def addresses(settings: Settings) -> Iterator[str]:
    """Addresses that are connected to with TLS."""
    for _, value in _walk(settings, ""):
        if isinstance(value, str) and value.startswith("https://"):
            yield value


def _walk(value: object, where: str) -> Iterator[NamedSetting]:
    """Every single value. A table in a list is identified by its name, if it has one."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _walk(getattr(value, name), f"{where} {name}".strip())
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _walk(entry, f"{where} {name}")
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _walk(entry, f"{where} {getattr(entry, 'name', '')}".strip())
    else:
        yield NamedSetting(where, value)
