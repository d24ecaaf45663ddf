"""The page on what is stored is current, and its figures are those of the plan."""

from __future__ import annotations

import json

import pytest
from scripts.retention_page import PLACE, RESULTS, gigabytes, measured, page

from forestay.client.api.sizing import MEASURED
from forestay.services.operations.stored_kinds import KINDS


def test_the_page_is_current() -> None:
    assert PLACE.read_text(encoding="utf-8") == "\n".join(page(measured())), "run: just retention"


def test_what_was_measured_is_in_the_table() -> None:
    names = {f"{row.place}: {row.kind}" for row in KINDS}
    for figures in measured().values():
        assert figures["kinds"].keys() <= names


@pytest.mark.parametrize(
    ("cost", "kinds"),
    [
        (MEASURED.bytes_job, ("jobs: job", "records: log")),
        (MEASURED.bytes_evidence, ("records: evidence",)),
        (
            MEASURED.bytes_incident,
            ("incidents: incident", "incidents: status", "incidents: decision", "incidents: step"),
        ),
        (MEASURED.bytes_key, ("records: key",)),
        (MEASURED.bytes_specification, ("specifications: specification",)),
    ],
)
def test_a_plan_counts_with_what_was_measured(cost: int, kinds: tuple[str, ...]) -> None:
    figures = json.loads((RESULTS / "retention-opensearch.json").read_text())["figures"]
    assert figures["output"] == 1_000
    found = [figures["kinds"][kind] for kind in kinds]
    # Of an incident there are several documents of some kinds.
    each = sum(known["bytes_each"] * round(known["each_job"] / found[0]["each_job"]) for known in found)
    assert cost == pytest.approx(each, rel=0.1)


def test_large_figures_can_be_read() -> None:
    assert [gigabytes(count) for count in (5e6, 7e9, 1.25e13)] == ["5 MB", "7 GB", "12.5 TB"]
