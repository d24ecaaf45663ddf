"""`forestay schedules`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi, run_json

NIGHTLY: dict[str, Any] = {
    "name": "nightly", "owner": "alice", "flow": "f" * 64, "flow_name": "reduce", "params": {"day": "${scheduled.date}"}, "cron": ["0 2 * * *"],
    "time_zone": "Europe/Berlin", "catch_up": 21600, "overlap": "skip", "paused": False, "note": "", "next": ["2026-05-02T00:00:00.000Z"],
    "recent": [{"at": "2026-05-01T00:00:00.000Z", "run": "4f1c9d2a-0000"}], "missed": 0, "skipped": 2,
}  # fmt: skip
FLOW = "forestay: 1\nname: reduce\nparams: {day: null}\ntasks: {work: {command: [work]}}\n"
FILE = "forestay: 1\nschedules: {nightly: {flow: reduce.yaml, cron: '0 2 * * *', params: {day: '${scheduled.date}'}}}\n"


def test_schedules_are_listed_and_shown_with_their_runs(forestay: Shell, api: FakeApi) -> None:
    assert "forestay schedules apply" in forestay("schedules", "list").err
    api.schedules["nightly"] = dict(NIGHTLY)
    listed = forestay("schedules", "list")
    for words in ("nightly", "reduce", "0 2 * * *", "Europe/Berlin", "active", "4f1c9d2a"):
        assert words in listed.out, words
    shown = forestay("schedules", "show", "nightly")
    for words in ("nightly: active", "overlap: skip", "0 too late, 2 by overlap", "run: 4f1c9d2a"):
        assert words in shown.out, words
    assert forestay("schedules", "show", "nightly", "--json").json["owner"] == "alice"


def test_a_file_is_applied_with_the_flows_beside_it(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    (tmp_path / "reduce.yaml").write_text(FLOW)
    (tmp_path / "schedules.yaml").write_text(FILE)
    done = forestay("schedules", "apply", "-f", str(tmp_path / "schedules.yaml"))
    assert done.code == 0, done.err
    assert done.out.startswith("nightly: next ")
    sent = api.sent("PUT", "/v1/schedules/nightly")[-1].body
    assert len(sent["flow"]) == 64
    assert sent["cron"] == ["0 2 * * *"]
    assert sent["params"] == {"day": "${scheduled.date}"}
    assert (sent["time_zone"], sent["catch_up"], sent["overlap"], sent["paused"]) == ("UTC", 86400, "skip", False)


def test_a_file_with_errors_changes_nothing(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(FILE.replace("0 2 * * *", "at night"))
    wrong = forestay("schedules", "apply", "-f", str(file))
    assert wrong.code == 2
    assert "schedules.nightly.cron[0]" in wrong.err
    assert api.requests == []
    (tmp_path / "reduce.yaml").write_text("forestay: 1\n")
    file.write_text(FILE)
    assert forestay("schedules", "apply", "-f", str(file)).code == 2
    assert api.requests == []
    assert forestay("schedules", "apply", "-f", str(tmp_path / "none.yaml")).code == 2


def test_a_schedule_is_paused_resumed_run_and_deleted(forestay: Shell, api: FakeApi) -> None:
    api.schedules["nightly"] = dict(NIGHTLY)
    assert forestay("schedules", "pause", "nightly", "--reason", "off").out == "nightly: paused\n"
    assert api.sent("POST", "/v1/schedules/nightly/pause")[-1].body == {"reason": "off"}
    assert "paused" in forestay("schedules", "list").out
    assert forestay("schedules", "resume", "nightly").out == "nightly: active\n"
    assert forestay("schedules", "run", "nightly").out == "nightly: a run is started\n"
    assert forestay("schedules", "delete", "nightly", "--yes").out == "nightly deleted\n"
    assert api.schedules == {}


def test_a_run_says_by_which_schedule_it_was_started(forestay: Shell, api: FakeApi) -> None:
    run = run_json(1, schedule="nightly")
    api.runs.states[run["id"]] = [run]
    assert "started by the schedule nightly" in forestay("runs", "show", run["id"]).out
