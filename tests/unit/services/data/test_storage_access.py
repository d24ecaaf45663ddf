"""What the manifest of a pilot may name: nothing outside its own folder is read or removed for it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from forestay.adapters.system.element_files import FolderFiles
from forestay.domain.data.storage_element import AccessProtocol, Door, StorageElement
from forestay.domain.jobs.job_document import Manifest
from forestay.ports.errors import Permanent
from forestay.services.data.storage_access import StorageAccess
from forestay.services.data.storage_cleaner import remove_attempt

FOLDER = "outs/lab/job/0.1.c"


class NoSigner:
    """A fake: folders need no signed addresses."""

    def sign(self, *_: Any) -> str:
        raise AssertionError


@pytest.fixture
def access(tmp_path: Path) -> StorageAccess:
    element = StorageElement("e", (Door(AccessProtocol.FILE, str(tmp_path / "e")),), outputs="outs")
    (tmp_path / "e" / FOLDER).mkdir(parents=True)
    return StorageAccess({"e": element}, NoSigner(), {AccessProtocol.FILE: FolderFiles()})


def put(tmp_path: Path, content: bytes) -> Manifest:
    (tmp_path / "e" / FOLDER / "manifest.json").write_bytes(content)
    return Manifest(f"element:e/{FOLDER}/manifest.json", hashlib.sha256(content).hexdigest(), 1, 1)


def naming(*names: object) -> bytes:
    return json.dumps({"files": [{"path": name, "bytes": 1, "sha256": "0" * 64} for name in names]}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"\xff", b"[]", b"{}", b'{"files": 5}', b'{"files": [1]}', b'{"files": [{"path": "a"}]}',
        naming("../../../evil/job/0.1.c/result"), naming("/etc/passwd"), naming("a/../../b"), naming(""), naming("a\0b"), naming(7),
    ],
)  # fmt: skip
async def test_what_is_no_manifest_of_its_own_folder_is_refused(
    access: StorageAccess, tmp_path: Path, content: bytes
) -> None:
    manifest = put(tmp_path, content)
    with pytest.raises(Permanent):
        await access.listed("lab", manifest)


async def test_a_link_in_the_folder_of_an_attempt_removes_nobodys_files(access: StorageAccess, tmp_path: Path) -> None:
    other = tmp_path / "e" / "outs" / "evil" / "job"
    other.mkdir(parents=True)
    (other / "result").write_text("kept")
    (tmp_path / "e" / FOLDER / "sub").symlink_to(other)
    (tmp_path / "e" / FOLDER / "own").write_text("1")
    assert await remove_attempt(access, "lab", put(tmp_path, naming("sub/result", "own"))) == 1
    assert (other / "result").read_text() == "kept"
    assert not (tmp_path / "e" / FOLDER / "own").exists()


async def test_a_link_in_place_of_a_jobs_folder_removes_nobodys_files(access: StorageAccess, tmp_path: Path) -> None:
    outs = tmp_path / "e" / "outs"
    (outs / "evil" / "job" / "0.1.c").mkdir(parents=True)
    (outs / "evil" / "job" / "0.1.c" / "own").write_text("kept")
    manifest = put(tmp_path, naming("own"))
    (outs / "lab" / "job" / "0.1.c" / "manifest.json").rename(outs / "evil" / "job" / "0.1.c" / "manifest.json")
    (outs / "lab" / "job" / "0.1.c").rmdir()
    (outs / "lab" / "job").rmdir()
    (outs / "lab" / "job").symlink_to(outs / "evil" / "job")
    assert await remove_attempt(access, "lab", manifest) == 0
    assert (outs / "evil" / "job" / "0.1.c" / "own").read_text() == "kept"
