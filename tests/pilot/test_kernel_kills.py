"""The kernel's count of kills for memory is read where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_pilot import kernel_kills


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


def test_where_it_is_kept() -> None:
    assert kernel_kills._places("", "/slurm/job_7")[0] == "/sys/fs/cgroup/slurm/job_7/memory.events"
    assert kernel_kills._places("cpu,memory", "/a/")[0] == "/sys/fs/cgroup/memory/a/memory.oom_control"
    assert kernel_kills._places("cpuset", "/a") == []
