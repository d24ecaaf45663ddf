"""The compensation stack: the completed actions of a run and how each is undone, last in, first out.

When the elements of a round have ended, those that succeeded are pushed with all that is needed to undo them later. An entry
leaves the stack in two ways only: its jobs have succeeded, or a person declares it settled, which is recorded. One entry runs at a time. An
entry that fails is run again; after its last try it is held for a person and everything below it waits.

How to undo a task is defined in its flow, or registered in the compensation library under the task's action. For the library an entry keeps the version
current when the task completed, until a person changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forestay.domain.flows.scatter.fan_out import FanOut, Piece

MAX_ENTRIES = 5000
"""At this height a verb that would start more work is refused; the check of a flow keeps loops below it."""


@dataclass(frozen=True, slots=True)
class CompensationEntry:
    """One thing that was done and can be undone."""

    number: int
    """Counts up; a higher number was pushed later and is run earlier."""
    instance: str
    task: str
    work: str
    """The round to be undone."""
    pieces: tuple[Piece, ...] = ()
    sizes: tuple[int, ...] = ()
    runs: bool = False
    """The elements are runs with compensations of their own: they are undone by running those."""
    listings: Mapping[str, str] = field(default_factory=dict)
    scope: Mapping[str, object] = field(default_factory=dict)
    tries: int = 0
    fan_out: FanOut | None = None
    """Its jobs, while it runs."""
    held: bool = False
    """It has failed its last try and waits for a person."""
    reason: str = ""
    action: str = ""
    """The action whose compensation in the library undoes it; empty: the flow defines it."""
    version: str = ""
    """The version of that compensation, by the digest of its content."""
    most: int = 0
    """How often the library's compensation is tried before it is held for a person."""
    pending: bool = False
    """The library is being queried: the entry leaves the stack again if nothing is registered."""
    rebound_by: str = ""
    """Who replaced the version that was current when its task completed."""

    @property
    def undo(self) -> str:
        """The name of its current try."""
        return f"{self.work}!{self.number}.{self.tries}"

    def as_plain(self) -> dict[str, Any]:
        out: dict[str, Any] = {"number": self.number, "instance": self.instance, "task": self.task, "work": self.work}
        out["pieces"] = [list(piece) for piece in self.pieces]
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value:
                out[name] = list(value) if name == "sizes" else value
        if self.fan_out is not None:
            out["fan_out"] = self.fan_out.as_plain()
        return out

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> CompensationEntry:
        fan_out = data.get("fan_out")
        return cls(
            number=data["number"],
            instance=data["instance"],
            task=data["task"],
            work=data["work"],
            pieces=tuple(Piece(*piece) for piece in data["pieces"]),
            sizes=tuple(data.get("sizes", ())),
            runs=data.get("runs", False),
            listings=data.get("listings", {}),
            scope=data.get("scope", {}),
            tries=data.get("tries", 0),
            fan_out=None if fan_out is None else FanOut.from_plain(fan_out),
            held=data.get("held", False),
            reason=data.get("reason", ""),
            **{name: data[name] for name in _OF_LIBRARY if name in data},
        )


_OF_LIBRARY = ("action", "version", "most", "pending", "rebound_by")
_OPTIONAL = ("sizes", "runs", "listings", "scope", "tries", "held", "reason", *_OF_LIBRARY)
