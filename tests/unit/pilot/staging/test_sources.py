"""Inputs that may be had from several places: which one serves, what is told of the others, and how a transfer that broke off goes on."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.storage_server import Failure, Storage, serving

from forestay_pilot.staging.staging import StagingError, StoppedError, stage_in

CONTENT = random.Random(7).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
KNOWN = {"bytes": len(CONTENT), "sha256": SHA256}


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    folder = tmp_path / "se1"
    folder.mkdir()
    (folder / "f").write_bytes(CONTENT)
    with serving(folder) as storage:
        yield storage


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Storage]:
    folder = tmp_path / "se2"
    folder.mkdir()
    (folder / "f").write_bytes(CONTENT)
    with serving(folder) as storage:
        yield storage


def web(storage: Storage, element: str = "", path: str = "f") -> dict[str, Any]:
    return {"kind": "http", "url": f"{storage.url}/{path}", "private": True, "element": element}


def bring(folder: Path, *places: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    job = folder / "job"
    job.mkdir(exist_ok=True)
    noted: list[dict[str, Any]] = []
    data = {"name": "in.dat", "source": "lfn:f", "file": "lfn:f", "from": list(places), **fields}
    try:
        stage_in([data], str(job), sequential=False, stopped=lambda: False, note=noted.append)
    except StagingError as error:
        error.noted = noted  # type: ignore[attr-defined]
        raise
    assert (job / "in.dat").read_bytes() == CONTENT
    assert os.listdir(job) == ["in.dat"]
    return noted


@pytest.mark.ledger("P0-12")
def test_the_first_place_that_gives_the_file_serves(tmp_path: Path, storage: Storage, second: Storage) -> None:
    (storage.folder / "f").unlink()
    results = bring(tmp_path, web(storage, "se1"), web(second, "se2"), **KNOWN)
    assert results[0].pop("seconds") > 0
    assert results == [
        {
            "file": "lfn:f",
            "name": "in.dat",
            "from": "element",
            "kind": "http",
            "element": "se2",
            "bytes": len(CONTENT),
            "tries": 2,
            "failed": ["se1: the server answered 404"],
        }
    ]


def test_the_size_of_a_file_is_told_wherever_it_came_from(tmp_path: Path) -> None:
    def cached(spec: dict[str, Any], target: str, fetch: object) -> str:
        Path(target).write_bytes(CONTENT)
        return "cache"

    results: list[dict[str, Any]] = []
    spec = {"name": "in.dat", "source": "lfn:f", "file": "lfn:f"}
    stage_in([spec], str(tmp_path), sequential=True, stopped=lambda: False, cache=cached, note=results.append)
    assert results == [{"file": "lfn:f", "name": "in.dat", "from": "cache", "bytes": len(CONTENT)}]


@pytest.mark.ledger("P0-12")
def test_a_replica_that_is_not_what_was_registered_is_passed_over(
    tmp_path: Path, storage: Storage, second: Storage
) -> None:
    storage.failures = [Failure(spoil=True)]
    results = bring(tmp_path, web(storage, "se1"), web(second, "se2"), **KNOWN)
    assert results[0]["element"] == "se2"
    assert results[0]["failed"][0].startswith("se1: its SHA-256 is ")
    assert len(storage.asked) == 1, "one that came in one piece and is wrong is not fetched again"


def test_when_all_fail_the_failure_is_the_one_that_may_pass(tmp_path: Path, storage: Storage, second: Storage) -> None:
    (storage.folder / "f").unlink()
    second.failures = [Failure(status=503)] * 9
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, web(storage, "se1"), web(second, "se2"), transfer={"tries": 2}, **KNOWN)
    assert (failed.value.reason, failed.value.error) == ("transfer", "HTTP 503")
    assert "se1" in str(failed.value)
    assert "404" in str(failed.value)
    assert failed.value.noted == [  # type: ignore[attr-defined]
        {
            "file": "lfn:f",
            "name": "in.dat",
            "failed": ["se1: the server answered 404", "se2: the server answered 503", "se2: the server answered 503"],
        }
    ]


@pytest.mark.ledger("P0-11")
def test_a_transfer_with_another_protocol(tmp_path: Path, storage: Storage) -> None:
    path = storage.folder / "f"
    places = [web(storage, "se1"), {"kind": "file", "path": str(path), "element": "se1"}]
    assert bring(tmp_path, *places, **KNOWN)[0]["kind"] == "http"
    assert bring(tmp_path, *places, transfer={"protocol": "file"}, **KNOWN)[0]["kind"] == "file"


@pytest.mark.ledger("P0-11")
def test_a_transfer_with_another_time_limit(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(delay=0.5)]
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, web(storage), transfer={"timeout": 0.1, "tries": 1})
    assert (failed.value.reason, failed.value.error) == ("transfer", "ETIMEDOUT")
    storage.failures = [Failure(delay=0.5)]
    bring(tmp_path, web(storage), transfer={"timeout": 5, "tries": 1})


@pytest.mark.ledger("P0-11")
@pytest.mark.parametrize("piece", [1, 1 << 14, 1 << 16, 1 << 30])
def test_a_transfer_in_other_pieces(tmp_path: Path, storage: Storage, piece: int) -> None:
    bring(tmp_path, web(storage), transfer={"piece": piece}, **KNOWN)


@pytest.mark.ledger("P0-10")
@pytest.mark.parametrize("reset", [False, True])
def test_a_transfer_that_broke_off_goes_on_where_it_stopped(tmp_path: Path, storage: Storage, reset: bool) -> None:
    storage.failures = [Failure(after=100_000, reset=reset)]
    results = bring(tmp_path, web(storage), **KNOWN)
    resumed = int((storage.ranges()[1] or "bytes=0")[6:])
    # A rough end may take with it what lay unread in the socket; nothing else is fetched twice.
    assert storage.bytes_out == 100_000 + len(CONTENT) - resumed
    assert reset or resumed == 100_000
    assert results[0]["tries"] == 2


def test_one_that_gets_on_each_time_is_not_given_up(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(after=40_000)] * 7
    results = bring(tmp_path, web(storage), transfer={"tries": 2}, **KNOWN)
    assert results[0]["tries"] == 8
    assert storage.bytes_out == len(CONTENT)


def test_without_a_digest_only_the_same_version_is_gone_on_with(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(after=100_000)]
    bring(tmp_path, web(storage))
    mark = storage.asked[1][2]["If-Range"]
    assert mark.startswith('"')
    assert storage.bytes_out == len(CONTENT)


def test_a_file_that_changed_meanwhile_is_fetched_anew(tmp_path: Path, storage: Storage) -> None:
    (storage.folder / "f").write_bytes(CONTENT[::-1])
    storage.failures = [Failure(after=100_000)]
    asked = storage.asked

    class Changing(list[Any]):
        def append(self, value: Any) -> None:
            super().append(value)
            if len(self) == 2:
                (storage.folder / "f").write_bytes(CONTENT)

    storage.asked = Changing(asked)
    bring(tmp_path, web(storage))
    assert storage.bytes_out == 100_000 + len(CONTENT)


def test_a_server_that_promises_nothing_is_asked_from_the_start(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(after=100_000, weak=True), Failure(weak=True)]
    bring(tmp_path, web(storage))
    assert storage.ranges() == ["", ""]


@pytest.mark.ledger("P0-12")
def test_another_replica_goes_on_where_the_first_broke_off(tmp_path: Path, storage: Storage, second: Storage) -> None:
    storage.failures = [Failure(after=100_000), Failure(status=500)]
    results = bring(tmp_path, web(storage, "se1"), web(second, "se2"), transfer={"tries": 1}, **KNOWN)
    assert results[0]["element"] == "se2"
    assert second.ranges() == ["bytes=100000"]
    assert second.bytes_out == len(CONTENT) - 100_000


def test_parts_that_do_not_fit_are_fetched_once_more_in_one_piece(tmp_path: Path, storage: Storage) -> None:
    """A resumed file with a wrong digest says nothing about the source yet."""
    storage.failures = [Failure(after=100_000, spoil=True)]
    bring(tmp_path, web(storage), **KNOWN)
    assert storage.ranges() == ["", "bytes=100000", ""]
    storage.failures = [Failure(after=100_000, spoil=True), Failure(), Failure(spoil=True)]
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, web(storage), **KNOWN)
    assert failed.value.reason == "data-corrupt"


def test_what_an_earlier_process_left_is_gone_on_with(tmp_path: Path, storage: Storage) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "in.dat.staging").write_bytes(CONTENT[:200_000])
    bring(tmp_path, web(storage), **KNOWN)
    assert storage.bytes_out == 100_000
    (tmp_path / "job" / "in.dat.staging").write_bytes(b"something else")
    bring(tmp_path, web(storage), **KNOWN)
    assert storage.ranges()[1:] == ["bytes=14", ""]


@pytest.mark.parametrize(
    ("status", "reason", "tries"),
    [(404, "data-missing", 1), (410, "data-missing", 1), (403, "transfer", 1), (302, "transfer", 1), (500, "transfer", 3), (503, "transfer", 3), (429, "transfer", 3)],
)  # fmt: skip
def test_what_answers_mean(tmp_path: Path, storage: Storage, status: int, reason: str, tries: int) -> None:
    other = {"Location": f"{storage.url}/f"} if status == 302 else {}
    storage.failures = [Failure(status=status, headers=other)] * 9
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, web(storage))
    assert (failed.value.reason, failed.value.error) == (reason, f"HTTP {status}")
    assert len(storage.asked) == tries


def test_a_truncated_body_is_told_as_such(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(after=0)] * 9
    with pytest.raises(StagingError, match=r"interrupted after 0 of 300000 bytes") as failed:
        bring(tmp_path, web(storage))
    assert failed.value.reason == "transfer"


def test_signs_of_an_address_are_never_told(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(status=403)]
    place = {"kind": "s3", "url": f"{storage.url}/f?X-Amz-Signature=secret", "private": True, "element": "s3"}
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, place)
    assert "secret" not in str(failed.value)
    assert "secret" not in str(failed.value.failed)


@pytest.mark.parametrize(
    ("status", "body", "reason", "error", "tries"),
    [
        (403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>", "transfer", "S3 RequestExpired", 1),
        (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", "transfer", "S3 SignatureDoesNotMatch", 1),
        (404, b"<Error><Code>NoSuchKey</Code></Error>", "data-missing", "S3 NoSuchKey", 1),
        (503, b"<Error><Code>SlowDown</Code></Error>", "transfer", "S3 SlowDown", 3),
        (500, b"", "transfer", "HTTP 500", 3),
    ],
)  # fmt: skip
def test_what_an_object_store_says(
    tmp_path: Path, storage: Storage, status: int, body: bytes, reason: str, error: str, tries: int
) -> None:
    storage.failures = [Failure(status=status, body=body)] * 9
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, {"kind": "s3", "url": f"{storage.url}/f", "private": True})
    assert (failed.value.reason, failed.value.error) == (reason, error)
    assert len(storage.asked) == tries


def test_a_place_of_an_unknown_kind_is_passed_over(tmp_path: Path, storage: Storage) -> None:
    results = bring(tmp_path, {"kind": "pigeon", "url": "coo"}, web(storage))
    assert results[0]["failed"] == ["pigeon: this pilot does not support sources of kind 'pigeon'"]


def test_a_private_address_is_not_called_unless_it_is_allowed(tmp_path: Path, storage: Storage) -> None:
    with pytest.raises(StagingError, match="not a public address") as failed:
        bring(tmp_path, {**web(storage), "private": False})
    assert failed.value.reason == "policy"
    assert storage.asked == []


def test_a_full_disk_is_the_failure_whatever_else_could_be_tried(
    tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def full(path: Any, *args: Any, **more: Any) -> int:
        return real("/dev/full", os.O_WRONLY) if str(path).endswith(".staging") else real(path, *args, **more)

    monkeypatch.setattr(os, "open", full)
    monkeypatch.setattr(os, "ftruncate", lambda *_: None)
    monkeypatch.setattr(os, "lseek", lambda *_: None)
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, web(storage), web(storage))
    assert (failed.value.reason, failed.value.error) == ("disk", "ENOSPC")
    assert len(storage.asked) == 1


def test_a_stopped_job_is_not_waited_for(tmp_path: Path, storage: Storage) -> None:
    storage.failures = [Failure(status=503, headers={"Retry-After": "20"})] * 9
    fields = {"name": "in.dat", "source": "lfn:f", "from": [web(storage)]}
    with pytest.raises(StoppedError):
        stage_in([fields], str(tmp_path), sequential=False, stopped=lambda: len(storage.asked) > 0)
    assert len(storage.asked) == 1
