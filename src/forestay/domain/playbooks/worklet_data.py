"""The data that a worklet receives."""

from __future__ import annotations

from collections.abc import Mapping

from forestay.domain.flows.definition.expression import Values, fill


def filled(value: object, values: Values) -> object:
    """A value with the references in its texts filled in, at any depth."""
    match value:
        case str():
            return fill(value, values)
        case Mapping():
            return {name: filled(entry, values) for name, entry in value.items()}
        case list() | tuple():
            return [filled(entry, values) for entry in value]
        case _:
            return value
