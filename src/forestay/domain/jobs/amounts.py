"""Amounts as people write them: ``4 GiB``, ``90 min``."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)")
_UNITS = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
    "TiB": 1 << 40,
}  # fmt: skip
_DURATION = re.compile(r"([0-9]{1,9}) ?(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
SIZE_PATTERN = f"^{_SIZE.pattern}$"
DURATION_PATTERN = f"^{_DURATION.pattern}$"


def whole_of(value: object) -> int | None:
    """A whole number; 1.0 counts as one in JSON, true does not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def size_of(value: object) -> int:
    """Bytes: a whole number, or a text such as ``4 GiB``."""
    whole = whole_of(value)
    if whole is not None:
        return whole
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            "a size is a number of bytes, or a text such as '4 GiB' (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)"
        )
    return int(float(match[1]) * _UNITS[match[2]])


def duration_of(value: object) -> int:
    """Seconds: a whole number, or a text such as ``90 min``."""
    whole = whole_of(value)
    if whole is not None:
        return whole
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("a time is a number of seconds, or a text such as '90 min' (s, min, h, d)")
    return int(match[1]) * _SECONDS[match[2]]
