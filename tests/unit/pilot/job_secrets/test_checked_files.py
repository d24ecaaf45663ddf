"""Files with secrets are read below their folder only, and only if nobody else can read or change them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forestay_pilot.job_secrets.checked_files import MAX_VALUE, read_alone, read_below
from forestay_pilot.job_secrets.secret_error import SecretError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "secrets"
    made.mkdir(mode=0o700)
    (tmp_path / "outside").write_text("of the host")
    (tmp_path / "outside").chmod(0o600)
    return made


def put(path: Path, value: bytes = b"s3cret-value", mode: int = 0o600) -> Path:
    path.write_bytes(value)
    path.chmod(mode)
    return path


def error_of(folder: Path, name: str) -> str:
    with pytest.raises(SecretError) as caught:
        read_below(str(folder), name)
    return caught.value.error


def test_values_are_read_as_they_are(folder: Path) -> None:
    put(folder / "plain", b"\x00\xff\n")
    (folder / "app").mkdir(mode=0o750)
    put(folder / "app" / "token", mode=0o440)
    assert read_below(str(folder), "plain") == b"\x00\xff\n"
    assert read_below(str(folder), "app/token") == b"s3cret-value"


def test_a_mounted_kubernetes_secret_is_followed_through_its_links(folder: Path) -> None:
    (folder / "..2026_11_19").mkdir(mode=0o700)
    put(folder / "..2026_11_19" / "password")
    (folder / "..data").symlink_to("..2026_11_19")
    (folder / "password").symlink_to("..data/password")
    assert read_below(str(folder), "password") == b"s3cret-value"


def test_nothing_leads_out_of_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "up").symlink_to("../outside")
    (folder / "whole").symlink_to(tmp_path / "outside")
    (folder / "aside").symlink_to(tmp_path)
    (folder / "round").symlink_to("round")
    for name in ("up", "whole", "aside/outside", "round"):
        assert error_of(folder, name) == "insecure", name


def test_what_is_no_file_is_no_secret(folder: Path) -> None:
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe", 0o600)
    put(folder / "large", b"x" * (MAX_VALUE + 1))
    assert error_of(folder, "nothing") == "not-found"
    assert error_of(folder, "large/x") == "not-found"
    assert error_of(folder, "folder") == "insecure"
    assert error_of(folder, "pipe") == "insecure"
    assert error_of(folder, "large") == "unfit"


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666])
def test_what_others_can_read_or_change_is_not_used(folder: Path, mode: int) -> None:
    put(folder / "open", mode=mode)
    assert error_of(folder, "open") == "insecure"


def test_a_folder_that_others_can_change_is_not_used(folder: Path) -> None:
    put(folder / "value")
    folder.chmod(0o770)
    assert error_of(folder, "value") == "insecure"
    folder.chmod(0o1777)
    assert error_of(folder, "value") == "insecure"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_what_belongs_to_another_user_is_not_used(folder: Path) -> None:
    os.chown(put(folder / "value"), 65534, 65534)
    assert error_of(folder, "value") == "insecure"


def test_no_error_has_a_value_in_it(folder: Path) -> None:
    put(folder / "open", mode=0o666)
    with pytest.raises(SecretError) as caught:
        read_alone(str(folder / "open"), "the file")
    assert "s3cret" not in str(caught.value)
