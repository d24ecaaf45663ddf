"""Names that users, pilots and payloads may have made: what is no file is not read, and keeps nothing else from being handled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forestay.adapters.system.element_files import FolderFiles
from forestay.adapters.system.pilot_spool import EVERY, KEEP, FolderPilotSpool
from forestay.adapters.system.regular_file import open_regular

SECRET = "the-token-of-the-agent"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    (path.parent / "secret").write_text(SECRET)
    path.symlink_to(path.parent / "secret")


def _folder(path: Path) -> None:
    path.mkdir()


BAD = [_pipe, _endless, _link, _folder]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[FolderPilotSpool]:
    spool = FolderPilotSpool(tmp_path / "spool")
    yield spool
    spool.close()


@pytest.mark.parametrize("make", BAD)
def test_only_a_file_is_opened(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "name")
    with pytest.raises(OSError, match=r"regular|symbolic"):
        open_regular(tmp_path / "name")


@pytest.mark.parametrize("make", BAD)
async def test_a_storage_element_has_files_only(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "name")
    assert await FolderFiles().read(str(tmp_path / "name"), 1000) is None
    (tmp_path / "file").write_text("text")
    assert await FolderFiles().read(str(tmp_path / "file"), 1000) == b"text"


@pytest.mark.parametrize("make", BAD)
async def test_the_output_of_a_pilot_is_a_file(spool: FolderPilotSpool, make: Callable[[Path], None]) -> None:
    make(spool.log("l1"))
    assert await spool.words("l1") == ""
    spool.log("l2").write_text("could not\nstart")
    assert await spool.words("l2") == "could not start"


async def test_another_name_of_a_secret_is_no_output_of_a_pilot(spool: FolderPilotSpool) -> None:
    secret = await spool.keep("l1", SECRET)
    os.link(secret, spool.log("l1"))
    assert await spool.words("l1") == ""


async def test_what_cannot_be_removed_keeps_nothing_else_from_being_removed(spool: FolderPilotSpool) -> None:
    old = time.time() - KEEP - EVERY
    logs = spool.folder / "logs"
    (logs / "a.log" / "inside").mkdir(parents=True)
    (logs / "b.log").symlink_to("nowhere")
    (logs / "c.log").write_text("text")
    for name in ("a.log", "b.log", "c.log"):
        os.utime(logs / name, (old, old), follow_symlinks=False)
    await spool.clear([])
    assert sorted(path.name for path in logs.iterdir()) == ["a.log"]
