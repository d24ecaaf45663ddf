"""What is said about a job that goes to task servers: which task counts, and when a server is asked before anything is sent."""

from __future__ import annotations

import pytest

from forestay.domain.jobs.claim import NOT_STARTED, PILOT_STOPPED
from forestay.domain.jobs.conversation import (
    SILENT,
    Exchange,
    chosen,
    exchange_from,
    surely_new,
    tags_of,
    token_named,
)
from forestay.domain.jobs.job_document import (
    DOWNSTREAM,
    AttemptOutcome,
    AttemptResult,
    JobDocument,
    Token,
    downstream_of,
    lane_named,
    lane_of,
    search_fields,
)
from forestay.domain.jobs.resources import Resources
from forestay.domain.pilots.pilot import Pilot, carries


def job(
    *, attempt: int = 1, generation: int = 0, last: AttemptResult | None = None, downstream: str = ""
) -> JobDocument:
    extra = {DOWNSTREAM: downstream} if downstream else {}
    return JobDocument(
        "j", "t", "s", "n", "ada", 0, 0, Resources(), attempt=attempt, generation=generation, last=last, extra=extra
    )


def ended(attempt: int, reason: str, generation: int = 0) -> AttemptResult:
    return AttemptResult(Token(generation, attempt), "c", AttemptOutcome.FAILURE, reason=reason)


@pytest.mark.parametrize(
    ("document", "new"),
    [
        (job(), True),
        (job(generation=1), False),
        (job(attempt=2), False),
        (job(attempt=2, last=ended(1, "downstream-error")), True),
        (job(attempt=2, last=ended(1, NOT_STARTED)), True),
        (job(attempt=2, last=ended(1, SILENT)), False),
        (job(attempt=2, last=ended(1, PILOT_STOPPED)), False),
        (job(attempt=3, last=ended(1, "exit")), False),
    ],
    ids=["first", "made anew", "claim lost", "ended", "given back", "silent", "stopped", "lost since"],
)
def test_a_server_is_asked_unless_nothing_can_be_left(document: JobDocument, new: bool) -> None:
    assert surely_new(document) is new


def test_one_that_ended_well_counts_before_one_that_runs_and_the_older_before_the_younger() -> None:
    first, second = Token(0, 1), Token(0, 2)
    assert chosen([]) == (None, [])
    assert chosen([("b", False, second), ("a", False, first)]) == ("a", ["b"])
    assert chosen([("a", False, first), ("b", True, second)]) == ("b", ["a"])
    assert chosen([("a", True, first), ("b", True, second)]) == ("a", []), "what is over is not cancelled"


def test_an_exchange_and_its_tags_are_read_back() -> None:
    exchange = Exchange("j", Token(1, 3), "funnel", "x1", adopted=True, registered=True)
    assert exchange_from("j", exchange.as_plain()) == exchange
    assert token_named(tags_of(job(attempt=3, generation=1))["forestay.attempt"]) == Token(1, 3)
    assert token_named("nonsense") is None
    assert token_named("1.x") is None


def test_jobs_for_a_downstream_wait_apart_from_those_for_pilots() -> None:
    meant = job(downstream="funnel")
    assert downstream_of(meant) == "funnel"
    assert lane_of(meant).tenant != lane_of(job()).tenant
    assert lane_named(str(search_fields(meant)["lane"])) == lane_of(meant)


def test_who_may_carry_what() -> None:
    def at(site: str) -> Pilot:
        return Pilot("p", "t", "h", site, 1, Resources(), 60, 0)

    assert carries(at("cluster"), "")
    assert not carries(at("cluster"), "funnel")
    assert carries(at("tes:funnel"), "funnel")
    assert carries(at("tes:funnel"), "any")
    assert not carries(at("tes:funnel"), "other")
    assert not carries(at("tes:funnel"), "")
