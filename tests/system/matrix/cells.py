"""Every cell of the matrix: which have a scenario, and which cannot exist and why."""

from __future__ import annotations

from tests.system.matrix.scenarios import SCENARIOS
from tests.system.matrix.submitters import Submission

STAGES = ("submission", "queue", "staging in", "execution", "staging out", "cleanup", "reporting")
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
_AFTER = ("cleanup", "reporting")
_TOLD = "the job's result is unchanged; only the host is concerned, and that is the failure `cleanup`"
_END = "the job's completion is already in the store"
_NOTHING_RUNS = "nothing of the job is on a host yet"

_NEVER: dict[tuple[str, str], str] = {
    ("host lost", "submission"): "no host takes part in a submission",
    ("host broken", "submission"): "no host takes part in a submission",
    ("preempted", "submission"): "no host takes part in a submission",
    ("host broken", "queue"): "a broken host is detected only when it starts a job",
    ("preempted", "staging out"): "a pilot that is stopped waits for outputs in transfer",
    **{(failure, stage): _NOTHING_RUNS for failure in ("memory", "disk", "time", "data missing", "data corrupt", "transfer", "code", "output missing", "cleanup") for stage in _BEFORE},
    ("bad input", "queue"): "invalid requests are refused at submission; the program detects the rest",
    ("no right", "queue"): "permissions are checked at submission and at staging",
    ("memory", "staging in"): "the pilot copies in small pieces",
    ("memory", "staging out"): "the pilot copies in small pieces",
    ("time", "staging in"): "the time limit is the program's; a transfer has its own, and that is the failure `transfer`",
    ("time", "staging out"): "the time limit is the program's",
    ("bad input", "staging out"): "patterns of outputs are checked before the program starts",
    ("code", "staging in"): "the job's program has not started",
    ("code", "staging out"): "the job's program has ended",
    ("data missing", "staging out"): "that is the failure `output missing`",
    ("data corrupt", "staging out"): "digests are computed from what is written; a file that changes later is detected when it is read as an input",
    ("output missing", "staging in"): "there are no outputs yet",
    ("output missing", "execution"): "what is missing is known only when the program has ended",
    ("cleanup", "staging in"): "there is no cleanup yet",
    ("cleanup", "execution"): "there is no cleanup yet",
    ("cleanup", "staging out"): "there is no cleanup yet",
    **{(failure, stage): _END if stage == "reporting" else _TOLD for failure in ("host broken", "memory", "disk", "time", "data missing", "data corrupt", "transfer", "bad input", "code", "output missing", "no right", "preempted") for stage in _AFTER},
    ("host lost", "cleanup"): "the completion is sent before cleanup; the next pilot on the same disk cleans up after a dead one",
    ("host lost", "reporting"): _END,
    ("network", "cleanup"): "cleanup happens on the host only",
    ("server lost", "cleanup"): "cleanup happens on the host only",
    ("cleanup", "reporting"): _END,
    ("batch system", "staging in"): "the batch system starts pilots, it does not stage for them",
    ("batch system", "staging out"): "the batch system starts pilots, it does not stage for them",
    ("batch system", "cleanup"): _TOLD,
    ("batch system", "reporting"): _END,
}  # fmt: skip


def why_not(failure: str, stage: str, way: Submission) -> tuple[str, str]:
    """Whether a cell is shown, and if not why."""
    for scenario in SCENARIOS:
        if (scenario.failure, scenario.stage) == (failure, stage):
            if way.value in scenario.skips:
                return NEVER, "nobody is notified when a fire-and-forget job succeeds"
            return SHOWN, ""
    return NEVER, _NEVER[failure, stage]
