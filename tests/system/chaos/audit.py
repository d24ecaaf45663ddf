"""The auditor: compares what was accepted, what ran, what is recorded and what is published, and judges.

It is pure: evidence in, verdict out. Nothing of Forestay's own code has a say in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.system.chaos.evidence import Evidence, Job, Line
from tests.system.chaos.faults import Fault
from tests.system.chaos.ledger import Mark

from forestay.domain.jobs.claim import SUSPECTED

FINAL = frozenset({"completed", "failed"})
CLOSING = frozenset({"complete", "failure", "release", "quarantine", "adopt", "keep-completion"})
"""Events by which a story says what became of a claim."""
WINNING = frozenset({"complete", "adopt"})

DIED = "its pilot died"
SILENT = ("its pilot fell silent", "its pilot is silent")
UNKNOWN = ("its pilot does not have the claim", "the pilot's request ended before its response")
BYE = "its pilot deregistered"

SETTLE = 15.0
"""Seconds after a fault of servers or store in which no figure is taken."""
FOR_CLOSING = 10.0
"""Seconds within which a cut may be the reason of a closed channel."""


@dataclass(slots=True)
class Verdict:
    """What was found. Every list names what is wrong; an empty one is good."""

    jobs: int = 0
    lost: list[str] = field(default_factory=list)
    """Accepted, and neither final nor to be had."""
    unfinished: list[str] = field(default_factory=list)
    """To be had, but not final after the quiet time."""
    unnoticed: list[str] = field(default_factory=list)
    """Starts without a durable record, tokens used twice, two published effects."""
    unrecorded: list[str] = field(default_factory=list)
    """Extra runs, or claims, of which the story does not tell the end."""
    unpublished: list[str] = field(default_factory=list)
    """Committed manifests that are missing, wrong, or not the winner's."""
    killed: list[str] = field(default_factory=list)
    """Payloads that were killed, and not by us."""
    killed_in_outage: list[str] = field(default_factory=list)
    false_orphans: list[str] = field(default_factory=list)
    key_duplicates: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """Wrong final states, faults that no payload had, processes that crashed."""
    starts: int = 0
    extra_attempts: int = 0
    through_outage: int = 0
    """Payloads that ran when an outage of the store began and told their end."""
    adopted: int = 0
    superseded: int = 0
    releases: dict[str, int] = field(default_factory=dict)
    deaths: list[float] = field(default_factory=list)
    """Seconds from the kill of a pilot to the release of each of its claims, its server alive."""
    paced_deaths: list[float] = field(default_factory=list)
    """The same, each divided by how many times slower than the reference the machine was meanwhile."""
    silences: list[float] = field(default_factory=list)
    """The same for pilots that fell silent, in leases."""

    def complaints(self, *, death_limit: float, silence_limit: float | None) -> list[str]:
        """Everything that makes the campaign fail, in words."""
        lines: list[str] = []
        for name in (
            "lost", "unfinished", "unnoticed", "unrecorded", "unpublished", "killed", "killed_in_outage",
            "false_orphans", "key_duplicates", "odd",
        ):  # fmt: skip
            runs: list[str] = getattr(self, name)
            if runs:
                lines.append(f"{name.replace('_', ' ')}: {len(runs)}, such as {'; '.join(runs[:3])}")
        if not self.deaths:
            lines.append("no death of a pilot could be measured")
        elif max(self.paced_deaths) > death_limit:
            lines.append(f"a dead pilot's job was claimable only after {max(self.paced_deaths):.2f} s of the reference")
        if silence_limit is not None:
            if not self.silences:
                lines.append("no silence of a pilot could be measured")
            elif max(self.silences) > silence_limit:
                lines.append(f"a silent pilot's job was claimable only after {max(self.silences):.2f} leases")
        if not self.through_outage:
            lines.append("no payload ran when an outage began, so nothing is shown")
        return lines


@dataclass(slots=True)
class Life:
    """One incarnation of a pilot, as the campaign treated it."""

    killed: float | None = None
    stops: list[Fault] = field(default_factory=list)


@dataclass(slots=True)
class Audit:
    """One judgement."""

    evidence: Evidence
    lease: float
    verdict: Verdict = field(default_factory=Verdict)
    lives: dict[str, Life] = field(default_factory=lambda: defaultdict(Life))
    cuts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """By pilot's id."""
    started: dict[str, Mark] = field(default_factory=dict)
    """By claim."""

    def judge(self) -> Verdict:
        evidence, verdict = self.evidence, self.verdict
        verdict.jobs = len(evidence.accepted)
        self._read_faults()
        marks = self._read_marks()
        self._keys()
        for accepted in evidence.accepted:
            job = evidence.jobs.get(accepted.id)
            if job is None:
                verdict.lost.append(f"{accepted.id} is not in the store")
                continue
            self._job(job, accepted.kind, marks.get(job.id, []))
        strangers = marks.keys() - {accepted.id for accepted in evidence.accepted}
        verdict.unnoticed += [f"{job} ran and was never accepted" for job in sorted(strangers)]
        self._crashes()
        return verdict

    # -- reading -----------------------------------------------------------------------------------------------

    def _read_faults(self) -> None:
        for fault in self.evidence.faults:
            if fault.what == "pilot" and fault.kind == "kill":
                self.lives[fault.who].killed = fault.began
            elif fault.what == "pilot" and fault.kind == "stop":
                self.lives[fault.who].stops.append(fault)
        for at, pilot in self.evidence.cuts:
            self.cuts[pilot].append(at)

    def _read_marks(self) -> Mapping[str, list[Mark]]:
        by_job: dict[str, list[Mark]] = defaultdict(list)
        for mark in self.evidence.marks:
            by_job[mark.job].append(mark)
            if mark.word == "START":
                self.verdict.starts += 1
                if mark.claim in self.started:
                    self.verdict.unnoticed.append(f"{mark.job} was started twice for claim {mark.claim}")
                self.started[mark.claim] = mark
        return by_job

    def _store_faults(self) -> Iterable[Fault]:
        return (fault for fault in self.evidence.faults if fault.what in ("store", "node"))

    def _outages(self) -> list[Fault]:
        """When the store was away altogether, and when answers were not just lost now and then."""
        return [fault for fault in self.evidence.faults if fault.what == "store" and fault.kind in ("stop", "down")]

    def _calm(self, first: float, last: float, *, reconcilers: bool = False) -> bool:
        """No server, store (or reconciler) was hurt then, nor shortly before."""
        hurt = {"server", "store", "node"} | ({"reconciler"} if reconcilers else set())
        return not any(fault.what in hurt and fault.touches(first - SETTLE, last) for fault in self.evidence.faults)

    # -- jobs --------------------------------------------------------------------------------------------------

    def _keys(self) -> None:
        """A key stands for exactly the jobs it was accepted with."""
        verdict = self.verdict
        verdict.key_duplicates += self.evidence.misuse
        counts = Counter(job.batch for job in self.evidence.jobs.values())
        for key, count in self.evidence.batches.items():
            if counts[key] != count:
                verdict.key_duplicates.append(f"{key} has {counts[key]} jobs in the store, {count} were accepted")
        verdict.key_duplicates += [
            f"jobs of {key} that nobody submitted" for key in counts.keys() - self.evidence.batches
        ]
        ids = [accepted.id for accepted in self.evidence.accepted]
        if len(set(ids)) != len(ids):
            verdict.key_duplicates.append("one id was given to two jobs")

    def _job(self, job: Job, kind: str, marks: Sequence[Mark]) -> None:
        verdict = self.verdict
        if job.state not in FINAL:
            (verdict.unfinished if job.state == "available" else verdict.lost).append(f"{job.id} is {job.state}")
        elif job.state != ("failed" if kind == "broken" else "completed"):
            verdict.odd.append(f"{job.id}, a {kind} job, is {job.state}")
        claims = {line.claim: line for line in job.story if line.event == "claim"}
        closings: dict[str, list[Line]] = defaultdict(list)
        for line in job.story:
            if line.event in CLOSING:
                closings[line.claim].append(line)
        self._story(job, claims)
        self._runs(job, claims, closings, marks)
        self._publication(job, closings, marks)
        self._releases(claims, [line for lines in closings.values() for line in lines])
        self._faults(job, kind, closings, marks)

    def _story(self, job: Job, claims: Mapping[str, Line]) -> None:
        """The story has no gap, the servers tell it whole, and every claim in it has an attempt of its own."""
        results = self.evidence.stories.get(job.id)
        if results is not None and list(results) != [(line.event, line.attempt) for line in job.story]:
            self.verdict.unrecorded.append(f"{job.id}: the servers tell its story otherwise")
        if [line.rev for line in job.story] != list(range(1, len(job.story) + 1)):
            self.verdict.unrecorded.append(f"{job.id}: its story has gaps")
        attempts = [line.attempt for line in claims.values()]
        if any(later <= earlier for earlier, later in pairwise(attempts)):
            self.verdict.unnoticed.append(f"{job.id}: an attempt was used twice: {attempts}")

    def _runs(
        self, job: Job, claims: Mapping[str, Line], closings: Mapping[str, Sequence[Line]], marks: Sequence[Mark]
    ) -> None:
        """Every start stands in the story, and the story says what became of it."""
        verdict = self.verdict
        for mark in marks:
            if mark.word != "START":
                continue
            line = claims.get(mark.claim)
            if line is None or line.attempt != mark.attempt:
                verdict.unnoticed.append(f"{job.id} ran for claim {mark.claim}, which its story does not have")
                continue
            events = {closing.event for closing in closings.get(mark.claim, ())}
            if not events & (WINNING | {"failure", "keep-completion"}):
                verdict.extra_attempts += 1
            if not events and job.state in FINAL:
                verdict.unrecorded.append(f"{job.id}: nothing says what became of claim {mark.claim}")
            verdict.superseded += mark.claim in job.kept and "failure" not in events
        for claim in claims.keys() - closings.keys():
            if job.state in FINAL:
                verdict.unrecorded.append(f"{job.id}: claim {claim} has no end in the story")
        self._kills(job, claims, marks)

    def _kills(self, job: Job, claims: Mapping[str, Line], marks: Sequence[Mark]) -> None:
        """A payload that was cut off died with a pilot that we killed."""
        ends = {mark.claim: mark for mark in marks if mark.word in ("END", "CUT")}
        for mark in marks:
            if mark.word == "START":
                end = ends.get(mark.claim)
                for outage in self._outages():
                    if mark.at < outage.began and end is not None and end.at > outage.began and end.word == "END":
                        self.verdict.through_outage += 1
        for claim, end in ends.items():
            if end.word != "CUT":
                continue
            line = claims.get(claim)
            killed = self.lives[line.host].killed if line is not None and line.host in self.lives else None
            if killed is not None and killed - 1.0 <= end.at <= killed + 15.0:
                continue
            in_outage = any(outage.touches(end.at - self.lease, end.at) for outage in self._outages())
            (self.verdict.killed_in_outage if in_outage else self.verdict.killed).append(
                f"{job.id} attempt {end.attempt} on {line.host if line else 'nobody'}"
            )

    def _publication(self, job: Job, closings: Mapping[str, Sequence[Line]], marks: Sequence[Mark]) -> None:
        """One winner, whose manifest is on disk and names the winner's own files."""
        verdict = self.verdict
        won = [line for lines in closings.values() for line in lines if line.event in WINNING]
        verdict.adopted += sum(line.event == "adopt" for line in won)
        if len(won) > 1:
            verdict.unnoticed.append(f"{job.id} was committed {len(won)} times")
        if job.state != "completed":
            if job.winner is not None or won:
                verdict.unnoticed.append(f"{job.id} is {job.state} and has a winner")
            return
        winner = job.winner
        if winner is None or len(won) != 1 or won[0].claim != winner.claim:
            verdict.unpublished.append(f"{job.id}: its winner is not the one its story names")
            return
        if not any(mark.word == "EFFECT" and mark.claim == winner.claim for mark in marks):
            verdict.unpublished.append(f"{job.id}: the winner never had an effect")
        if winner.manifest is None:
            verdict.unpublished.append(f"{job.id}: the winner has no manifest")
            return
        published = self.evidence.published[winner.manifest["path"]]
        results = [published.document.get(name) for name in ("job", "generation", "attempt", "claim")]
        if published.wrong:
            verdict.unpublished.append(f"{job.id}: {published.wrong}")
        elif published.sha256 != winner.manifest["sha256"]:
            verdict.unpublished.append(f"{job.id}: the manifest is not the one that was committed")
        elif results != [job.id, winner.generation, winner.attempt, winner.claim]:
            verdict.unpublished.append(f"{job.id}: the manifest belongs to another run: {results}")

    def _faults(self, job: Job, kind: str, closings: Mapping[str, Sequence[Line]], marks: Sequence[Mark]) -> None:
        """Only payloads that fail on purpose fail."""
        details = {mark.claim: mark.detail for mark in marks if mark.word == "END"}
        for claim, lines in closings.items():
            for line in lines:
                if line.event == "quarantine" and SUSPECTED not in line.note:
                    self.verdict.odd.append(f"{job.id} was set aside: {line.note}")
                if line.event != "failure":
                    continue
                if (
                    not line.note.startswith("exit 7;")
                    or details.get(claim) != "7"
                    or kind not in ("failing", "broken")
                ):
                    self.verdict.odd.append(f"{job.id}, a {kind} job, had the fault {line.note}")

    # -- releases ----------------------------------------------------------------------------------------------

    def _releases(self, claims: Mapping[str, Line], closings: Iterable[Line]) -> None:
        for line in closings:
            if line.event not in ("release", "quarantine"):
                continue
            granted = claims.get(line.claim)
            if granted is None:
                self.verdict.unrecorded.append(f"a release of claim {line.claim}, which the story does not have")
                continue
            reason = line.note.partition(";")[0]
            self.verdict.releases[reason] = self.verdict.releases.get(reason, 0) + 1
            life = self.lives.get(granted.host, Life())
            at = line.at / 1000
            if not self._deserved(reason, granted, life, at):
                self.verdict.false_orphans.append(f"{granted.host} attempt {granted.attempt}: {reason}")
            self._measure(reason, granted, life, at)

    def _deserved(self, reason: str, granted: Line, life: Life, at: float) -> bool:
        """Whether we gave a reason to take that claim away."""
        dead = life.killed is not None and life.killed <= at
        if reason.startswith(DIED):
            cut = any(0 <= at - moment <= FOR_CLOSING for moment in self.cuts.get(granted.by, ()))
            return dead or cut
        if reason.startswith(SILENT):
            # Its lease is counted from its last heartbeat, which was up to a third of the lease before it was stopped.
            return dead or any(
                stop.began + self.lease * 2 / 3 <= at for stop in life.stops if stop.ended - stop.began > self.lease
            )
        if reason.startswith(BYE):
            return True
        # The claim never reached its pilot: then nothing was started for it.
        return granted.claim not in self.started

    def _measure(self, reason: str, granted: Line, life: Life, at: float) -> None:
        taken = granted.at / 1000
        if life.killed is not None and taken < life.killed <= at and self._calm(life.killed, life.killed + 2.0):
            stopped = any(stop.touches(life.killed - 1.0, life.killed) for stop in life.stops)
            if not stopped:
                self.verdict.deaths.append(at - life.killed)
                self.verdict.paced_deaths.append((at - life.killed) / self._slowness(life.killed, at))
        for stop in life.stops if reason.startswith(SILENT) else ():
            long = stop.ended - stop.began > self.lease
            if long and taken < stop.began <= at <= stop.ended + 5.0 and self._calm(stop.began, at, reconcilers=True):
                self.verdict.silences.append((at - stop.began) / self.lease)

    def _slowness(self, first: float, last: float) -> float:
        """The slowest that the machine was in that time, give or take a second; never less than the reference."""
        return max([1.0, *(times for at, times in self.evidence.slowness if first - 1 <= at <= last + 1)])

    def _crashes(self) -> None:
        """A server or reconciler may refuse to start while the store is away; anything else that ends by itself is a bug."""
        for fault in self.evidence.faults:
            if fault.kind != "crash":
                continue
            away = any(store_fault.touches(fault.began - SETTLE, fault.began) for store_fault in self._store_faults())
            if fault.what == "pilot" or not away:
                self.verdict.odd.append(f"{fault.who} ended by itself: {fault.detail}")
