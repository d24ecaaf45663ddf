"""Outputs: whole or not at all, and never from outside the working folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.speed import clock_limit
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer, until

from forestay_pilot.process.payload import BadClaimError, ClaimedJob, read_claim
from forestay_pilot.staging.outputs import (
    OutputFailedError,
    OutputMissingError,
    check_patterns,
    commit_outputs,
    find_outputs,
)

StartPilot = Callable[..., RunningPilot]


@pytest.fixture
def job() -> ClaimedJob:
    return read_claim({"job": "job1", "generation": 1, "attempt": 2, "claim": "0123456789ab", "tenant": "physics"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "a.txt").write_text("alpha")
    (made / "deep" / "er" / "b.txt").write_text("beta")
    return made


def test_a_manifest_commits_what_the_patterns_name(server: FakeServer, pilot: StartPilot, outputs: Path) -> None:
    script = (
        "echo alpha > a.txt; mkdir d; echo beta > d/b.dat; echo gamma > $FORESTAY_OUTPUTS/d/c.dat; echo no > left.tmp"
    )
    claim = server.submit("sh", "-c", script, outputs=["*.txt", "d/**"])
    pilot()
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end["log_tail"]
    place = outputs / "physics" / claim["job"] / f"1.1.{claim['claim'][:8]}"
    content = (place / "manifest.json").read_bytes()
    assert end["manifest"] == {
        "path": str(place / "manifest.json"),
        "sha256": hashlib.sha256(content).hexdigest(),
        "files": 3,
        "bytes": len("alpha\nbeta\ngamma\n"),
    }
    manifest = json.loads(content)
    assert {key: manifest[key] for key in ("job", "generation", "attempt", "claim")} == {
        key: claim[key] for key in ("job", "generation", "attempt", "claim")
    }
    assert [file["path"] for file in manifest["files"]] == ["a.txt", "d/b.dat", "d/c.dat"]
    for file in manifest["files"]:
        data = (place / file["path"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
    assert sorted(path.name for path in place.rglob("*") if path.is_file()) == [
        "a.txt",
        "b.dat",
        "c.dat",
        "manifest.json",
    ]


def test_a_missing_output_is_a_failure_and_commits_nothing(
    server: FakeServer, pilot: StartPilot, outputs: Path
) -> None:
    claim = server.submit("sh", "-c", "echo x > a.txt", outputs=["a.txt", "b.txt"])
    pilot()
    end = server.end_of(claim)
    assert (end["outcome"], end["reason"], end["exit_code"], end["manifest"]) == ("failure", "output-missing", 0, None)
    assert "b.txt" in end["log_tail"]
    assert not list(outputs.rglob("*.json"))


def test_a_failed_payload_commits_nothing(server: FakeServer, pilot: StartPilot, outputs: Path) -> None:
    claim = server.submit("sh", "-c", "echo x > a.txt; exit 1", outputs=["a.txt"])
    pilot()
    assert server.end_of(claim)["reason"] == "exit"
    assert not list(outputs.rglob("*"))


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "a/../../x", "", 7])
def test_patterns_stay_in_the_folder(pattern: object) -> None:
    with pytest.raises(BadClaimError):
        check_patterns([pattern])


def test_links_out_of_the_folder_are_not_outputs(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    (folder / "file").symlink_to(secret / "key")
    (folder / "dir").symlink_to(secret)
    (folder / "inside").symlink_to(folder / "a.txt")
    os.mkfifo(folder / "pipe")
    for pattern in ("file", "dir", "dir/*", "dir/key", "pipe"):
        with pytest.raises(OutputMissingError):
            find_outputs(str(folder), [pattern])
    assert find_outputs(str(folder), ["**"]) == {
        "a.txt": str(folder / "a.txt"),
        "inside": str(folder / "a.txt"),
        "deep/er/b.txt": str(folder / "deep/er/b.txt"),
    }


@pytest.mark.parametrize("pattern", ["**/x", "*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/x", "**/**/**/**/**/x"])
def test_links_to_their_own_folder_are_walked_once(folder: Path, pattern: str) -> None:
    """Two of them have as many paths as there are ways through them."""
    for name in "abc":
        (folder / name).symlink_to(".")
    (folder / "x").write_text("1")
    found = find_outputs(str(folder), [pattern], needed=False)
    assert found == ({"x": str(folder / "x")} if pattern.startswith("**") else {})


def test_a_link_to_a_folder_outside_is_not_walked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "o.root").symlink_to("/")
    walk, walked = os.walk, []

    def noted(top: str) -> object:
        walked.append(os.path.realpath(top))
        return walk(top)

    monkeypatch.setattr(os, "walk", noted)
    assert find_outputs(str(folder), ["o*"], needed=False) == {}
    assert "/" not in walked


def test_a_link_that_is_named_is_followed_inside_the_folder(folder: Path) -> None:
    (folder / "latest").symlink_to("deep")
    assert find_outputs(str(folder), ["latest/er/*.txt"]) == {"latest/er/b.txt": str(folder / "deep/er/b.txt")}


def test_two_patterns_may_name_one_file(folder: Path) -> None:
    assert list(find_outputs(str(folder), ["*.txt", "a.*"])) == ["a.txt"]


def test_a_folder_with_signs_of_a_pattern_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "odd[1]*"
    folder.mkdir()
    (folder / "a").write_text("x")
    assert list(find_outputs(str(folder), ["a"])) == ["a"]


def test_an_attempts_path_is_never_used_twice(job: ClaimedJob, folder: Path, tmp_path: Path) -> None:
    commit_outputs(job, str(folder), ["a.txt"], str(tmp_path))
    before = (tmp_path / "physics/job1/1.2.01234567/manifest.json").read_bytes()
    with pytest.raises(OutputFailedError):
        commit_outputs(job, str(folder), ["deep/er/b.txt"], str(tmp_path))
    assert (tmp_path / "physics/job1/1.2.01234567/manifest.json").read_bytes() == before


def test_a_full_disk_leaves_nothing_half_done(
    job: ClaimedJob, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFailedError, match="No space left"):
        commit_outputs(job, str(folder), ["**"], str(tmp_path / "out"))
    assert not list((tmp_path / "out").rglob("1.2.*"))


@pytest.mark.finding("F-B7")
def test_many_outputs_are_made_durable_together(
    job: ClaimedJob, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is on disk before the manifest, and no file waits for the one before it."""
    names = [f"many/{number:03d}" for number in range(64)]
    (folder / "many").mkdir()
    for name in names:
        (folder / name).write_text(name)
    together, fsync = threading.Barrier(8), os.fsync
    synced: list[int] = []

    def slow_disk(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and len(synced) < len(names):
            together.wait(60)
            synced.append(descriptor)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_disk)
    manifest = commit_outputs(job, str(folder), ["many/*"], str(tmp_path / "out"))
    assert len(synced) == len(names)
    assert [name for name, _, _ in manifest.listing] == names
    assert all(hashlib.sha256(name.encode()).hexdigest() == digest for name, _, digest in manifest.listing)


@pytest.mark.finding("F-B7")
def test_the_first_output_that_fails_ends_the_copies_and_takes_them_away(
    job: ClaimedJob, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "many").mkdir()
    for number in range(200):
        (folder / "many" / str(number)).write_text("x")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFailedError) as failed:
        commit_outputs(job, str(folder), ["many/*"], str(tmp_path / "out"))
    assert failed.value.error == "ENOSPC"
    copiers = [thread.name for thread in threading.enumerate() if thread.name.startswith("outputs")]
    assert not copiers, "nobody still writes when the folder is taken away"
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


@pytest.mark.slow
@pytest.mark.finding("F-B7")
def test_a_hundred_thousand_outputs_commit_within_a_minute(
    server: FakeServer, pilot: StartPilot, outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the end of the payload to the end that is told, with a real pilot."""
    make = "import os\nos.mkdir('many')\nfor n in range(100_000): open(f'many/{n}', 'w').write(str(n))"
    claim = server.submit(sys.executable, "-c", make + "\nopen('over', 'w').close()", outputs=["many/*"])
    running = pilot()
    over = Path(running.pilot._settings.work)
    until(lambda: next(over.rglob("over"), None), "the end of the payload", patience=600)
    began = time.monotonic()
    until(lambda: server.seen.completions, "the end of the job", patience=600)
    end = server.end_of(claim)
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f"\n100,000 outputs committed in {seconds:.1f} s")  # noqa: T201
    assert (end["outcome"], end["manifest"]["files"]) == ("ok", 100_000)
    assert seconds <= clock_limit(60)


def test_a_tenant_cannot_climb(folder: Path, tmp_path: Path) -> None:
    job = read_claim({"job": "j", "generation": 1, "attempt": 1, "claim": "c1", "tenant": "../.."})
    with pytest.raises(BadClaimError):
        commit_outputs(job, str(folder), ["a.txt"], str(tmp_path / "out"))


def test_an_output_called_manifest_is_refused(job: ClaimedJob, folder: Path, tmp_path: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(OutputFailedError, match=r"manifest\.json"):
        commit_outputs(job, str(folder), ["manifest.json"], str(tmp_path / "out"))


@pytest.mark.finding("F-G2")
def test_the_manifest_is_on_disk_before_it_gets_its_name(
    job: ClaimedJob, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real calls, in their order: the whole manifest is synced, then renamed, then its folder is synced."""
    calls: list[tuple[str, str, int]] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        real_sync(descriptor)
        calls.append(("fsync", path, os.fstat(descriptor).st_size))

    def rename(before: str, after: str) -> None:
        real_rename(before, after)
        calls.append(("rename", after, os.stat(after).st_size))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    manifest = commit_outputs(job, str(folder), ["a.txt"], str(tmp_path / "outputs"))
    size = os.stat(manifest.path).st_size
    named = calls.index(("rename", manifest.path, size))
    assert ("fsync", manifest.path + ".tmp", size) in calls[:named]
    assert (os.path.dirname(manifest.path)) in [path for call, path, _ in calls[named:] if call == "fsync"]
