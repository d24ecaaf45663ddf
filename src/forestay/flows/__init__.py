"""What a Python flow imports: an ``async`` function whose jobs are awaited, with loops and ``if`` as they are."""

from forestay.flows.asking import checkpoint, files, gather, job, lines, now, restored, scatter
from forestay.flows.ended import Ended, JobFailed, Output
from forestay.flows.function import flow

__all__ = [
    "Ended",
    "JobFailed",
    "Output",
    "checkpoint",
    "files",
    "flow",
    "gather",
    "job",
    "lines",
    "now",
    "restored",
    "scatter",
]
