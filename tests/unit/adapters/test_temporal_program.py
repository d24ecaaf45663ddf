"""Where the program of Temporal's development server comes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from forestay.adapters.temporal.dev_server import fetch_program, find_program
from forestay.ports.errors import Permanent, Transient


def program(path: Path, *, age: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    os.utime(path, (1_700_000_000 - age, 1_700_000_000 - age))
    return path


def test_the_setting_then_the_path_then_what_was_fetched(tmp_path: Path) -> None:
    cache, path = tmp_path / "cache", {"PATH": str(tmp_path / "bin")}
    assert find_program("", path, cache) is None
    program(cache / "temporal-sdk-python-1.34.0", age=60)
    newest = program(cache / "temporal-sdk-python-1.35.0")
    program(cache / "temporal-sdk-python-1.36.0.downloading")
    found_program = find_program("", path, cache)
    assert found_program is not None
    assert (found_program.path, found_program.source) == (newest, "fetched earlier")
    own = program(tmp_path / "bin" / "temporal")
    found_program = find_program("", path, cache)
    assert found_program is not None
    assert (found_program.path, found_program.source) == (own, "the path")
    named = program(tmp_path / "elsewhere")
    found_program = find_program(str(named), path, cache)
    assert found_program is not None
    assert found_program.path == named


def test_a_setting_that_names_nothing_is_not_passed_over(tmp_path: Path) -> None:
    program(tmp_path / "temporal-1.0.0")
    with pytest.raises(Permanent, match="FORESTAY_TEMPORAL_PROGRAM"):
        find_program(str(tmp_path / "nothing"), {}, tmp_path)


async def test_it_is_fetched_into_the_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started:
        async def shutdown(self) -> None: ...

    async def start_local(*, download_dest_dir: str) -> Started:
        program(Path(download_dest_dir) / "temporal-sdk-python-1.35.0")
        return Started()

    monkeypatch.setattr(WorkflowEnvironment, "start_local", start_local)
    cache = tmp_path / "cache"
    fetched = await fetch_program(cache)
    found_program = find_program("", {"PATH": ""}, cache)
    assert found_program is not None
    assert found_program.path == fetched.path


async def test_what_cannot_be_fetched_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def start_local(**_: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(WorkflowEnvironment, "start_local", start_local)
    with pytest.raises(Transient, match="no network"):
        await fetch_program(tmp_path)
