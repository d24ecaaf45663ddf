"""What a server still knows of the jobs of tasks, and for how long."""

from __future__ import annotations

from forestay.adapters.system.clock import SystemClock
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.formats.ga4gh.tes_job import MARK, OUTPUTS, TASK
from forestay.ports.jobs.job_store import Stored, Version
from forestay.services.insertion.tes_tasks import FRESH, MOST, TaskCache

SPEC = Specification("s", "t", "noop", ("true",))


class Hand(SystemClock):
    at = 100.0

    def monotonic(self) -> float:
        return self.at


def stored(job: str = "j", version: int = 1, mark: str = TASK) -> Stored:
    return Stored(new_job(Submission(SPEC, "o", labels={MARK: mark}), job=job, now=1, by="o"), Version(version, 1))


def test_what_was_written_a_moment_ago_is_known_and_later_it_is_not() -> None:
    clock = Hand()
    recall = TaskCache(clock)
    recall.created([stored()])
    clock.at += FRESH
    assert recall.recall("j") is not None
    clock.at += 0.001
    assert recall.recall("j") is None


def test_a_read_that_was_asked_before_a_write_does_not_undo_it() -> None:
    clock = Hand()
    recall = TaskCache(clock)
    asked = clock.at
    clock.at += 0.1
    recall.notice(stored(version=2))
    recall.seen([stored(version=1)], asked)
    known = recall.recall("j")
    assert known is not None
    assert known.version.number == 2
    clock.at += FRESH
    recall.seen([stored(version=3)], clock.at)
    assert recall.recall("j") == stored(version=3)


def test_only_tasks_are_kept_and_not_too_many() -> None:
    recall = TaskCache(Hand())
    recall.notice(stored("bringing", mark=OUTPUTS))
    assert recall.recall("bringing") is None
    recall.created([stored(f"j{n}") for n in range(MOST + 1)])
    assert recall.recall("j0") is None
    assert recall.recall(f"j{MOST}") is not None
