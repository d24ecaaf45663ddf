"""Why an attempt failed is found once, however many ask."""

from __future__ import annotations

from dataclasses import replace

from tests.contract.examples import job

from forestay.adapters.system.patterns import Patterns
from forestay.domain.exceptions.causes.cause import Cause, CauseFinding
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern
from forestay.domain.exceptions.causes.taught_pattern import taught_pattern
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


async def test_what_was_taught_is_asked_beside_the_packs_and_an_end_is_judged_anew_by_it() -> None:
    taught = taught_pattern("1-a", "t", "it broke", Cause.NODE, None, [], by="olga", at=1)

    class Site:
        known: tuple[FailurePattern, ...] = ()

        async def patterns(self, tenant: str) -> tuple[FailurePattern, ...]:
            return self.known if tenant == ours.tenant else ()

    last = AttemptResult(Token(1, 1), "c", AttemptOutcome.FAILURE, "exit", exit_code=3)
    ours = replace(job("one"), last=last)
    theirs = replace(ours, id="two", tenant="other")
    site = Site()
    patterns = Patterns(_classifier=Classifier(()), site=site)
    evidence = evidence_of(ours, "error: it broke")
    assert (await patterns.find_cause(ours, evidence)).cause is Cause.UNKNOWN
    site.known = (taught.pattern(),)
    assert (await patterns.find_cause(ours, evidence)).pattern == "taught-1-a"
    assert (await patterns.find_cause(theirs, evidence)).cause is Cause.UNKNOWN
    assert await patterns.classifier(ours.tenant) is await patterns.classifier(ours.tenant)
    assert await patterns.classifier(None) is not await patterns.classifier(ours.tenant)
