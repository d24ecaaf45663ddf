"""`forestay token`: a token that no server takes must not be made in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.apps.processes import token


def test_a_token_of_a_key_that_is_made_for_it_comes_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORESTAY_CONFIG", raising=False)
    monkeypatch.delenv("FORESTAY_SIGNING_KEY", raising=False)
    monkeypatch.setenv("FORESTAY_STATE", str(tmp_path))
    token("ada", tenant="default", days=1)
    first = capsys.readouterr()
    assert f"no signing key at {tmp_path / 'signing-key'}" in first.err
    token("ada", role=["engine"], tenant="default", days=1)
    second = capsys.readouterr()
    assert second.err == ""
    assert second.out.count(".") == 2
