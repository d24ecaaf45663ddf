"""Names that payloads, dead pilots and other jobs may have made lead to a file, or to nothing."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from forestay_pilot.process.regular_file import NotRegularError, open_regular, read_regular
from forestay_pilot.staging.checkpoints import checkpoint_inputs
from forestay_pilot.staging.file_transport import fetch
from forestay_pilot.staging.outputs import OutputFailedError
from forestay_pilot.staging.partial_file import PartialFile
from forestay_pilot.staging.stage_out import _digest
from forestay_pilot.staging.staging import _by_manifest
from forestay_pilot.staging.task_outputs import _committed
from forestay_pilot.staging.task_plan import REPORT, read_report
from forestay_pilot.staging.transfer import FileLocation, StagingError, TransferContext, TransferTerms

TRANSFER = TransferContext(TransferTerms.read(None), lambda: False)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.fixture(params=[_pipe, _endless, _link])
def bad(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / REPORT
    request.param(path)
    return path


def test_only_a_file_is_opened(bad: Path) -> None:
    with pytest.raises(NotRegularError):
        open_regular(str(bad))


def test_a_link_to_a_file_may_be_allowed_and_a_link_to_a_device_never_is(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("text")
    (tmp_path / "link").symlink_to("data")
    (tmp_path / "device").symlink_to("/dev/zero")
    descriptor = open_regular(str(tmp_path / "link"), links=True)
    assert stat.S_ISREG(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    with pytest.raises(NotRegularError):
        open_regular(str(tmp_path / "device"), links=True)


def test_no_more_is_read_than_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("four")
    assert read_regular(str(tmp_path / "data"), 4) == b"four"
    with pytest.raises(NotRegularError, match="more than 3 bytes"):
        read_regular(str(tmp_path / "data"), 3)


def test_the_report_of_a_task_is_read_from_a_file_only(bad: Path) -> None:
    assert read_report(str(bad.parent)) == {}


def test_a_report_that_is_nested_without_end_is_none(tmp_path: Path) -> None:
    (tmp_path / REPORT).write_text("[" * 200_000)
    assert read_report(str(tmp_path)) == {}
    (tmp_path / REPORT).write_text(json.dumps({"logs": []}))
    assert read_report(str(tmp_path)) == {"logs": []}


def test_an_output_is_hashed_from_a_file_only(bad: Path) -> None:
    with pytest.raises(NotRegularError):
        _digest(str(bad), TRANSFER)


READERS: dict[str, tuple[Callable[[dict[str, str]], object], type[Exception]]] = {
    "of an input": (lambda manifest: _by_manifest(manifest, "x"), StagingError),
    "of a checkpoint": (lambda manifest: checkpoint_inputs({"manifest": manifest}), StagingError),
    "of a task": (lambda manifest: _committed(manifest, "/nowhere"), OutputFailedError),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_manifest_is_read_from_a_file_only(bad: Path, reader: str) -> None:
    read, error = READERS[reader]
    with pytest.raises(error, match="cannot be read"):
        read({"path": str(bad), "sha256": "0" * 64})


@pytest.mark.parametrize("make", [_pipe, _endless])
def test_an_input_that_is_no_file_is_missing(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "input")
    with pytest.raises(StagingError) as caught:
        fetch(FileLocation("file", str(tmp_path / "input")), PartialFile(str(tmp_path / "part")), TRANSFER)
    assert (caught.value.reason, caught.value.again) == ("data-missing", False)
