"""The file of the second classifier."""

from __future__ import annotations

import pytest

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.wording import BUCKETS, SAFE, SUREST, UNSURE, WordingModel
from forestay.formats.rules.pack_folder import shipped
from forestay.formats.rules.wording_file import FILE, FOLDER, read_model, shipped_wording, write_model

MODEL = WordingModel(
    (Cause.DISK, Cause.CODE), bytes(range(256)) * (BUCKETS // 128), (0.25, 0.5), (-1.0, 1.0), ((0.0, 0.5),), "abc"
)


def test_a_model_is_read_as_it_was_written() -> None:
    content = write_model(MODEL)
    read = read_model(content)
    assert write_model(read) == content
    assert (read.causes, read.scales, read.offsets, read.steps, read.trained_on) == (
        MODEL.causes, MODEL.scales, MODEL.offsets, MODEL.steps, "abc",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "Expecting value"),
        (b"no JSON\n", "Expecting value"),
        (b'{"version":99,"buckets":32768}\n', "version 99"),
        (write_model(MODEL)[:-1], "65536 bytes, not 65535"),
    ],
    ids=["empty", "another file", "another version", "cut"],
)
def test_what_is_no_model_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_model(content)


def test_the_shipped_model_is_small_and_its_confidences_rise() -> None:
    assert len((shipped() / FOLDER / FILE).read_bytes()) <= 1_000_000
    confidences = [confidence for _, confidence in shipped_wording().steps]
    assert confidences == sorted(set(confidences))
    assert confidences[-1] <= SUREST
    assert all(confidence <= UNSURE or confidence >= SAFE for confidence in confidences)
