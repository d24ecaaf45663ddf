"""The rounds of a forEach."""

from __future__ import annotations

from dataclasses import dataclass

from forestay_bpel.interpreter.host import standard_fault


@dataclass(slots=True)
class ForEachCounter:
    """The number of completed rounds of a forEach, and whether they suffice."""

    left: int
    enough: int | None
    only_good: bool
    counted: int = 0

    def met(self) -> bool:
        return self.enough is not None and self.counted >= self.enough

    def count(self, *, good: bool) -> None:
        self.left -= 1
        if good or not self.only_good:
            self.counted += 1

    def check(self, line: int) -> None:
        if self.enough is not None and self.counted + self.left < self.enough:
            raise standard_fault("completionConditionFailure", f"{self.enough} rounds cannot be reached any more", line)
