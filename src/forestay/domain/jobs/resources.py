"""What a job needs and a pilot offers, and the classes by which they are matched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of each resource; of a job what it needs, of a pilot what is free."""

    cpus: int = 1
    memory: int = 0
    """Bytes; 0: the job does not state it."""
    disk: int = 0
    gpus: int = 0
    wall: int | None = None
    """Seconds: the job's limit, or the time the pilot has left; None means no limit."""
    nodes: int = 1
    """The other amounts are of each of them. A pilot of several nodes runs one job at a time, on all of them."""

    @property
    def used_cores(self) -> int:
        """The cores for which a running job counts, on all its nodes: one that states none runs on one all the same."""
        return max(1, self.cpus) * self.nodes


def fits(need: Resources, free: Resources) -> bool:
    """Whether a pilot with these free resources can run a job with these needs."""
    if free.wall is not None and need.wall is not None and need.wall > free.wall:
        return False
    if need.nodes != free.nodes:
        return False
    return need.cpus <= free.cpus and need.memory <= free.memory and need.disk <= free.disk and need.gpus <= free.gpus


def _step(amount: int, unit: int = 1) -> int:
    """The power-of-two step an amount falls in: 0 for none, k for at most 2^(k-1) units."""
    units = -(-amount // unit)
    return 0 if units <= 0 else (units - 1).bit_length() + 1


def _least(step: int, unit: int = 1) -> int:
    """The smallest amount that falls in a step."""
    if step == 0:
        return 0
    return 1 if step == 1 else ((1 << (step - 2)) * unit) + 1


@lru_cache(maxsize=4096)
def resource_class(need: Resources) -> str:
    """The class of jobs with similar needs: each resource rounded up to a power of two, and the number of nodes if there are several."""
    of_node = f"c{_step(need.cpus)}m{_step(need.memory, MIB)}d{_step(need.disk, MIB)}g{_step(need.gpus)}"
    return of_node if need.nodes == 1 else f"{of_node}n{need.nodes}"


def class_may_fit(name: str, free: Resources) -> bool:
    """Whether some job of that class could run in the free resources; each job is still checked by `fits`."""
    return fits(least_of_class(name), free)


@lru_cache(maxsize=4096)
def least_of_class(name: str) -> Resources:
    """The smallest needs of a job of a class."""
    cpus, rest = name[1:].split("m")
    memory, rest = rest.split("d")
    disk, rest = rest.split("g")
    gpus, _, nodes = rest.partition("n")
    least = (_least(int(cpus)), _least(int(memory), MIB), _least(int(disk), MIB), _least(int(gpus)))
    return Resources(*least, nodes=int(nodes or 1))


def most_cores_of_class(name: str) -> int:
    """The most cores for which a job of a class counts."""
    step = int(name[1 : name.index("m")])
    return least_of_class(name).nodes * (1 << (step - 1) if step else 1)


def less(free: Resources, taken: Resources) -> Resources:
    """The free resources after a job has been placed."""
    return Resources(
        cpus=free.cpus - taken.cpus,
        memory=free.memory - taken.memory,
        disk=free.disk - taken.disk,
        gpus=free.gpus - taken.gpus,
        wall=free.wall,
        nodes=free.nodes,
    )
