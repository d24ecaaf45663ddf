"""Plain values: what can be passed between a program and its functions, as JSON without loss.

Numbers, texts, truth values, nothing, lists, and dicts by text are themselves. Tuples, sets, bytes, other dicts and the
numbers that JSON lacks are marked: ``{"$": "tuple", "of": [...]}``. Reading one back makes values and runs nothing, so it is
safe whoever wrote it.
"""

from __future__ import annotations

import base64
import math
from typing import Any

_SMALLEST = -(1 << 63)
_LARGEST = (1 << 63) - 1


class NotPlainError(TypeError):
    """A value cannot travel as a plain one."""


def pack(value: object) -> Any:
    """The value as JSON can carry it; raises NotPlainError."""
    try:
        return _pack(value)
    except RecursionError:
        raise NotPlainError("the value is nested too deeply, or contains itself") from None


def _pack(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if _SMALLEST <= value <= _LARGEST else {"$": "int", "of": str(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "of": repr(value)}
    if kind is list:
        return [_pack(entry) for entry in value]
    if kind is dict:
        if "$" not in value and all(type(name) is str for name in value):
            return {name: _pack(entry) for name, entry in value.items()}
        return {"$": "dict", "of": [[_pack(name), _pack(entry)] for name, entry in value.items()]}
    if kind in _MANY:
        return {"$": kind.__name__, "of": [_pack(entry) for entry in value]}
    if kind is bytes:
        return {"$": "bytes", "of": base64.b64encode(value).decode()}
    if kind is complex:
        return {"$": "complex", "of": [_pack(value.real), _pack(value.imag)]}
    raise NotPlainError(
        f"a {kind.__module__}.{kind.__qualname__} is not a plain value (numbers, texts, bytes, lists, tuples, sets, dicts); "
        "turn it into one, or write it to a file and pass the path"
    )


_MANY = (tuple, set, frozenset)


def unpack(packed: Any) -> Any:
    """The value that was packed; raises ValueError for what was not."""
    kind = type(packed)
    if kind is list:
        return [unpack(entry) for entry in packed]
    if kind is not dict:
        return packed
    if "$" not in packed:
        return {name: unpack(entry) for name, entry in packed.items()}
    of = packed.get("of")
    read = _MARKED.get(packed["$"])
    if read is None:
        raise ValueError(f"there is no plain value called {packed['$']!r}")
    return read(of)


_MARKED: dict[str, Any] = {
    "int": int,
    "float": float,
    "dict": lambda of: {unpack(name): unpack(entry) for name, entry in of},
    "tuple": lambda of: tuple(unpack(entry) for entry in of),
    "set": lambda of: {unpack(entry) for entry in of},
    "frozenset": lambda of: frozenset(unpack(entry) for entry in of),
    "bytes": lambda of: base64.b64decode(of, validate=True),
    "complex": lambda of: complex(unpack(of[0]), unpack(of[1])),
}
