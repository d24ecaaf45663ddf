"""Sizes, durations and times, as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP])(?:i?B)?", re.IGNORECASE)
_POWER = {unit: 1 << (10 * (place + 1)) for place, unit in enumerate("KMGTP")}
_CLOCK = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d{1,2}):(\d{2})")
_PARTS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s)?")


def parse_size(text: str) -> int:
    """Bytes from 512M, 2G, 1.5GiB. The units are powers of 1024; a number alone could mean anything and is refused."""
    match = _SIZE.fullmatch(text.strip())
    if match:
        return int(float(match[1]) * _POWER[match[2].upper()])
    if text.strip() == "0":
        return 0
    raise ValueError(f"{text!r} is not a size; write it with its unit: 512M, 2G, 1.5T")


def parse_duration(text: str, *, bare_seconds: bool = False) -> int:
    """Seconds from 01:30:00, 2-00:00:00, 90m, 1h30m, 45s. A number alone is refused unless it is known to be seconds."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = _PARTS.fullmatch(text.lower())
    if text and parts:
        days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if bare_seconds and text.isdigit():
        return int(text)
    raise ValueError(f"{text!r} is not a duration; write 01:30:00, 2-00:00:00, 90m, 1h30m or 45s")


_DAYS = {"today": 0, "yesterday": -1}
"""Days that may be named; each begins at midnight here."""
_AGO = re.compile(r"(\d+[dhms])+", re.IGNORECASE)


def parse_moment(text: str, now: datetime, *, ahead: bool = False) -> str:
    """RFC 3339 in UTC from a date, a time of day, a date and time, or 2h for two hours ago, or ahead. A time without a zone is local."""
    text = text.strip()
    if _AGO.fullmatch(text):
        span = timedelta(seconds=parse_duration(text))
        then = now + span if ahead else now - span
    elif text.lower() == "now":
        then = now
    elif text.lower() in _DAYS:
        day = now.astimezone().date() + timedelta(days=_DAYS[text.lower()])
        then = datetime.combine(day, time.min).astimezone()
    else:
        try:
            if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
                text = (
                    f"{now.astimezone().date().isoformat()}T{text.zfill(5) if text.count(':') == 1 else text.zfill(8)}"
                )
            then = datetime.fromisoformat(text).astimezone()
        except ValueError:
            raise ValueError(
                f"{text!r} is not a time; write 2026-05-01, 2026-05-01T12:30, 12:30, today, yesterday, or 2h for two hours {'from now' if ahead else 'ago'}"
            ) from None
    return then.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_moment(text: str | None) -> datetime | None:
    """A time from the server; None if there is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def elapsed(seconds: float) -> str:
    """As squeue shows it: 0:07, 12:03, 1:02:03, 2-01:02:03."""
    whole = max(0, int(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def lasting(seconds: float) -> str:
    """For a sentence: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, lower, lower_size in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // lower_size
            return f"{whole // size} {unit}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"


def ago(text: str | None, now: datetime) -> str:
    """For a list: 40s ago, 5m ago, 3h ago, 2d ago; a future time as `in 5m`."""
    then = read_moment(text)
    if then is None:
        return "-"
    seconds = (now - then).total_seconds()
    size = abs(round(seconds))
    for unit, length, below in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if size < below:
            span = f"{size // length}{unit}"
            break
    else:
        span = f"{size // 86_400}d"
    return f"in {span}" if seconds < -0.5 else f"{span} ago"


def number_of(many: int, what: str) -> str:
    """1 rule, 2 rules, 12,000 rules."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def size(amount: int) -> str:
    """1.5G, 512M, 0."""
    if amount < 1024:
        return f"{amount}B" if amount else "0"
    value = float(amount)
    for unit in "KMGTP":
        value /= 1024
        if value < 1023.5 or unit == "P":
            return f"{value:.0f}{unit}" if value >= 99.95 or value == int(value) else f"{value:.1f}{unit}"
    raise AssertionError  # pragma: no cover - the last unit takes everything


def moment(text: str | None) -> str:
    """A time from the server in the reader's own zone, as 2026-05-01 12:30:07."""
    then = read_moment(text)
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S") if then else "-"


def squeue_moment(text: str | None) -> str:
    """As squeue shows it: 2026-05-01T12:30:07, or N/A."""
    then = read_moment(text)
    return then.astimezone().strftime("%Y-%m-%dT%H:%M:%S") if then else "N/A"
