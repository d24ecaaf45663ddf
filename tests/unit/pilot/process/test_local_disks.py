"""Which files a guard may wait for."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay_pilot.process import local_disks
from forestay_pilot.process.local_disks import is_local_folder, is_local_program


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The disk of this test is one of this host, whatever it is."""
    local_disks._is_local.cache_clear()
    monkeypatch.setattr(local_disks, "_local_devices", lambda: {tmp_path.stat().st_dev})


@pytest.mark.usefixtures("local")
def test_programs_and_folders_of_this_host_are(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_bytes(b"\x7fELF")
    assert is_local_folder(str(tmp_path))
    assert is_local_program(str(program))


@pytest.mark.usefixtures("local")
def test_a_script_is_not_since_its_interpreter_may_be_elsewhere(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_bytes(b"\x7fELF")
    assert is_local_program(str(program))
    program.write_bytes(b"#!/mnt/far/sh\n")
    assert not is_local_program(str(program))


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
