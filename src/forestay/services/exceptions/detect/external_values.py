"""The values of external sources at the time of an exception. They are stored in its incident, so that a replay decides on the same values.

A source that does not answer in time, or not as declared, is missing: a condition that uses it errs, and a person is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from forestay.domain.rules.context import FieldType
from forestay.ports.clock import Clock
from forestay.ports.errors import PortError, Transient
from forestay.ports.exceptions.external_source import ExternalSource

PATIENCE = 2.0
"""Seconds within which a source must answer: a completion waits for it."""
FAILED_FRESH = 10.0
"""Seconds for which a failed source is not read again."""
_TYPES: Mapping[FieldType, tuple[type, ...]] = {
    FieldType.INT: (int,),
    FieldType.NUMBER: (int, float),
    FieldType.TEXT: (str,),
    FieldType.TRUTH: (bool,),
}


class RegisteredSource(NamedTuple):
    """A source, its name in conditions, and its values."""

    name: str
    source: ExternalSource
    fields: Mapping[str, FieldType]
    fresh: float
    """Seconds for which its values are cached."""


class _Known(NamedTuple):
    until: float
    values: Mapping[str, object] | None
    """None: it failed."""


@dataclass(slots=True)
class ExternalValues:
    """The service."""

    sources: Sequence[RegisteredSource]
    clock: Clock
    troubled: Callable[[str], None] = lambda _text: None
    _known: dict[str, _Known] = field(default_factory=dict)

    async def values(self) -> Mapping[str, Mapping[str, object]]:
        """The values of each source that answered, by its name."""
        if not self.sources:
            return {}
        at = self.clock.monotonic()
        due = [
            source for source in self.sources if source.name not in self._known or self._known[source.name].until <= at
        ]
        for source, values in zip(due, await asyncio.gather(*map(self._ask, due)), strict=True):
            self._known[source.name] = _Known(at + (FAILED_FRESH if values is None else source.fresh), values)
        return {name: known.values for name, known in self._known.items() if known.values is not None}

    async def _ask(self, source: RegisteredSource) -> Mapping[str, object] | None:
        try:
            async with asyncio.timeout(PATIENCE):
                return _read(await source.source.read(), source.fields)
        except TimeoutError:
            self.troubled(f"external source {source.name}: no answer within {PATIENCE:g} seconds")
        except PortError as error:
            self.troubled(f"external source {source.name}: {error}")
        return None


def _read(text: bytes, fields: Mapping[str, FieldType]) -> Mapping[str, object]:
    """The declared values; `Transient` if the text does not match the declaration. Undeclared values are left out."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Transient("its text is not JSON") from error
    if not isinstance(document, dict):
        raise Transient("its text is not a JSON object")
    values: dict[str, object] = {}
    for name, kind in fields.items():
        value = document.get(name)
        if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind is not FieldType.TRUTH):
            raise Transient(f"{name} is not declared as {type(value).__name__} but as {kind}")
        values[name] = float(value) if kind is FieldType.NUMBER and isinstance(value, int) else value
    return values
