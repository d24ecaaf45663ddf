"""`holdfast doctor`: what is missing is found, named, and comes with what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.apps import entry
from holdfast.apps.doctor import GOOD, MISSING, NOTE, Finding, examine


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing is set or installed."""
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_DIRS", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name in (
        "HOLDFAST_SERVER",
        "HOLDFAST_TOKEN",
        "HOLDFAST_TEMPORAL",
        "HOLDFAST_TEMPORAL_PROGRAM",
        "HOLDFAST_CONFIG",
        "HOLDFAST_STATE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)


def found(state: Path) -> dict[str, Finding]:
    return {one.about: one for one in examine(state)}


def test_a_new_machine_lacks_nothing_that_the_first_start_does_not_make(tmp_path: Path) -> None:
    told = found(tmp_path / "state")
    assert (told["python"].state, told["state"].state) == (GOOD, GOOD)
    assert (told["key"].state, told["server"].state, told["temporal"].state) == (NOTE, NOTE, NOTE)
    assert "holdfast dev" in told["server"].remedy
    assert "HOLDFAST_TEMPORAL_PROGRAM" in told["temporal"].remedy


def test_temporal_is_found_or_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "temporal"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert found(tmp_path)["temporal"] == Finding("temporal", GOOD, f"{program} (the path)")
    monkeypatch.setenv("HOLDFAST_TEMPORAL_PROGRAM", str(tmp_path / "nothing"))
    assert found(tmp_path)["temporal"].state == MISSING
    monkeypatch.setenv("HOLDFAST_TEMPORAL_PROGRAM", "none")
    assert found(tmp_path)["temporal"].state == NOTE
    monkeypatch.setenv("HOLDFAST_TEMPORAL", "127.0.0.1:9")
    assert found(tmp_path)["temporal"].state == MISSING


def test_what_is_wrong_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "signing-key"
    key.write_text("k" * 64)
    key.chmod(0o644)
    assert found(tmp_path)["key"] == Finding(
        "key", MISSING, f"{key} can be read by others; it signs every token", f"chmod 600 {key}"
    )
    (tmp_path / "file").touch()
    assert found(tmp_path / "file" / "state")["state"].state == MISSING
    monkeypatch.setenv("HOLDFAST_LEASE", "soon")
    assert found(tmp_path)["settings"].state == MISSING


def test_a_server_that_is_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("HOLDFAST_TOKEN", "some-token")
    told = found(tmp_path)["server"]
    assert told.state == NOTE
    assert "http://127.0.0.1:9" in told.words


def test_exit_code_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = CliRunner().invoke(entry.app, ["doctor", "--state", str(tmp_path)])
    assert good.exit_code == 0
    assert "Nothing is missing" in good.stderr
    monkeypatch.setenv("HOLDFAST_TEMPORAL", "127.0.0.1:9")
    bad = CliRunner().invoke(entry.app, ["doctor", "--state", str(tmp_path), "--json"])
    assert bad.exit_code == 1
    assert MISSING in {one["state"] for one in json.loads(bad.stdout)["findings"]}
    assert bad.stderr == ""
