"""What pilots lack for a job that is larger than each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forestay.domain.jobs.resources import Resources

_NAMES = {"cpus": "CPUs", "memory": "memory", "disk": "disk", "gpus": "GPUs", "wall": "s"}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def lacking(need: Resources, free: Resources) -> Mapping[str, int]:
    """How much of each resource a pilot lacks, and by how many nodes it differs."""
    amounts = {name: (getattr(need, name), getattr(free, name)) for name in _NAMES}
    lacks = {
        name: wanted - there
        for name, (wanted, there) in amounts.items()
        if wanted is not None and there is not None and wanted > there
    }
    # A pilot of more nodes than the job asks for will not do either.
    return lacks if need.nodes == free.nodes else lacks | {"nodes": need.nodes - free.nodes}


def too_small(need: Resources, offered: Sequence[Resources]) -> str:
    """What the pilot that lacks least lacks, in words; empty if one of them could run the job."""
    nearest = min(offered, key=lambda free: len(lacking(need, free)))
    wanted, there = (
        [_amount(name, getattr(amounts, name)) for name in lacking(need, nearest)] for amounts in (need, nearest)
    )
    return f"{' and '.join(wanted)} needed, the nearest has {' and '.join(there)}" if wanted else ""


def _amount(name: str, amount: int) -> str:
    if name == "nodes":
        return "1 node" if amount == 1 else f"{amount:,} nodes"
    if name not in ("memory", "disk"):
        return f"{amount:,} {_NAMES[name]}"
    size, unit = float(amount), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {_UNITS[unit]} of {_NAMES[name]}"
