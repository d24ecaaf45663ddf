"""Virtual time: what is due next, in order; ties keep the order in which they were made."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Act = Callable[[int, int], None]


class Events:
    """A queue of what will happen. An event is a function and two numbers, which say all that any event here needs."""

    __slots__ = ("_heap", "_made", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Act, int, int]] = []
        self._made = 0

    def after(self, seconds: float, act: Act, first: int = 0, other: int = 0) -> None:
        self._made += 1
        heappush(self._heap, (self.now + seconds, self._made, act, first, other))

    @property
    def count(self) -> int:
        """How many were made so far."""
        return self._made

    def run(self, enough: Callable[[], bool]) -> None:
        """Until there is enough, or nothing is left to happen."""
        heap = self._heap
        while heap and not enough():
            self.now, _, act, first, other = heappop(heap)
            act(first, other)
