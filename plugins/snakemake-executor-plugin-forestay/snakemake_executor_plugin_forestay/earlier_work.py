"""Identifies what a job of an earlier run does by its request, so that no two jobs write the same files at once.

A *place* is what a job makes: outputs in one folder. *Work* is how it makes them: the rule, its inputs as they are on disk, its parameters, and
the Snakefile. The job of an earlier run with the same place and the same work is the job that Snakemake requests; with other work it conflicts with it.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

_NOT_WORK = ("jobid", "groupid", "resources", "threads", "local")
"""Fields that differ between runs, or attempts, of the same work."""


def folder_name(notes: Path) -> str:
    """The id of a flow's folder, which is stored in Snakemake's own folder, since other machines may have a folder with the same path."""
    place = notes / "forestay-folder"
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(uuid.uuid4().hex)
    except FileExistsError:
        pass
    # Including the path, for a folder that was copied completely.
    return _digest([place.read_text(encoding="utf-8"), os.path.realpath(os.getcwd())])


def place_of(job: JobExecutorInterface) -> str:
    """The id of what a job makes; for a job without outputs by its name."""
    made = sorted(str(name) for name in job.output)
    return _digest(made or [job.name, *map(str, job.get_target_spec())])


def work_of(job: JobExecutorInterface, snakefile: str) -> str:
    """The id of how it is made."""
    known = {name: value for name, value in properties_of(job).items() if name not in _NOT_WORK}
    spec = sorted(str(name) for name in job.get_target_spec())
    return _digest([known, spec, _content(snakefile), [_version(path) for path in sorted(map(str, job.input))]])


def properties_of(job: JobExecutorInterface) -> dict[str, Any]:
    """Snakemake's properties of a job, which it provides as JSON."""
    properties: Any = job.properties()
    return dict(json.loads(properties) if isinstance(properties, str) else properties)


def _version(path: str) -> list[object]:
    try:
        about = os.stat(path)
    except OSError:
        return [path]
    return [path, about.st_size, about.st_mtime_ns]


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return path


def _digest(parts: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(list(parts), sort_keys=True, default=str).encode()).hexdigest()[:32]
