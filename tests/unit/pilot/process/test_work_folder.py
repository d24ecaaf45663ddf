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


def _dead(shared: Path) -> WorkFolder:
    dead = WorkFolder(str(shared))
    assert dead._lock is not None
    os.close(dead._lock)  # as when the process ended
    return dead


def test_what_is_no_completion_keeps_none_beside_it_from_being_taken_over(tmp_path: Path) -> None:
    """A payload can write into the spool of its pilot, which then dies."""
    dead = _dead(tmp_path)
    spool, old = Path(dead.spool), time.time() - KEPT_ASIDE - 60
    for folder in ("a.json", "b.refused", "c.damaged"):
        (spool / folder / "inside").mkdir(parents=True)
        os.utime(spool / folder, (old, old))
    (spool / "d.json.tmp").write_text('[{"half')
    (spool / "e.json").write_text("[]")
    spool.chmod(0)
    heir = WorkFolder(str(tmp_path))
    assert [Path(path).name for path in heir.adopt_leftovers()] == ["a.json", "e.json"]
    assert sorted(os.listdir(heir.spool)) == ["a.json", "d.json.tmp.damaged", "e.json"]
    assert not Path(dead.path).exists()


def test_a_spool_that_is_a_link_is_not_taken_over(tmp_path: Path) -> None:
    dead = _dead(tmp_path / "work")
    other = tmp_path / "other"
    other.mkdir()
    (other / "theirs.json").write_text("[]")
    os.rmdir(dead.spool)
    os.symlink(other, dead.spool)
    assert WorkFolder(str(tmp_path / "work")).adopt_leftovers() == []
    assert (other / "theirs.json").exists()
    assert not Path(dead.path).exists()
