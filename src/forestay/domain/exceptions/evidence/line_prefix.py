"""What loggers and launchers put before a line: the time, a level, a rank, a logger's name. An expression that wants a line's beginning looks behind it too."""

from __future__ import annotations

import re
from functools import lru_cache

_PREFIX = re.compile(
    r"(?:\s*(?:"
    r"\[?\d{4}[-/]\d\d[-/]\d\d[t ,]{0,2}(?:\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?)?(?:z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?"
    r"|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[- ]{1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \S{1,60} \S{1,40}\[\d{1,7}\]:)?"
    r"|\[?(?:info|error|warn|warning|debug|severe|fatal|critical|notice|stderr|stdout)\]?(?=[\s:|-]):?"
    r"|(?:npm|gyp) err!(?: stack)?"
    r"|\[\d{1,6}(?:,\d{1,6})?\](?:<std\w{3}>)?:?"
    r"|\[?rank ?\d{1,6}\]?:|\([\w.]{1,40} pid=\d{1,8}[^)]{0,60}\)"
    r"|[\w.]{1,40}::[\w.:+]{0,60}(?=\s)|\{[\w.]{1,60}:\d{1,6}\}|\[[\w .-]{1,40}\]|\d{1,6}:(?=\s)|[\u2502|>-]"
    r")(?:\s*[|:-])?\s*){1,8}"
)


@lru_cache(maxsize=1024)
def behind_prefix(lowered: str) -> int:
    """Where a line in lower case really begins; 0 if nothing stands before it. Kept, since several expressions ask for the same line."""
    match = _PREFIX.match(lowered)
    return match.end() if match is not None and match.end() < len(lowered) else 0
