"""Every cell of the matrix: which have a scenario, and which cannot exist and why."""

from __future__ import annotations

from tests.system.matrix.scenarios import SCENARIOS
from tests.system.matrix.submitters import Submission

STAGES = ("submission", "queue", "staging in", "execution", "staging out", "cleanup", "telling")
FAILURES = {
    "host lost": "resource unavailable",
    "host broken": "resource unavailable",
    "preempted": "resource unavailable",
    "memory": "resource unavailable",
    "disk": "resource unavailable",
    "time": "resource unavailable",
    "network": "submission failure, resource or data unavailable",
    "server lost": "submission failure, resource unavailable",
    "batch system": "submission failure, resource unavailable",
    "data missing": "data unavailable",
    "data corrupt": "data unavailable",
    "transfer": "data unavailable",
    "no right": "data unavailable, bad input",
    "bad input": "bad input",
    "code": "internal job error",
    "output missing": "output staging",
    "cleanup": "cleanup",
}
"""The failure classes, and what paper P0 calls them (section 5)."""

SHOWN, NEVER, NOT_YET = "shown", "never", "not yet"
UNMEASURED = "its scenario is written and has not been measured"

_BEFORE = ("submission", "queue")
_AFTER = ("cleanup", "telling")
_TOLD = "the job's outcome stands; only the host is concerned, and that is the failure `cleanup`"
_END = "the job's end is in the store by then"
_NOTHING_RUNS = "nothing of the job is on a host yet"

_NEVER: dict[tuple[str, str], str] = {
    ("host lost", "submission"): "no host takes part in a submission",
    ("host broken", "submission"): "no host takes part in a submission",
    ("preempted", "submission"): "no host takes part in a submission",
    ("host broken", "queue"): "a host is found broken only when it begins a job",
    ("preempted", "staging out"): "a pilot that has to go waits for outputs on their way",
    **{(failure, stage): _NOTHING_RUNS for failure in ("memory", "disk", "time", "data missing", "data corrupt", "transfer", "code", "output missing", "cleanup") for stage in _BEFORE},
    ("bad input", "queue"): "what is wrong by itself is refused at submission; the rest is seen by the program",
    ("no right", "queue"): "rights are asked for at submission and at staging",
    ("memory", "staging in"): "the pilot copies in small pieces",
    ("memory", "staging out"): "the pilot copies in small pieces",
    ("time", "staging in"): "the time limit is the program's; a transfer has its own, and that is the failure `transfer`",
    ("time", "staging out"): "the time limit is the program's",
    ("bad input", "staging out"): "patterns of outputs are checked before the program starts",
    ("code", "staging in"): "the job's program has not begun",
    ("code", "staging out"): "the job's program has ended",
    ("data missing", "staging out"): "that is the failure `output missing`",
    ("data corrupt", "staging out"): "digests are made of what is written; a file that changes later is found when it is read as an input",
    ("output missing", "staging in"): "there are no outputs yet",
    ("output missing", "execution"): "what is missing is known only when the program has ended",
    ("cleanup", "staging in"): "nothing is cleared yet",
    ("cleanup", "execution"): "nothing is cleared yet",
    ("cleanup", "staging out"): "nothing is cleared yet",
    **{(failure, stage): _END if stage == "telling" else _TOLD for failure in ("host broken", "memory", "disk", "time", "data missing", "data corrupt", "transfer", "bad input", "code", "output missing", "no right", "preempted") for stage in _AFTER},
    ("host lost", "cleanup"): "the end is told before anything is cleared; the next pilot on the disk clears what a dead one left",
    ("host lost", "telling"): _END,
    ("network", "cleanup"): "clearing is done on the host alone",
    ("server lost", "cleanup"): "clearing is done on the host alone",
    ("cleanup", "telling"): _END,
    ("batch system", "staging in"): "the batch system starts pilots, it does not stage for them",
    ("batch system", "staging out"): "the batch system starts pilots, it does not stage for them",
    ("batch system", "cleanup"): _TOLD,
    ("batch system", "telling"): _END,
}  # fmt: skip


def why_not(failure: str, stage: str, way: Submission) -> tuple[str, str]:
    """Whether a cell is shown, and if not why."""
    for one in SCENARIOS:
        if (one.failure, one.stage) == (failure, stage):
            if way.value in one.skips:
                return NEVER, "nobody is told of the good end of a job that is fired and forgotten"
            return SHOWN, ""
    return NEVER, _NEVER[failure, stage]
