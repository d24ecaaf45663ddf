"""Lines of a log that quote: the source beside a frame of a traceback, the script that an engine ran, directives of a job script, a shell's trace.

Their words were not said by anything that failed. A program that has ``raise TimeoutError("…")`` in its source did not run out of time because a traceback shows that line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_FRAME = re.compile(r"^\s*(?:e {1,4})?file \"[^\"]{1,400}\", line \d")
_SCRIPT_BEGINS = re.compile(r"^\s*command executed\b.{0,40}:\s*$")
_SCRIPT_ENDS = re.compile(r"^\s*(?:command (?:exit status|output|error|wrapper)|work dir)\b")
_DIRECTIVE = re.compile(r"^\s*#\s?(?:sbatch|pbs|bsub|flux:|cobalt|oar)\b|^\s*#\$ -")
_TRACE = re.compile(r"^\+{1,4} (?!exit\b)\S")
_CARETS = re.compile(r"^\s*[\^~]+\s*$")
_SOURCE = re.compile(
    r"^(?:e {1,4}|>\s?)?\s{2,}(?!file \"|traceback|\w[\w.]{0,80}(?:error|exception|warning|interrupt|exit)\b)\S"
)


def quoted_lines(lowered: Sequence[str]) -> int:
    """Which lines quote, as bits. Takes lines in lower case."""
    count = 0
    in_script = behind_frame = False
    for place, line in enumerate(lowered):
        # One line of source stands behind a frame; the exception itself is not indented so.
        quotes = in_script or (behind_frame and _SOURCE.match(line) is not None)
        behind_frame = 'file "' in line and _FRAME.match(line) is not None
        if "command" in line or "work dir" in line:
            if _SCRIPT_BEGINS.match(line):
                in_script = True
            elif _SCRIPT_ENDS.match(line):
                in_script = quotes = False
        if line.startswith(("+", "#", " ", "\t")):
            quotes = quotes or any(pattern.match(line) for pattern in (_TRACE, _DIRECTIVE, _CARETS))
        if quotes:
            count |= 1 << place
    return count
