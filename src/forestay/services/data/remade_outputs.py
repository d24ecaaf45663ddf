"""Finds which job has the outputs of a job: the job itself or, if they were lost, the newest remake that has committed them (`domain.data.remake`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forestay.domain.data.remake import remade_by
from forestay.domain.jobs.inputs import JobInput, produced
from forestay.ports.jobs.job_store import JobStore, Stored

MAX_REMAKES = 64
"""The longest chain of remakes of the same outputs that is followed."""


async def newest_commits(store: JobStore, producers: Mapping[str, Stored]) -> Mapping[str, Stored]:
    """The jobs that have the outputs now, under the same names. A remake that has not committed yet is skipped: its producer's outputs may still be good."""
    newest, behind = dict(producers), dict(producers)
    for _ in range(MAX_REMAKES):
        wanted = {name: remake for name, stored in behind.items() if (remake := remade_by(stored.document))}
        if not wanted:
            break
        remakes = await store.get(sorted(set(wanted.values())))
        behind = {
            name: remakes[remake]
            for name, remake in wanted.items()
            if remake in remakes and remakes[remake].document.tenant == newest[name].document.tenant
        }
        newest |= {name: stored for name, stored in behind.items() if stored.document.winner is not None}
    return newest


def from_newest(job_input: JobInput, newest: Mapping[str, Stored]) -> JobInput:
    """The input from the job that has the output now. The output of a remake is a different file, for caches and the catalogue too."""
    output = produced(job_input.source)
    if output is None or output.job not in newest:
        return job_input
    return replace(job_input, source=f"job:{newest[output.job].document.id}/{output.path}")
