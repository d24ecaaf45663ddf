"""Outputs that go to a storage element: the manifest last, transfers tried again without the payload, failures in the storage's own words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.storage_server import Failure, Storage, serving

from forestay_pilot.process.payload import ClaimedJob, read_claim
from forestay_pilot.staging.outputs import OutputFailedError, OutputMissingError
from forestay_pilot.staging.stage_out import OutputStorage, store_outputs
from forestay_pilot.staging.transfer import StagingError, StoppedError

WHERE = "outputs/t1/j-1/1.2.c0ffee00"


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    (tmp_path / "se").mkdir()
    with serving(tmp_path / "se") as storage:
        yield storage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "c"
    (folder / "deep").mkdir(parents=True)
    (folder / "a b.txt").write_bytes(b"first")
    (folder / "deep" / "x.dat").write_bytes(b"x" * 200_000)
    return folder


def job() -> ClaimedJob:
    named = {"job": "j-1", "generation": 1, "attempt": 2, "claim": "c0ffee00c0ffee00", "tenant": "t1"}
    return read_claim({**named, "specification": {}})


def no_sign(_job: ClaimedJob, _files: list[dict[str, Any]]) -> dict[str, str]:
    raise AssertionError("nothing is to be signed")


def element(storage: Storage, kind: str = "http", **transfer: Any) -> OutputStorage:
    base = f"{storage.url}/outputs"
    fields = {"element": "se1", "kind": kind, "base": base, "prefix": "outputs", "private": True, "transfer": transfer}
    return OutputStorage.read(fields)


def store(folder: Path, where: OutputStorage, patterns: tuple[str, ...] = ("a b.txt", "deep"), **more: Any) -> Any:
    fields = {"sign": no_sign, "stopped": lambda: False, **more}
    return store_outputs(job(), str(folder), list(patterns), where, **fields)


def puts(storage: Storage) -> list[str]:
    return [path.split("?")[0] for command, path, _ in storage.asked if command == "PUT"]


def check(storage: Storage, manifest: Any) -> None:
    content = (storage.folder / WHERE / "manifest.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == manifest.sha256
    assert manifest.path == f"element:se1/{WHERE}/manifest.json"
    assert (manifest.files, manifest.bytes) == (2, 200_005)
    for file in json.loads(content)["files"]:
        stored = (storage.folder / WHERE / file["path"].replace(" ", "%20")).read_bytes()
        assert (len(stored), hashlib.sha256(stored).hexdigest()) == (file["bytes"], file["sha256"])


def test_files_and_then_the_manifest(storage: Storage, folder: Path) -> None:
    manifest = store(folder, element(storage))
    check(storage, manifest)
    assert puts(storage)[-1] == f"/{WHERE}/manifest.json"
    assert manifest.listing[1] == ("deep/x.dat", 200_000, hashlib.sha256(b"x" * 200_000).hexdigest())


def test_a_transfer_that_fails_is_tried_again_and_what_went_well_is_not(storage: Storage, folder: Path) -> None:
    storage.failures = [Failure(status=503), Failure(after=1000), Failure(status=500), Failure(after=0, reset=True)]
    check(storage, store(folder, element(storage)))
    # Two files and a manifest went well, once each; the others are the four that failed.
    assert len(puts(storage)) == 3 + 4


def test_the_manifest_is_tried_again_alone(storage: Storage, folder: Path) -> None:
    storage.failures = [Failure(), Failure(), Failure(status=503)]
    check(storage, store(folder, element(storage)))
    assert [path.rpartition("/")[2] for path in puts(storage)][2:] == ["manifest.json"] * 2


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (Failure(status=503), "HTTP 503"),
        (Failure(status=403), "HTTP 403"),
        (Failure(status=507), "HTTP 507"),
        (Failure(after=0, reset=True), "connection ECONNRESET"),
        (Failure(delay=0.6), "connection ETIMEDOUT"),
    ],
)
def test_a_failure_has_the_storages_own_word(storage: Storage, folder: Path, failure: Failure, error: str) -> None:
    storage.failures = [failure] * 9
    with pytest.raises(OutputFailedError) as failed:
        store(folder, element(storage, tries=2, timeout=0.2), ("a b.txt",))
    assert failed.value.error == error
    assert failed.value.file == "a b.txt"
    assert str(failed.value).startswith("output a b.txt could not be transferred to se1: ")
    assert len(puts(storage)) == (1 if error in ("HTTP 403", "HTTP 507") else 2)
    assert not (storage.folder / WHERE / "manifest.json").exists()


def test_nobody_there(storage: Storage, folder: Path) -> None:
    nowhere = OutputStorage.read(
        {"element": "se1", "kind": "http", "base": "http://127.0.0.1:9", "private": True, "transfer": {"tries": 1}}
    )
    with pytest.raises(OutputFailedError) as failed:
        store(folder, nowhere)
    assert failed.value.error == "connection ECONNREFUSED"


def test_a_missing_output_is_no_transfer(storage: Storage, folder: Path) -> None:
    with pytest.raises(OutputMissingError):
        store(folder, element(storage), ("nothing*",))
    assert puts(storage) == []


def test_an_output_must_not_be_called_as_the_manifest(storage: Storage, folder: Path) -> None:
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(OutputFailedError, match="reserved name"):
        store(folder, element(storage), ("manifest.json",))
    assert puts(storage) == []


def test_a_stopped_job_is_not_waited_for(storage: Storage, folder: Path) -> None:
    storage.failures = [Failure(status=503, headers={"Retry-After": "30"})] * 9
    with pytest.raises(StoppedError):
        store(folder, element(storage), stopped=lambda: len(storage.asked) > 0)


def test_a_folder_that_pilots_see(tmp_path: Path, storage: Storage, folder: Path) -> None:
    fields = {"element": "se1", "kind": "file", "base": str(storage.folder / "outputs"), "prefix": "outputs"}
    manifest = store(folder, OutputStorage.read(fields))
    assert manifest.path == f"element:se1/{WHERE}/manifest.json"
    content = (storage.folder / WHERE / "manifest.json").read_bytes()
    assert hashlib.sha256(content).hexdigest() == manifest.sha256
    assert (storage.folder / WHERE / "deep" / "x.dat").stat().st_size == 200_000


class Signing:
    """Addresses as the servers sign them; an old one is refused."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.asked: list[list[str]] = []

    def __call__(self, _job: ClaimedJob, files: list[dict[str, Any]]) -> dict[str, str]:
        self.asked.append([file["path"] for file in files])
        return {file["path"]: f"{self.storage.url}/{WHERE}/{file['path'].replace(' ', '%20')}?signed" for file in files}


def test_signed_addresses_are_asked_for_once(storage: Storage, folder: Path) -> None:
    sign = Signing(storage)
    check(storage, store(folder, element(storage, "s3"), sign=sign))
    assert sign.asked == [["a b.txt", "deep/x.dat", "manifest.json"]]


def test_a_signed_address_that_is_too_old_is_asked_for_again(storage: Storage, folder: Path) -> None:
    sign = Signing(storage)
    body = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    storage.failures = [Failure(), Failure(), Failure(status=403, body=body)]
    check(storage, store(folder, element(storage, "s3"), sign=sign))
    assert sign.asked[1:] == [["manifest.json"]]


def test_servers_that_sign_nothing_now_are_asked_again(storage: Storage, folder: Path) -> None:
    sign, refusals = Signing(storage), [True, False]

    def unsteady(claimed: ClaimedJob, files: list[dict[str, Any]]) -> dict[str, str]:
        if refusals and refusals.pop(0):
            raise StagingError("transfer", "the servers gave no addresses", again=True, error="no addresses")
        return sign(claimed, files)

    check(storage, store(folder, element(storage, "s3"), sign=unsteady))

    def never(claimed: ClaimedJob, files: list[dict[str, Any]]) -> dict[str, str]:
        raise StagingError("transfer", "this pilot no longer holds the claim", error="no addresses")

    with pytest.raises(OutputFailedError) as failed:
        store(folder, element(storage, "s3"), sign=never)
    assert failed.value.error == "no addresses"
