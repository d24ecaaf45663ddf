"""One slip, read, changed and written over what was read, until a write stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from forestay.ports.documents import Slip, SlipStore, StoredSlip
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Written

T = TypeVar("T")


async def rewrite_slip(
    slips: SlipStore,
    name: str,
    change: Callable[[StoredSlip | None], tuple[Slip | None, T]],
    *,
    tries: int,
    unsure: str,
) -> T:
    """Let `change` see what stands and say what is to stand there (None: what does) and what is answered; it may be asked again.

    A write that was refused, or of which nobody knows, may have been another's or our own: what stands is looked at anew. `Transient` with
    the words of `unsure` after so many tries.
    """
    for _ in range(tries):
        stored = (await slips.get([name])).get(name)
        slip, answer = change(stored)
        if slip is None:
            return answer
        (result,) = await slips.put([(slip, stored.version if stored is not None else None)])
        if isinstance(result, Written):
            return answer
    raise Transient(unsure)
