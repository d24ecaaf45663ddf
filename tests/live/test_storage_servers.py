"""Files to and from storage that really runs: S3 with real signatures, XRootD by ``xrdcp`` and by HTTP; and what each says when it fails."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import S3SigV4QueryAuth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from tests.small_disk import small_disk

from forestay_pilot.process.payload import ClaimedJob, read_claim
from forestay_pilot.staging.outputs import OutputFailedError, OutputManifest
from forestay_pilot.staging.stage_out import OutputStorage, store_outputs
from forestay_pilot.staging.staging import StagingError, stage_in

pytestmark = pytest.mark.live

CONTENT = random.Random(5).randbytes(3_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
SERVERS = str(Path(__file__).resolve().parents[2] / "scripts" / "servers")


def address(name: str) -> str:
    text = os.environ.get(name)
    if not text:
        pytest.skip(f"{name} is not set: scripts/servers start {'s3' if 'S3' in name else 'xrootd'}")
    return text.rstrip("/")


@pytest.fixture
def own() -> str:
    """A folder on the servers that is this test's alone."""
    return f"t-{uuid.uuid4().hex[:12]}"


def signed(method: str, path: str, *, seconds: int = 300, secret: str | None = None) -> str:
    bucket = f"{address('FORESTAY_TEST_S3')}/{os.environ['FORESTAY_TEST_S3_BUCKET']}"
    keys = Credentials(os.environ["FORESTAY_TEST_S3_KEY"], secret or os.environ["FORESTAY_TEST_S3_SECRET"])
    request = AWSRequest(method=method, url=f"{bucket}/{path}")
    S3SigV4QueryAuth(keys, "s3", "us-east-1", expires=seconds).add_auth(request)
    return str(request.url)


def bring(folder: Path, place: dict[str, Any], **fields: Any) -> dict[str, Any]:
    noted: list[dict[str, Any]] = []
    data = {"name": "in.dat", "source": "lfn:f", "from": [{"private": True, "element": "se", **place}], **fields}
    stage_in([data], str(folder), sequential=True, stopped=lambda: False, note=noted.append)
    assert (folder / "in.dat").read_bytes() == CONTENT
    return noted[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs" / "c"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "out.dat").write_bytes(CONTENT)
    (folder / "log.txt").write_bytes(b"done\n")
    return folder


def job(own: str) -> ClaimedJob:
    named = {"job": "j-1", "generation": 1, "attempt": 1, "claim": "c0ffee00c0ffee00", "tenant": own}
    return read_claim({**named, "specification": {}})


def store(folder: Path, own: str, **fields: Any) -> OutputManifest:
    """The outputs of a job to an element, as its claim would name it."""
    element = OutputStorage.read({"element": "se", "prefix": "", "private": True, **fields})

    def sign(_job: ClaimedJob, files: list[dict[str, Any]]) -> dict[str, str]:
        return {file["path"]: signed("PUT", f"{own}/j-1/1.1.c0ffee00/{file['path']}") for file in files}

    patterns = ["sub", "log.txt"]
    return store_outputs(job(own), str(folder), patterns, element, sign=sign, stopped=lambda: False)


def put(tmp_path: Path, place: dict[str, Any]) -> None:
    """A file on a server, without our own transports."""
    (tmp_path / "put").write_bytes(CONTENT)
    if place["kind"] == "root":
        command = ["xrdcp", "-s", "-p", str(tmp_path / "put"), place["url"]]
    else:
        command = ["curl", "-sf", "-T", str(tmp_path / "put"), place["url"]]
    subprocess.run(command, check=True, timeout=60)


# S3


@pytest.mark.ledger("P0-08")
def test_outputs_go_to_s3_and_come_back(tmp_path: Path, folder: Path, own: str) -> None:
    address("FORESTAY_TEST_S3")
    manifest = store(folder, own, kind="s3")
    path, size, sha256 = manifest.listing[1]
    assert (path, size, sha256) == ("sub/out.dat", len(CONTENT), SHA256)
    fields = bring(tmp_path, {"kind": "s3", "url": signed("GET", f"{own}/j-1/1.1.c0ffee00/{path}")}, sha256=SHA256)
    assert (fields["kind"], fields["element"], fields["bytes"]) == ("s3", "se", len(CONTENT))
    assert manifest.path == f"element:se/{own}/j-1/1.1.c0ffee00/manifest.json"
    assert not list(tmp_path.rglob("manifest-*"))


def test_a_part_of_an_object_is_enough(tmp_path: Path, own: str) -> None:
    put(tmp_path, {"kind": "s3", "url": signed("PUT", f"{own}/f")})
    (tmp_path / "in.dat.staging").write_bytes(CONTENT[:2_000_000])
    bring(tmp_path, {"kind": "s3", "url": signed("GET", f"{own}/f")}, sha256=SHA256)
    (tmp_path / "in.dat.staging").write_bytes(b"?" * 2_000_000)
    fields = bring(tmp_path, {"kind": "s3", "url": signed("GET", f"{own}/f")}, sha256=SHA256)
    assert fields["tries"] == 2, "a wrong beginning is noticed, and the whole is fetched"


@pytest.mark.ledger("P0-09")
@pytest.mark.parametrize(
    ("seconds", "secret", "path", "reason", "error"),
    [
        (300, None, "nothing", "data-missing", "S3 NoSuchKey"),
        (300, "not the secret", "f", "transfer", "S3 SignatureDoesNotMatch"),
        (1, None, "f", "transfer", "S3 RequestExpired"),
    ],
)
def test_what_s3_says(
    tmp_path: Path, own: str, seconds: int, secret: str | None, path: str, reason: str, error: str
) -> None:
    put(tmp_path, {"kind": "s3", "url": signed("PUT", f"{own}/f")})
    url = signed("GET", f"{own}/{path}", seconds=seconds, secret=secret)
    if seconds == 1:
        time.sleep(2.1)  # until the signature is too old, by the server's clock
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, {"kind": "s3", "url": url})
    assert (failed.value.reason, failed.value.error) == (reason, error)
    assert "X-Amz" not in str(failed.value)


# XRootD


@pytest.mark.ledger("P0-08")
@pytest.mark.parametrize("kind", ["root", "http"])
def test_outputs_go_to_xrootd_and_come_back(tmp_path: Path, folder: Path, own: str, kind: str) -> None:
    base = address("FORESTAY_TEST_XROOTD" if kind == "root" else "FORESTAY_TEST_XROOTD_HTTP")
    base += "/" if kind == "root" else ""
    manifest = store(folder, own, kind=kind, base=base)
    assert manifest.listing[1] == ("sub/out.dat", len(CONTENT), SHA256)
    place = {"kind": kind, "url": f"{base}/{own}/j-1/1.1.c0ffee00/sub/out.dat"}
    fields = bring(tmp_path, place, sha256=SHA256, bytes=len(CONTENT))
    assert (fields["kind"], fields["bytes"], fields["tries"]) == (kind, len(CONTENT), 1)
    again = store(folder, own, kind=kind, base=base)
    assert again.sha256 == manifest.sha256, "a repeat is harmless"


@pytest.mark.parametrize("kind", ["root", "http"])
def test_what_came_before_is_not_fetched_again(tmp_path: Path, own: str, kind: str) -> None:
    root = address("FORESTAY_TEST_XROOTD") + "/"
    put(tmp_path, {"kind": "root", "url": f"{root}/{own}/f"})
    base = root if kind == "root" else address("FORESTAY_TEST_XROOTD_HTTP")
    (tmp_path / "in.dat.staging").write_bytes(CONTENT[:2_000_000])
    fields = bring(tmp_path, {"kind": kind, "url": f"{base}/{own}/f"}, sha256=SHA256, bytes=len(CONTENT))
    assert fields["tries"] == 1
    (tmp_path / "in.dat.staging").write_bytes(b"?" * 2_000_000)
    assert bring(tmp_path, {"kind": kind, "url": f"{base}/{own}/f"}, sha256=SHA256)["tries"] == 2


@pytest.mark.ledger("P0-09")
def test_what_xrootd_says(tmp_path: Path, own: str) -> None:
    base = address("FORESTAY_TEST_XROOTD") + "/"
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, {"kind": "root", "url": f"{base}/{own}/nothing"})
    assert (failed.value.reason, failed.value.error) == ("data-missing", "XRootD 3011")
    put(tmp_path, {"kind": "root", "url": f"{base}/{own}/f"})
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, {"kind": "root", "url": f"{base}/{own}/f"}, sha256="0" * 64)
    assert failed.value.reason == "data-corrupt"
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, {"kind": "root", "url": "root://127.0.0.1:9//f"}, transfer={"timeout": 1, "tries": 1})
    assert (failed.value.reason, failed.value.error) == ("transfer", "XRootD connection")


def test_a_host_without_xrdcp_says_so(tmp_path: Path, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = address("FORESTAY_TEST_XROOTD")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StagingError, match="xrdcp cannot be run here") as failed:
        bring(tmp_path, {"kind": "root", "url": f"{base}//{own}/f"})
    assert failed.value.error == "no xrdcp"


# Full disks


@pytest.fixture
def full_soon(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    with small_disk(place, 1):
        yield place


@pytest.mark.ledger("P0-09")
@pytest.mark.parametrize("kind", ["root", "http", "s3", "file"])
def test_a_full_disk_is_told_as_one(tmp_path: Path, own: str, full_soon: Path, kind: str) -> None:
    root = address("FORESTAY_TEST_XROOTD") + "/"
    place: dict[str, Any] = {"kind": "root", "url": f"{root}/{own}/f"}
    if kind == "s3":
        put(tmp_path, {"kind": "s3", "url": signed("PUT", f"{own}/f")})
        place = {"kind": "s3", "url": signed("GET", f"{own}/f")}
    else:
        put(tmp_path, place)
    if kind == "http":
        place = {"kind": "http", "url": f"{address('FORESTAY_TEST_XROOTD_HTTP')}/{own}/f"}
    if kind == "file":
        place = {"kind": "file", "path": str(tmp_path / "put")}
    with pytest.raises(StagingError) as failed:
        bring(full_soon, place)
    assert (failed.value.reason, failed.value.error) == ("disk", "ENOSPC")


# Servers that die


@pytest.fixture
def own_xrootd() -> Iterator[dict[str, str]]:
    """An XRootD server that this test may kill."""
    address("FORESTAY_TEST_XROOTD")
    state = Path(
        tempfile.mkdtemp(prefix="forestay-servers-")
    )  # a test's own folder is closed to the user that servers run as
    state.chmod(0o755)
    environment = {**os.environ, "FORESTAY_SERVERS_DIR": str(state)}
    subprocess.run(
        [SERVERS, "start", "xrootd", "--port", str(random.randint(20000, 30000))], env=environment, check=True
    )
    yield environment
    subprocess.run([SERVERS, "stop"], env=environment, check=True)
    shutil.rmtree(state)


def test_a_server_that_is_not_there(tmp_path: Path, folder: Path, own_xrootd: dict[str, str]) -> None:
    port = (Path(own_xrootd["FORESTAY_SERVERS_DIR"]) / "xrootd" / "port").read_text().strip()
    base = f"root://127.0.0.1:{port}//"
    put(tmp_path, {"kind": "root", "url": f"{base}/f"})
    subprocess.run([SERVERS, "kill9", "xrootd"], env=own_xrootd, check=True)
    with pytest.raises(StagingError) as failed:
        bring(tmp_path, {"kind": "root", "url": f"{base}/f"}, transfer={"timeout": 1, "tries": 1})
    assert (failed.value.reason, failed.value.error) == ("transfer", "XRootD connection")
    with pytest.raises(OutputFailedError) as lost:
        store(folder, "t", kind="root", base=base, transfer={"timeout": 1, "tries": 1})
    assert lost.value.error == "XRootD connection"


@pytest.mark.parametrize("kind", ["root", "http"])
def test_a_server_that_is_killed_in_the_middle(tmp_path: Path, own_xrootd: dict[str, str], kind: str) -> None:
    """When it is back the transfer goes on, and what had come is not fetched again."""
    state = Path(own_xrootd["FORESTAY_SERVERS_DIR"]) / "xrootd"
    size = 300_000_000
    (state / "data" / "f").touch()
    os.truncate(state / "data" / "f", size)
    digest = hashlib.sha256(bytes(size)).hexdigest()
    port = (state / "port").read_text().strip()
    place = {"kind": kind, "url": f"{'root' if kind == 'root' else 'http'}://127.0.0.1:{port}//f", "private": True}
    fields = {
        "name": "f",
        "source": "lfn:f",
        "sha256": digest,
        "bytes": size,
        "from": [place],
        "transfer": {"tries": 30, "timeout": 5},
    }
    results: list[dict[str, Any]] = []
    draft = tmp_path / "f.staging"
    with ThreadPoolExecutor(1) as pool:
        brought = pool.submit(
            stage_in, [fields], str(tmp_path), sequential=True, stopped=lambda: False, note=results.append
        )
        end = time.monotonic() + 60
        while not draft.exists() or draft.stat().st_size < 4 << 20:
            assert time.monotonic() < end
            assert not brought.done()
            time.sleep(0.001)
        subprocess.run([SERVERS, "kill9", "xrootd"], env=own_xrootd, check=True)
        killed_at = draft.stat().st_size if draft.exists() else size
        subprocess.run([SERVERS, "launch", "xrootd"], env=own_xrootd, check=True)
        brought.result(120)
    assert (tmp_path / "f").stat().st_size == size
    if killed_at < size:
        assert results[0]["tries"] > 1
        assert results[0]["failed"]
