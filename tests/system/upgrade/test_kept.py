"""What an earlier release kept is read, and written back as it was; what it was told to do is still taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forestay.apps.config.settings import Settings
from forestay.domain.jobs.job_document import WRITER
from forestay.formats.jobs.job_json import job_from_json, job_to_json, specification_from_json, specification_to_json

RELEASES = sorted(Path(__file__).parent.glob("*.json"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.stem)
def kept(request: pytest.FixtureRequest) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(request.param.read_text())
    return read


def test_there_is_one() -> None:
    assert RELEASES


def test_its_documents_are_read_and_written_back_as_they_were(kept: dict[str, Any]) -> None:
    assert len(kept["documents"]) == 7
    for document in kept["documents"]:
        assert json.loads(json.dumps(job_to_json(job_from_json(document)))) == document
        assert job_from_json(document).min_writer <= WRITER
    specification = kept["specification"]
    assert json.loads(json.dumps(specification_to_json(specification_from_json(specification)))) == specification


def test_a_field_of_a_later_release_survives(kept: dict[str, Any]) -> None:
    for document in kept["documents"]:
        later = document | {"of_a_later_release": {"kept": True}}
        assert json.loads(json.dumps(job_to_json(job_from_json(later)))) == later


def test_its_settings_are_taken_with_the_values_that_they_had(kept: dict[str, Any]) -> None:
    """A setting is not renamed or removed without a release in which both names work."""
    read = Settings.model_validate(kept["settings"])
    assert json.loads(read.model_dump_json()).items() >= kept["settings"].items()
