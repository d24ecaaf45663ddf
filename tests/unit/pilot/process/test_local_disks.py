"""Which files a guard may wait for."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from forestay_pilot.process import local_disks
from forestay_pilot.process.local_disks import is_local_folder, is_local_program


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The disk of this test is one of this host, whatever it is."""
    local_disks._is_local.cache_clear()
    monkeypatch.setattr(local_disks, "_local_devices", lambda: {tmp_path.stat().st_dev})


def program(path: Path, interpreter: Path | None = None, *, at: int = 200) -> Path:
    """The beginning of a program that is loaded by another one, or needs none."""
    name = b"" if interpreter is None else os.fsencode(interpreter) + b"\0"
    header = b"\x7fELF\2" + bytes(27) + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, 2) + bytes(6)
    segments = [(1, 0, 64), (3 if name else 1, at, len(name))]
    table = b"".join(struct.pack("<IIQQQQQQ", kind, 0, begin, 0, 0, length, 0, 0) for kind, begin, length in segments)
    path.write_bytes((header + table).ljust(at, b"\0") + name)
    return path


def other_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a folder be on another disk than what is beside it."""
    known = os.stat

    def seen(path: str, **options: bool) -> os.stat_result:
        found = known(path, **options)
        if not os.path.realpath(path).startswith(str(folder)):
            return found
        return os.stat_result((*found[:2], found.st_dev + 1, *found[3:10]), {"st_mtime_ns": 1, "st_ctime_ns": 1})

    monkeypatch.setattr(os, "stat", seen)


@pytest.mark.usefixtures("local")
def test_programs_and_folders_of_this_host_are(tmp_path: Path) -> None:
    loader = program(tmp_path / "loader")
    assert is_local_folder(str(tmp_path))
    assert is_local_program(str(loader))
    assert is_local_program(str(program(tmp_path / "tool", loader)))


@pytest.mark.usefixtures("local")
def test_a_program_is_not_if_what_loads_it_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    loader = program(tmp_path / "far/loader")
    link = tmp_path / "loader"
    link.symlink_to(loader)
    other_disk(monkeypatch, tmp_path / "far")
    assert not is_local_program(str(program(tmp_path / "tool", loader)))
    assert not is_local_program(str(program(tmp_path / "linked", link)))
    assert not is_local_program(str(program(tmp_path / "gone", tmp_path / "nowhere")))


@pytest.mark.usefixtures("local")
def test_a_program_that_is_reached_through_another_disk_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    tool = program(tmp_path / "tool")
    (tmp_path / "far/tool").symlink_to(tool)
    other_disk(monkeypatch, tmp_path / "far")
    assert is_local_program(str(tool))
    assert not is_local_program(str(tmp_path / "far/tool"))


@pytest.mark.usefixtures("local")
@pytest.mark.parametrize(
    "content",
    [b"", b"\x7fELF", b"\x7fELF\2", b"\x7fELF\1" + bytes(200), b"MZ" + bytes(200), b"#!/mnt/far/sh\n", b"\0" * 100],
)
def test_what_another_program_may_have_to_run_is_not(tmp_path: Path, content: bytes) -> None:
    """Its interpreter may be elsewhere. A file that has changed is looked at again."""
    tool = program(tmp_path / "tool")
    assert is_local_program(str(tool))
    tool.write_bytes(content)
    assert not is_local_program(str(tool))


@pytest.mark.usefixtures("local")
def test_a_program_that_tells_its_loader_late_is_not(tmp_path: Path) -> None:
    loader = program(tmp_path / "loader")
    assert not is_local_program(str(program(tmp_path / "tool", loader, at=4090)))


@pytest.mark.usefixtures("local")
def test_what_is_not_there_or_a_device_of_no_disk_is_not(tmp_path: Path) -> None:
    assert not is_local_program(str(tmp_path / "gone"))
    assert not is_local_folder(str(tmp_path / "gone"))
    assert not is_local_folder("/proc")


def test_the_file_systems_of_a_network_are_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        "22 21 0:31 / /tmp rw shared:1 master:2 - tmpfs tmpfs rw\n"
        "23 21 0:44 / /home rw shared:3 - nfs4 server:/home rw\n"
        "24 21 0:45 / /cvmfs rw - fuse.cvmfs2 cvmfs2 rw\n"
        "damaged\n"
    )
    monkeypatch.setattr(local_disks, "_MOUNTS", str(mounts))
    assert local_disks._local_devices() == {254 << 8, 31}
