"""What a Python flow imports: an ``async`` function whose jobs are awaited, with loops and ``if`` as they are."""

from forestay.flows.api import ask, checkpoint, files, gather, job, lines, now, restored, scatter, wait_for
from forestay.flows.function import flow
from forestay.flows.results import Ended, JobFailed, Output

__all__ = [
    "Ended",
    "JobFailed",
    "Output",
    "ask",
    "checkpoint",
    "files",
    "flow",
    "gather",
    "job",
    "lines",
    "now",
    "restored",
    "scatter",
    "wait_for",
]
