"""Teaches this site a cause: drafts a pattern from what the failures of an error share, tests it on past failures and on the packs' examples, and adds
it to the site's own pack.

A pattern is tried on every stored error, up to a bound: failures of one error have the same message, so a few of each error are read and the others are counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from forestay.domain.exceptions.causes.cause import SURE, Cause, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern
from forestay.domain.exceptions.causes.fingerprint import deciding_line
from forestay.domain.exceptions.causes.taught_pattern import (
    WEIGHTS,
    TaughtPack,
    TaughtPattern,
    drafted,
    is_taught,
    last_shared_line,
    matches,
    taught_pattern,
    telling_line,
)
from forestay.domain.exceptions.evidence.evidence import Evidence, PreparedEvidence
from forestay.domain.exceptions.evidence.linear_regex import problem_of
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    FINDING,
    IncidentStatus,
    as_judged,
    context_part,
    deciding_pattern,
)
from forestay.formats.rules.evidence_json import read_evidence
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.classifiers import CauseClassifiers
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.services.exceptions.detect.taught_patterns import TaughtPatterns
from forestay.services.exceptions.failure_review import FailureReview, Reviewed

MEMBERS = 20
"""The most failures of the error from which a pattern is drafted and which it must match, newest first."""
MOST_LOOKED_AT = 20_000
"""The most past failures, newest first, whose errors are checked."""
OF_EACH = 2
"""The number of failures that are read of each error."""
PAGE = 1_000
BUNCH = 100
SHOWN = 20
"""The most errors and examples that are listed."""
FEW_WORDS = "its failures share no line with enough words; give a pattern, or write a rule for its exit code"


class TeachRequest(NamedTuple):
    """A person's definition of the cause of an error."""

    fingerprint: str
    cause: Cause
    retry: RetryNeed | None
    """None: the usual retry need of this cause."""
    expression: str
    """Empty: drafted."""
    by: str
    why: str


class AnsweredError(NamedTuple):
    """Another error to which the pattern would assign its cause."""

    fingerprint: str
    title: str
    cause: str
    """Its present cause."""
    failures: int


@dataclass(slots=True)
class PatternTrial:
    """The effects of a pattern, and the objections to it."""

    pattern: TaughtPattern | None
    """None: no pattern could be drafted."""
    instead_of: tuple[str, ...] = ()
    """The site's patterns that it replaces: they classified these failures until now."""
    members: int = 0
    """The number of failures of the error on which it was tried."""
    problems: list[str] = field(default_factory=list)
    """The reasons why it cannot be written."""
    unknown: list[AnsweredError] = field(default_factory=list)
    """Errors of unknown cause that it would match too."""
    wrong: list[AnsweredError] = field(default_factory=list)
    """Errors whose cause it would change: false positives, unless their cause is wrong."""
    examples: list[str] = field(default_factory=list)
    """Patterns of packs whose examples would get another cause."""
    errors: int = 0
    """The number of errors on which it was tried."""
    failures: int = 0
    """The number of failures with these errors."""
    whole: bool = True
    """Whether these are all stored failures; else they are the newest."""

    @property
    def harmful(self) -> bool:
        """Whether it would change the cause of an error that has one."""
        return bool(self.wrong or self.examples)


class Taught(NamedTuple):
    """A trial and its result."""

    trial: PatternTrial
    version: int
    """The version of the site's pack; 0: nothing was written."""
    reviewed: Reviewed | None = None


@dataclass(slots=True)
class ErrorTeacher:
    """The service."""

    incidents: IncidentStore
    classifiers: CauseClassifiers
    taught: TaughtPatterns
    review: FailureReview
    clock: Clock

    async def teach(self, tenant: str, trial: PatternTrial, pattern: TaughtPattern) -> Taught:
        """Write the pattern of a trial, and classify waiting failures again. `Conflict` if there are too many patterns."""
        pack = await self.taught.teach(tenant, pattern, instead_of=trial.instead_of)
        return Taught(trial, pack.version, await self.review.by_pattern(tenant, pattern, pages=1))

    async def try_out(self, tenant: str, request: TeachRequest) -> PatternTrial:
        """Try a pattern without writing it; `NotFound` if the tenant has no failure of this error."""
        query = IncidentQuery(tenant, fingerprint=request.fingerprint)
        page = await self.incidents.find(query, limit=MEMBERS)
        known = await self.incidents.get_incidents([stored.status.id for stored in page.statuses])
        members = [
            as_judged(known[stored.status.id], stored.status) for stored in page.statuses if stored.status.id in known
        ]
        if not members:
            raise NotFound("there is no such error")
        title = page.statuses[0].status.title
        evidences = [read_evidence(context_part(incident, "evidence")) for incident in members]
        prepared = [PreparedEvidence(evidence) for evidence in evidences]
        lines = [
            line
            for incident, seen in zip(members, prepared, strict=True)
            if (
                line := telling_line(
                    deciding_line(context_part(incident, FINDING), context_part(incident, "evidence")), seen
                )
            )
        ] or [line for line in [last_shared_line(prepared)] if line]
        expression = request.expression or drafted(lines)
        if not expression:
            return PatternTrial(None, members=len(members), problems=[FEW_WORDS])
        if problem := problem_of(expression):
            return PatternTrial(None, members=len(members), problems=[f"the pattern cannot be used: {problem}"])
        if matches(expression, ""):
            words = "the pattern cannot be used: it matches an empty line, and so every line"
            return PatternTrial(None, members=len(members), problems=[words])
        pattern = taught_pattern(
            request.fingerprint,
            title,
            expression,
            request.cause,
            request.retry,
            [line for line in lines if matches(expression, line)],
            by=request.by,
            at=self.clock.now(),
            why=request.why,
        )
        pack = await self.taught.pack(tenant)
        decided = tuple(sorted({name for incident in members if is_taught(name := deciding_pattern(incident))}))
        trial = PatternTrial(pattern, decided, len(members))
        packs = await self.classifiers.classifier(None)
        after = self._weighed(trial, packs, pack, evidences)
        if not trial.problems:
            before = packs.with_patterns(known.pattern() for known in pack.patterns)
            await self._try_on_corrected(trial, pack, after)
            await self._try_on_past(tenant, trial, before, after)
            await self._try_on_examples(trial, before, after)
        return trial

    def _weighed(
        self, trial: PatternTrial, packs: Classifier, pack: TaughtPack, evidences: Sequence[Evidence]
    ) -> Classifier:
        """The classifier with the pattern, whose weight is just enough to classify the failures it was made from."""
        assert trial.pattern is not None  # noqa: S101 - the caller looked
        gone = {trial.pattern.name, *trial.instead_of}
        others = [known.pattern() for known in pack.patterns if known.name not in gone]
        missed = sum(1 for evidence in evidences if trial.pattern.pattern().match(PreparedEvidence(evidence)) is None)
        if missed:
            trial.problems.append(f"it does not match {missed} of {len(evidences)} failures of this error")
        classifier = packs
        for weight in WEIGHTS:
            trial.pattern = replace(trial.pattern, weight=weight)
            classifier = packs.with_patterns([*others, trial.pattern.pattern()])
            findings = [classifier.classify(evidence) for evidence in evidences]
            if all(finding.cause is trial.pattern.cause and finding.confidence >= SURE for finding in findings):
                return classifier
        other = next((finding for finding in findings if finding.cause is not trial.pattern.cause), None)
        if not missed and other is not None:
            by = f"{other.cause} by {other.pattern}" if other.pattern else str(other.cause)
            trial.problems.append(f"some of its failures would still be {by}: their logs end with another error")
        return classifier

    async def _try_on_corrected(self, trial: PatternTrial, pack: TaughtPack, after: Classifier) -> None:
        """Check the causes that people assigned to single failures: a pattern must not change them."""
        assert trial.pattern is not None  # noqa: S101 - the caller looked
        cause = trial.pattern.cause
        others = {known.incident: known for known in pack.corrected if known.cause is not cause}
        incidents = await self.incidents.get_incidents(sorted(others)) if others else {}
        for name, incident in incidents.items():
            finding = after.classify(read_evidence(context_part(incident, "evidence")))
            if finding.pattern == trial.pattern.name:
                known = others[name]
                words = f"it would call incident {name} {cause}, and {known.by} said that this one is {known.cause}"
                trial.problems.append(words)

    async def _try_on_past(self, tenant: str, trial: PatternTrial, before: Classifier, after: Classifier) -> None:
        assert trial.pattern is not None  # noqa: S101 - the caller looked
        pattern, own = trial.pattern.pattern(), trial.pattern
        counts: dict[str, int] = {}
        chosen: dict[str, list[IncidentStatus]] = {}
        async for status in self._past(tenant, trial):
            name = status.fingerprint
            counts[name] = counts.get(name, 0) + 1
            # The same message of another task is the same error.
            if name != own.fingerprint and status.title.lower() != own.title.lower() and counts[name] <= OF_EACH:
                chosen.setdefault(name, []).append(status)
        trial.errors = len(counts)
        hit: dict[str, AnsweredError] = {}
        statuses = [status for some in chosen.values() for status in some]
        for start in range(0, len(statuses), BUNCH):
            some = statuses[start : start + BUNCH]
            incidents = await self.incidents.get_incidents([status.id for status in some])
            for status in some:
                if status.id not in incidents or status.fingerprint in hit:
                    continue
                evidence = read_evidence(context_part(incidents[status.id], "evidence"))
                if await _changes(evidence, pattern, before, after):
                    hit[status.fingerprint] = AnsweredError(
                        status.fingerprint, status.title, status.cause, counts[status.fingerprint]
                    )
        for error in sorted(hit.values(), key=lambda found: (-found.failures, found.fingerprint)):
            if error.cause == Cause.UNKNOWN:
                trial.unknown.append(error)
            elif error.cause != own.cause:
                trial.wrong.append(error)

    async def _past(self, tenant: str, trial: PatternTrial) -> AsyncIterator[IncidentStatus]:
        query, cursor = IncidentQuery(tenant, kind=ExceptionType.ABORT.value), None
        while trial.failures < MOST_LOOKED_AT:
            page = await self.incidents.find(query, limit=PAGE, cursor=cursor)
            trial.failures += len(page.statuses)
            for stored in page.statuses:
                yield stored.status
            cursor = page.cursor
            if cursor is None:
                return
        trial.whole = False

    async def _try_on_examples(self, trial: PatternTrial, before: Classifier, after: Classifier) -> None:
        assert trial.pattern is not None  # noqa: S101 - the caller looked
        pattern = trial.pattern.pattern()
        changed: dict[str, None] = {}
        for example in await self.classifiers.pack_examples():
            if example.pattern.cause not in (pattern.cause, Cause.UNKNOWN) and await _changes(
                example.evidence, pattern, before, after
            ):
                changed[example.pattern.name] = None
        trial.examples += changed


async def _changes(evidence: Evidence, pattern: FailurePattern, before: Classifier, after: Classifier) -> bool:
    """Whether the pattern changes the cause of this evidence."""
    await asyncio.sleep(0)  # a log may take a millisecond to read, and others wait for this process
    if pattern.match(PreparedEvidence(evidence)) is None:
        return False
    return after.classify(evidence).cause is pattern.cause and before.classify(evidence).cause is not pattern.cause
