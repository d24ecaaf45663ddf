"""Freezes a host: everything in a control group stops at once, pilot, guard and payloads, and nobody in it notices."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from tests.system.matrix.site import FailureSite, until

FIRST, SECOND = Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")


class Freezer:
    """One control group that can be frozen, of either version of control groups."""

    def __init__(self, site: FailureSite) -> None:
        self._first = FIRST.is_dir()
        self.group = (FIRST if self._first else SECOND) / f"forestay-{uuid4().hex[:8]}"
        self.group.mkdir()  # who may make none cannot run this test
        site.groups.append(self.group)

    def freeze(self) -> None:
        """Stop everything in it; returns when it stands still."""
        self._set("FROZEN", "1")

    def thaw(self) -> None:
        """Let everything go on."""
        self._set("THAWED", "0")

    def _set(self, word: str, digit: str) -> None:
        if self._first:
            (self.group / "freezer.state").write_text(word)
            until(lambda: (self.group / "freezer.state").read_text().strip() == word, f"the group to be {word}")
        else:
            (self.group / "cgroup.freeze").write_text(digit)
            until(lambda: f"frozen {digit}" in (self.group / "cgroup.events").read_text(), f"the group to be {word}")
