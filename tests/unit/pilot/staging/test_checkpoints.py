"""Checkpoints: committed while a payload runs and when it is stopped, staged for the next attempt, and removed when nobody needs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer, until

from forestay_pilot.claims.lifetime import Lifetime
from forestay_pilot.process.payload import ClaimedJob, read_claim
from forestay_pilot.staging.checkpoints import CheckpointSaver, checkpoint_inputs, remove_checkpoints
from forestay_pilot.staging.outputs import OutputManifest, commit_outputs
from forestay_pilot.staging.transfer import StagingError

StartPilot = Callable[..., RunningPilot]

POLICY = {"files": ["*.ckpt"], "signal": "USR1", "grace": 20}
COUNTER = """\
trap 'echo signalled > state.ckpt; exit 3' USR1
cat state.ckpt 2>/dev/null
echo begun
while :; do sleep 0.02; done
"""


def _begun(server: FakeServer, claim: dict[str, Any], running: RunningPilot) -> None:
    held = until(lambda: running.pilot._held.get(claim["claim"]), "the claim")
    until(lambda: held.log_path and Path(held.log_path).exists() and "begun" in Path(held.log_path).read_text())


def _place(outputs: Path, claim: dict[str, Any]) -> Path:
    return outputs / "physics" / str(claim["job"])


def test_a_drain_signals_the_job_and_the_next_attempt_begins_with_what_it_wrote(
    server: FakeServer, pilot: StartPilot, outputs: Path
) -> None:
    first = server.submit("bash", "-c", COUNTER, checkpoint=POLICY)
    running = pilot()
    _begun(server, first, running)
    server.order("drain", {})
    end = server.end_of(first)
    assert (end["outcome"], end["reason"], end["exit_code"]) == ("failure", "pilot-stopped", 3)
    checkpoint = end["checkpoint"]
    assert checkpoint["manifest"]["path"] == str(
        _place(outputs, first) / f"1.1.{first['claim'][:8]}.c1" / "manifest.json"
    )
    assert (checkpoint["number"], checkpoint["manifest"]["files"]) == (1, 1)
    running.wait()
    begin = {"attempt": 1, "manifest": checkpoint["manifest"]}
    second = server.submit("cat", "state.ckpt", job=first["job"], attempt=2, checkpoint=POLICY)
    second["checkpoint"] = begin
    pilot()
    end = server.end_of(second)
    assert (end["outcome"], end["log_tail"]) == ("ok", "signalled\n")
    until(
        lambda: not list(_place(outputs, first).glob("*.c*")), "the removal of the checkpoint of a job that succeeded"
    )


def test_a_drain_without_checkpoints_leaves_a_job_to_its_end(server: FakeServer, pilot: StartPilot) -> None:
    claim = server.submit("sh", "-c", "echo begun; while [ ! -e go ]; do sleep 0.02; done")
    running = pilot()
    _begun(server, claim, running)
    server.order("drain", {})
    until(running.pilot._draining.is_set, "the drain")
    held = running.pilot._held.get(claim["claim"])
    assert held is not None
    assert not held.stop_why
    (Path(running.pilot._settings.work).glob("pilot-*").__next__() / "jobs" / claim["claim"] / "go").touch()
    assert server.end_of(claim)["outcome"] == "ok"


def test_the_signal_comes_before_the_time_limit(server: FakeServer, pilot: StartPilot) -> None:
    claim = server.submit("bash", "-c", COUNTER, checkpoint={**POLICY, "grace": 3}, resources={"cpus": 1, "wall": 4})
    pilot()
    end = server.end_of(claim)
    assert (end["reason"], end["checkpoint"]["number"]) == ("wall-limit", 1)
    assert end["wall"] < 4


def test_a_cancelled_job_gets_no_checkpoint_and_a_failed_one_none_at_its_end(
    server: FakeServer, pilot: StartPilot
) -> None:
    claim = server.submit("bash", "-c", COUNTER, checkpoint=POLICY)
    failed = server.submit("sh", "-c", "echo x > a.ckpt; exit 1", checkpoint=POLICY)
    running = pilot(slots=2)
    _begun(server, claim, running)
    server.order("cancel", {"claim": claim["claim"]})
    end = server.end_of(claim)
    assert (end["reason"], end["signal"], "checkpoint" in end) == ("cancelled", 15, False)
    assert "checkpoint" not in server.end_of(failed)


def test_files_are_committed_while_the_job_runs_and_only_the_newest_is_kept(
    server: FakeServer, pilot: StartPilot, outputs: Path
) -> None:
    script = "n=0; while :; do n=$((n+1)); echo $n > new; mv new n.ckpt; sleep 0.7; done"
    claim = server.submit("sh", "-c", script, checkpoint={**POLICY, "every": 1})
    running = pilot()
    until(lambda: len(server.seen.checkpoints) >= 3, "three checkpoints")
    numbers = [body["checkpoint"]["number"] for body in server.seen.checkpoints]
    assert numbers == sorted(set(numbers))
    assert len({body["checkpoint"]["content"] for body in server.seen.checkpoints}) == len(numbers)
    until(lambda: len(list(_place(outputs, claim).glob("*.c*"))) <= 2, "the removal of older ones")
    running.end()


def test_a_superseded_claim_saves_no_more_and_leaves_nothing(
    server: FakeServer, pilot: StartPilot, outputs: Path
) -> None:
    server.failures.refuse_checkpoints = True
    claim = server.submit("sh", "-c", "echo 1 > n.ckpt; echo begun; sleep 300", checkpoint={**POLICY, "every": 1})
    (_place(outputs, claim) / "1.2.ffffffff.c1").mkdir(parents=True)
    running = pilot()
    _begun(server, claim, running)
    place = _place(outputs, claim)
    until(lambda: server.seen.refused_checkpoints, "a refusal")
    until(lambda: [folder.name for folder in place.iterdir()] == ["1.2.ffffffff.c1"], "only the newer attempt's")
    running.end()


def test_a_lost_checkpoint_is_told_and_the_job_begins_anew(server: FakeServer, pilot: StartPilot) -> None:
    claim = server.submit("sh", "-c", "ls", attempt=2, checkpoint=POLICY)
    claim["checkpoint"] = {"attempt": 1, "manifest": {"path": "/nowhere/manifest.json", "sha256": "0" * 64}}
    pilot()
    end = server.end_of(claim)
    assert (end["outcome"], end["log_tail"]) == ("ok", "")
    assert [(report["name"], report["kind"]) for report in end["staging"]] == [("checkpoint", "checkpoint")]
    assert "/nowhere/manifest.json" in end["staging"][0]["failed"][0]


@pytest.mark.parametrize("pattern", ["../x", "/etc/passwd"])
def test_patterns_that_leave_the_folder_are_not_run(server: FakeServer, pilot: StartPilot, pattern: str) -> None:
    claim = server.submit("true", checkpoint={"files": [pattern]})
    pilot()
    end = server.end_of(claim)
    assert (end["reason"], end["error"]) == ("start-failed", "bad-claim")


@pytest.fixture
def job() -> ClaimedJob:
    claim = {"job": "job1", "generation": 1, "attempt": 2, "claim": "0123456789ab", "tenant": "physics"}
    return read_claim({**claim, "specification": {"checkpoint": {"files": ["*.ckpt"]}}})


def test_files_that_change_while_they_are_copied_are_no_checkpoint(job: ClaimedJob, tmp_path: Path) -> None:
    folder, outputs = tmp_path / "folder", tmp_path / "outputs"
    folder.mkdir()
    changes = iter(["2", "3"])

    def commit(numbered: ClaimedJob, patterns: list[str]) -> OutputManifest:
        manifest = commit_outputs(numbered, str(folder), patterns, str(outputs))
        if text := next(changes, ""):
            (folder / "a.ckpt").write_text(text * 10)
        return manifest

    saver = CheckpointSaver(job, str(folder), commit=commit, report=lambda *_: "", outputs=str(outputs), every=0)
    assert saver.commit_last() is None
    (folder / "a.ckpt").write_text("1")
    assert saver.commit_last() is None
    assert saver.commit_last() is None
    committed = saver.commit_last()
    assert committed is not None
    assert committed.as_document()["number"] == 3
    assert [path.name for path in (outputs / "physics" / "job1").iterdir()] == ["1.2.01234567.c3"]
    assert saver.commit_last() is None


def test_removal_never_reaches_later_attempts_or_outputs(job: ClaimedJob, tmp_path: Path) -> None:
    place = tmp_path / "physics" / "job1"
    kept = {"1.2.01234567", "1.3.aaaaaaaa.c1", "2.1.bbbbbbbb.c1", "notes.c1"}
    for name in kept | {"1.1.cccccccc.c7", "1.2.01234567.c1", "1.2.01234567.c2", "0.9.dddddddd.c1"}:
        (place / name).mkdir(parents=True)
    remove_checkpoints(job, str(tmp_path))
    assert {path.name for path in place.iterdir()} == kept


def test_a_manifest_that_names_another_place_is_not_obeyed(
    tmp_path: Path, server: FakeServer, pilot: StartPilot
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"files": [{"path": "../out", "bytes": 1, "sha256": "0" * 64}]}))
    with pytest.raises(StagingError) as wrong:
        checkpoint_inputs({"manifest": {"path": str(tmp_path / "manifest.json"), "sha256": "0" * 64}})
    assert wrong.value.reason == "data-corrupt"
    claim = server.submit("true", checkpoint=POLICY)
    claim["checkpoint"] = {"files": [{"name": "../out", "from": [{"kind": "file", "path": "/etc/hostname"}]}]}
    pilot()
    assert server.end_of(claim)["reason"] == "bad-input"


def test_who_needs_long_to_write_a_checkpoint_is_told_early() -> None:
    lifetime = Lifetime(100, margin=60, grace=10)
    assert not lifetime.must_stop()
    assert not lifetime.must_stop(60)
    assert lifetime.must_stop(80)
