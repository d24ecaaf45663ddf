"""Secrets by reference: a setting says where one is, and never what it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.config.settings import load
from forestay.ports.errors import Permanent, Transient

OIDC = {"issuer": "https://login.example.org", "audience": "forestay", "tenant": "default", "client": "pages"}
S3 = {"name": "s3", "kind": "s3", "url": "https://s3.example.org/bucket", "access_key": "env:KEY"}
TES = {"name": "tes", "url": "https://tes.example.org"}


@pytest.mark.parametrize(
    "client_secret", ["hunter2", "file:relative", "env:", "env:A B", "http://example.org/secret", ""]
)
def test_a_setting_that_is_a_secret_is_refused(client_secret: str) -> None:
    tables: dict[str, Any] = {
        "FORESTAY_OIDC": OIDC | {"client_secret": client_secret},
        "FORESTAY_STORAGE": [S3 | {"secret_key": client_secret}],
        "FORESTAY_DOWNSTREAMS": [TES | {"token": client_secret}],
    }
    for name, table in tables.items():
        with pytest.raises(Permanent) as exception_info:
            load({name: json.dumps(table)})
        assert "hunter2" not in str(exception_info.value)


def test_a_secret_is_read_where_it_is_and_anew_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets, path = ReferencedSecrets(), tmp_path / "secret"
    monkeypatch.setenv("A_SECRET", "one")
    assert secrets.read("env:A_SECRET") == "one"
    for text in ("two\n", "three"):
        path.write_text(text)
        assert secrets.read(f"file:{path}") == text.strip()


def test_what_goes_wrong_is_told_without_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd").write_bytes(b"hunter2\xff")
    (tmp_path / "empty").write_text("\n")
    monkeypatch.delenv("NO_SECRET", raising=False)
    for where in (
        "env:NO_SECRET",
        f"file:{tmp_path}/none",
        f"file:{tmp_path}",
        f"file:{tmp_path}/odd",
        f"file:{tmp_path}/empty",
    ):
        with pytest.raises(Transient) as exception_info:
            ReferencedSecrets().read(where)
        assert where in str(exception_info.value)
        assert "hunter2" not in str(exception_info.value)
        assert exception_info.value.__cause__ is None
