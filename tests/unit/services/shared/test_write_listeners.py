"""Which listeners get a written document: those of its labels, and of the parts that it has."""

from __future__ import annotations

from typing import ClassVar

import pytest

from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument, Token
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.jobs.job_store import Stored
from forestay.services.data.checkpoints import Checkpoints
from forestay.services.jobs.committed_outputs import CommittedOutputs
from forestay.services.scheduling.licence_seats import LicenceSeats
from forestay.services.shared.checked_writer import WriteListener, concerns


class Labelled(WriteListener):
    label: ClassVar[str] = "marked"

    def notice(self, stored: Stored) -> None: ...


class OfAll(WriteListener):
    def notice(self, stored: Stored) -> None: ...


def job(**licences: int) -> JobDocument:
    spec = Specification("s", "t", "noop", ("true",), licences=licences)
    return new_job(Submission(spec, "ann"), job=RandomIds().job(), now=SystemClock().now(), by="ann")


def test_a_listener_without_label_and_part_gets_all() -> None:
    assert concerns(OfAll(), job())


def test_a_label_is_required() -> None:
    assert not concerns(Labelled(), job())
    assert concerns(Labelled(), job().having(labels={"marked": ""}))


@pytest.mark.parametrize("listener", [Checkpoints, CommittedOutputs, LicenceSeats])
def test_a_part_is_a_field_of_the_document_or_of_its_extra_ones(listener: type[WriteListener]) -> None:
    assert hasattr(job(), listener.part) or listener.part in job(matlab=1).extra
    plain = object.__new__(listener)
    assert not concerns(plain, job())


def test_outputs_and_licences_are_heard_of() -> None:
    won = AttemptResult(Token(1, 1), "c", AttemptOutcome.OK)
    assert concerns(object.__new__(CommittedOutputs), job().having(winner=won))
    assert concerns(object.__new__(LicenceSeats), job(matlab=1))
