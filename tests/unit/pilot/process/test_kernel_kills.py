"""The kernel's count of kills for memory is read where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay_pilot.process import kernel_kills
from forestay_pilot.process.control_group import group_files, memory_limit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("low 0\nhigh 3\nmax 9\noom 2\noom_kill 4\noom_group_kill 0\n", 4),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
        ("low 0\n", None),
        ("oom_kill many\n", None),
    ],
)
def test_the_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None) -> None:
    (tmp_path / "memory.events").write_text(text)
    monkeypatch.setattr(kernel_kills, "_counter", lambda: str(tmp_path / "memory.events"))
    assert kernel_kills.oom_kills() == expected


def test_no_count_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_kills, "_counter", lambda: None)
    assert kernel_kills.oom_kills() is None
    monkeypatch.setattr(kernel_kills, "_counter", lambda: str(tmp_path / "gone"))
    assert kernel_kills.oom_kills() is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0::/slurm/job_7\n", "slurm/job_7/memory.events"),
        ("4:cpu,memory:/a/\n", "memory/a/memory.oom_control"),
        ("0::/not/seen/in/a/container\n", "memory.events"),
        ("3:cpuset:/a\n", None),
    ],
)
def test_where_it_is_kept(tmp_path: Path, line: str, expected: str | None) -> None:
    (tmp_path / "proc").write_text(line)
    for place in ("slurm/job_7/memory.events", "memory/a/memory.oom_control", "memory.events"):
        (tmp_path / "root" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / place).touch()
    found_group_files = group_files(
        "memory.events", "memory.oom_control", proc=str(tmp_path / "proc"), root=str(tmp_path / "root")
    )
    assert found_group_files[:1] == ([str(tmp_path / "root" / expected)] if expected else [])


def test_the_memory_limit_is_the_least_of_all_groups_above(tmp_path: Path) -> None:
    (tmp_path / "proc").write_text("0::/job_7/step_0\n")
    root = tmp_path / "root"
    (root / "job_7" / "step_0").mkdir(parents=True)
    (root / "job_7" / "step_0" / "memory.max").write_text("max\n")
    assert memory_limit(proc=str(tmp_path / "proc"), root=str(root)) is None
    (root / "job_7" / "memory.max").write_text(f"{1 << 30}\n")
    assert memory_limit(proc=str(tmp_path / "proc"), root=str(root)) == 1 << 30
