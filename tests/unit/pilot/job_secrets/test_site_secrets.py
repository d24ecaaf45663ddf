"""What an administrator writes down: sources, and who may use which secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from forestay_pilot.job_secrets.secret_error import SecretError
from forestay_pilot.job_secrets.site_secrets import SiteSecrets, SiteSecretsFile, read_site_secrets

VALUE = "a-value-that-nobody-prints"


def written(path: Path, document: Any, mode: int = 0o600) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    path.chmod(mode)
    return str(path)


def test_nobody_may_use_what_no_list_names() -> None:
    site = SiteSecrets(owners={"ann": ["file:db", "vault:secret/data/ann/*"], "*": ["file:proxy"]})
    allowed = {
        ("ann", "file:db"), ("ann", "file:proxy"), ("ann", "vault:secret/data/ann/x#y"), ("bob", "file:proxy"),
        ("Ann", "file:proxy"),
    }  # fmt: skip
    for owner in ("ann", "bob", "Ann", ""):
        for name in ("file:db", "file:db2", "file:proxy", "vault:secret/data/ann/x#y", "vault:secret/data/annx#y"):
            assert site.allows(owner, name) == ((owner, name) in allowed), (owner, name)
    assert not SiteSecrets(folder="/x").allows("ann", "file:db")


def test_sources_are_those_that_are_named(tmp_path: Path) -> None:
    vault = {"address": "https://vault.example.org", "token_file": "/x"}
    assert SiteSecretsFile(written(tmp_path / "a", {"folder": "/x"})).sources == ["file"]
    assert SiteSecretsFile(written(tmp_path / "b", {"values": {"a": VALUE}, "vault": vault})).sources == [
        "file",
        "vault",
    ]
    assert SiteSecretsFile(written(tmp_path / "c", {"owners": {"ann": []}})).sources == []


def test_a_change_of_the_list_counts_at_once(tmp_path: Path) -> None:
    file = SiteSecretsFile(written(tmp_path / "a", {"folder": "/x", "owners": {}}))
    assert not file.read().allows("ann", "file:db")
    written(tmp_path / "a", {"folder": "/x", "owners": {"ann": ["file:db"]}})
    assert file.read().allows("ann", "file:db")
    written(tmp_path / "a", "{")
    with pytest.raises(SecretError, match="not JSON"):
        file.read()


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("", "not JSON"),
        ([], "not an object"),
        ({"folders": "/x"}, "no field 'folders'"),
        ({"folder": "x"}, "whole path"),
        ({"values": {"a": 1}}, "texts by name"),
        ({"vault": {"address": "http://vault.example.org", "token": VALUE}}, "allow_http"),
        ({"vault": {"address": "http://127.evil.example.org", "token": VALUE}}, "allow_http"),
        ({"vault": {"address": "http://localhost.example.org", "token": VALUE}}, "allow_http"),
        ({"vault": {"adress": "https://vault"}}, "'vault' has"),
        ({"vault": "https://vault"}, "'vault' has"),
        ({"owners": []}, "lists of secrets"),
        ({"owners": {"ann": "file:db"}}, "'ann'"),
        ({"owners": {"ann": ["db"]}}, "'ann'"),
        ({"owners": {"ann": ["*"]}}, "'ann'"),
    ],
)
def test_a_file_that_makes_no_sense_stops_the_pilot(tmp_path: Path, document: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        SiteSecretsFile(written(tmp_path / "a", document))
    assert VALUE not in str(caught.value)


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_file_that_others_can_read_or_change_stops_the_pilot(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ValueError, match="others"):
        SiteSecretsFile(written(tmp_path / "a", {"values": {"a": VALUE}}, mode))


def test_what_comes_by_a_descriptor_is_read_once_and_closed(tmp_path: Path) -> None:
    path = written(tmp_path / "a", {"values": {"db": VALUE}, "owners": {"ann": ["file:db"]}})
    descriptor = os.open(path, os.O_RDONLY)
    os.unlink(path)
    file = SiteSecretsFile(f"/dev/fd/{descriptor}")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert file.read().values == {"db": VALUE}
    assert VALUE not in repr(file.read())
    assert not file.open_to_jobs


def test_what_comes_by_a_descriptor_has_the_values_itself(tmp_path: Path) -> None:
    for document in ({"folder": "/x"}, {"vault": {"address": "https://vault", "token_file": "/x"}}):
        descriptor = os.open(written(tmp_path / "a", document), os.O_RDONLY)
        with pytest.raises(ValueError, match="by a descriptor"):
            SiteSecretsFile(f"/dev/fd/{descriptor}")
    with pytest.raises(ValueError, match="cannot be read"):
        SiteSecretsFile("/dev/fd/987")


def test_bytes_that_are_no_text_are_no_file_of_secrets() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        read_site_secrets(b"\xff\xfe")
