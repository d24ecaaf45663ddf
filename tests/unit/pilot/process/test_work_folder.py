"""What the next pilot on a disk does with what a dead one left."""

from __future__ import annotations

import os
import time
from pathlib import Path

from forestay_pilot.process.work_folder import KEPT_ASIDE, WorkFolder


def test_completions_that_were_set_aside_long_ago_are_removed(tmp_path: Path) -> None:
    dead = WorkFolder(str(tmp_path))
    spool = Path(dead.spool)
    old = time.time() - KEPT_ASIDE - 60
    for name in ("a.json", "b.json.refused", "c.json.damaged", "d.json.refused"):
        (spool / name).write_text("[]")
    for name in ("a.json", "b.json.refused", "c.json.damaged"):
        os.utime(spool / name, (old, old))
    assert dead._lock is not None
    os.close(dead._lock)  # as when the process ended
    heir = WorkFolder(str(tmp_path))
    assert [Path(path).name for path in heir.adopt_leftovers()] == ["a.json"], "an undelivered completion never is"
    assert sorted(os.listdir(heir.spool)) == ["a.json", "d.json.refused"]
    assert not Path(dead.path).exists()
