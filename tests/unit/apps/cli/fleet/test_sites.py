"""Sites at the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi

AT = "2026-05-01T10:00:00.000Z"


def launch(state: str, **more: Any) -> dict[str, Any]:
    known = {
        "launch": "ab" * 16,
        "name": "forestay-" + "ab" * 16,
        "size": "standard",
        "state": state,
        "planned": AT,
        "changed": AT,
    }
    return (
        known
        | {"age": 1.0, "tries": 1, "tried": 1.0, "since": 1.0, "batch_job": "4711", "pilot": "", "end": None}
        | more
    )


def hall(**fields: Any) -> dict[str, Any]:
    policy = {
        "batch": "slurm",
        "min_pilots": 0,
        "max_pilots": 40,
        "min_idle": 2,
        "trouble": "",
        "paced": 0,
        "unfit": [],
    }
    need = {"cpus": 4, "memory": 8 << 30, "disk": 0, "gpus": 0, "wall": 3600}
    end = {
        "word": "FAILED",
        "reason": "python3: not found",
        "exit_code": 127,
        "signal": None,
        "nodes": ["n1"],
        "lost": False,
    }
    return {
        "site": "hall", "agent": "a-1", "host": "login1", "seen": AT, "overdue": False, "every": 10.0, "said": policy | fields,
        "demand": {
            "site": "hall", "groups": [{"name": "c3m14d0g0", "tasks": 7, "need": need}], "pilots": {"inactive": 3, "idle": 1, "busy": 2},
            "sizes": {}, "leaving": 0, "launches": [launch("submitted")],
        },
        "ended": [launch("ended", end=end)],
    }  # fmt: skip


def test_sites_are_listed_with_their_pilots(forestay: Shell, api: FakeApi) -> None:
    api.sites = [hall(), hall(trouble="scheduler-down: no\x1b[31m answer") | {"site": "cave", "overdue": True}]
    heading, first, second = forestay("sites").out.splitlines()
    assert heading.split()[:7] == ["SITE", "AGENT", "BATCH", "WAITING", "IDLE", "BUSY", "ALLOWED"]
    assert first.split()[:8] == ["hall", "well", "slurm", "3", "1", "2", "0-40", "7"]
    assert second.split()[:2] == ["cave", "silent"]
    assert "\x1b" not in second
    assert [site["site"] for site in json.loads(forestay("sites", "--json").out)["sites"]] == ["hall", "cave"]


def test_one_site_is_shown_closely(forestay: Shell, api: FakeApi) -> None:
    api.sites = [hall(trouble="accounting is down", paced=5, unfit=["c3m14d0g0"])]
    out = forestay("sites", "show", "hall").out
    assert "Site hall: troubled" in out
    assert "trouble  accounting is down" in out
    assert "3 waiting, 1 idle, 2 busy; 0 to 40 are allowed, 2 kept idle" in out
    assert "7 jobs with 4 cpus" in out
    assert "no pilot of this site can run them" in out
    assert "FAILED, exit code 127, python3: not found" in out
    assert json.loads(forestay("sites", "show", "hall", "--json").out)["site"] == "hall"


@pytest.mark.parametrize("words", [(), ("show", "cave")])
def test_no_sites(forestay: Shell, words: tuple[str, ...]) -> None:
    ended = forestay("sites", *words)
    assert ended.out == ""
    assert ("No site agent has reported yet" in ended.err) or ended.code != 0
