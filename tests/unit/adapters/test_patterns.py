"""Why an attempt failed is found once, however many ask."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.examples import job

from forestay.adapters.system.patterns import Patterns
from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import Evidence, evidence_of
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, Token


class Counting(Classifier):
    """Counts how often it is asked."""

    count = 0

    def classify(self, evidence: Evidence) -> CauseFinding:
        self.count += 1
        return super().classify(evidence)


async def test_an_attempt_is_classified_once_and_another_end_of_the_same_job_anew() -> None:
    classifier = Counting(())
    patterns = Patterns(_classifier=classifier)
    last = AttemptResult(Token(1, 1), "c", AttemptOutcome.FAILURE, "exit", exit_code=3)
    first = replace(job("one"), last=last)
    evidence = evidence_of(first, "it broke")
    found = await patterns.find_cause(first, evidence)
    # The second who asks has the same evidence, made again from the same job.
    assert await patterns.find_cause(first, evidence_of(first, "it broke")) == found
    assert classifier.count == 1
    await patterns.find_cause(first, evidence_of(first, "it broke otherwise"))
    assert classifier.count == 2
    later = replace(first, last=replace(last, claim="d", exit_code=4))
    await patterns.find_cause(later, evidence_of(later, "it broke otherwise"))
    assert classifier.count == 3
