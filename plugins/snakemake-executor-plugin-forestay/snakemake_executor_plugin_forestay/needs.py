"""The resources of a job, from the names that Snakemake's rules use, including those of its Slurm plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

if TYPE_CHECKING:
    from forestay.client.api.schemas import ResourcesJson


MB = 1_000_000
MINUTE = 60


def needs(job: JobExecutorInterface) -> ResourcesJson:
    """The needs of a job; for a group, Snakemake's total for all its jobs."""
    known: Mapping[str, Any] = job.resources
    if (nodes := _amount(known.get("nodes"))) > 1:
        # The job is Snakemake itself, which would run once on each node and make the same files.
        raise WorkflowError(
            f"job {job.name} asks for {nodes} nodes, and jobs of Snakemake run on one node: Snakemake itself would run on each"
        )
    cpus = _amount(known.get("cpus_per_task")) or max(1, int(job.threads))
    resources_json: ResourcesJson = {"cpus": cpus}
    memory = _amount(known.get("mem_mb"), MB) or cpus * _amount(known.get("mem_mb_per_cpu"), MB)
    if memory:
        resources_json["memory"] = memory
    if disk := _amount(known.get("disk_mb"), MB):
        resources_json["disk"] = disk
    if wall := _amount(known.get("runtime"), MINUTE):
        resources_json["wall"] = wall
    if gpus := _amount(known.get("gpu", known.get("gpus"))):
        resources_json["gpus"] = gpus
    return resources_json


def container_of(job: JobExecutorInterface) -> str:
    """The image that a rule requests by its resource; empty for none."""
    value = job.resources.get("forestay_container")
    return value if isinstance(value, str) else ""


def _amount(value: object, unit: int = 1) -> int:
    """A number of units, or 0 for anything but a positive number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return max(1, int(value * unit))
    return 0
