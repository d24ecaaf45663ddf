"""Jobs of several nodes: each is alone on an allocation of exactly as many, and the launcher of its site starts it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from forestay.domain.jobs.specification import RunnerKind

MAX_NODES = 1024


class _Runs(Protocol):
    @property
    def container(self) -> str: ...
    @property
    def secrets(self) -> Mapping[str, object]: ...


def wrong_on_nodes(job: _Runs, nodes: int) -> str:
    """Why this cannot run on so many nodes; empty if it can.

    Images are pulled to the disk of one host, secrets are resolved on one and never written to a shared folder, and a call runs in one interpreter.
    """
    if nodes == 1:
        return ""
    if job.container:
        return "a job of several nodes cannot have a container: call the runtime in its command"
    if job.secrets:
        return "a job of several nodes cannot have secrets: they are resolved on one host only"
    if getattr(job, "runner", RunnerKind.PROCESS) is RunnerKind.WARM:
        return "a function call runs on one node"
    return ""
