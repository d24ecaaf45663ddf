"""The part of a log of a job of several nodes that tells why it failed.

The log has what all ranks printed, what the launcher said of their ends, and a section for each rank. The rank that failed first is the
cause; what the others printed then, and that they were killed, are its consequences, which patterns would take for a cause.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from forestay.domain.jobs.job_document import RankEnd

_SECTION = "[pilot: rank "
_OF_LAUNCHER = re.compile(r"(srun|slurmstepd)[:-]")
_END_OF_TASK = re.compile(r": tasks? [\d,\[\]-]+: (Killed|Terminated|Exited with exit code \d+)$")


def log_of_failure(log_tail: str, ranks: Sequence[RankEnd]) -> str:
    """What the rank that failed first printed, after the launcher's errors that are not about the end of a rank."""
    first = ranks[0] if ranks else None
    if first is None or first.stopped_for:
        return log_tail
    before, head, section = log_tail.rpartition(f"{_SECTION}{first.rank} on {first.host}: ")
    if not head:
        return log_tail
    launcher = before.partition(_SECTION)[0].splitlines()
    errors = [line for line in launcher if _OF_LAUNCHER.match(line) and not _END_OF_TASK.search(line)]
    return "\n".join([*errors, section.partition("\n")[2]])
