"""Durations and moments as XML Schema writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_DURATION = re.compile(
    r"(-)?P(?:(\d{1,6})Y)?(?:(\d{1,6})M)?(?:(\d{1,6})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_SECONDS = (365 * 86_400, 30 * 86_400, 86_400, 3600, 60, 1)


def seconds_of(text: str) -> float:
    """The seconds of a duration such as ``PT1M30S``; a year has 365 days, a month 30. `ValueError`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()[1:]) or text.strip().endswith("T"):
        raise ValueError(f"{text[:40]!r} is not a duration such as PT1M30S")
    amount = sum(float(group) * unit for group, unit in zip(match.groups()[1:], _SECONDS, strict=True) if group)
    return -amount if match[1] else amount


def moment_of(text: str) -> float:
    """The seconds since 1970 of a moment such as ``2026-05-01T12:00:00Z``; without a zone it is UTC. `ValueError`."""
    try:
        moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a time such as 2026-05-01T12:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
