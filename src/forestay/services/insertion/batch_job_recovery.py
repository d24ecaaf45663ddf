"""Recovers users' own batch jobs that were recorded in the spool: determines why one failed, and requeues it where a rule or a person asks for it.

It vouches in the spool for deciding on jobs that fail, as long as the exception service answers; failed jobs are shown as running only while it does. What may have
been seen to fail is reported and never run again.

What it knows is in the spool, in the batch system and with the exception service. One that is killed and started again reads all three and goes on: a report is
the same event again, and what was done to a job stands on the job itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forestay.domain.sites.batch import BatchId, BatchOutcome, BatchState
from forestay.domain.sites.watched_job import (
    NEVER_STARTS,
    ArrayReading,
    JobDetails,
    JobIdentity,
    JobKind,
    Vouching,
    WatchedJob,
    WatchedJobAction,
    as_asked,
    evidence,
    fate,
    lost_start,
    needed,
    obstacle,
    several,
)
from forestay.ports.clock import Clock
from forestay.ports.errors import Permanent, PortError
from forestay.ports.exceptions.exception_service import ExceptionService, OrderedAction
from forestay.ports.insertion.job_spool import JobSpool
from forestay.ports.sites.batch import BatchReader
from forestay.ports.sites.batch_steering import BatchSteering
from forestay.services.shared.polling import poll_forever

AGAIN = frozenset({"restart", "redo", "resubmit"})
GIVE_UP = frozenset({"force-fail", "remove"})
A_LOOK = 25
"""Failures that are told in one look; each costs the batch system two questions."""
ELEMENTS = 4 * A_LOOK
"""Failed elements of an array that are taken up in one look."""
AT_ONCE = 20
"""Incidents that the service tells of at a time."""
COMMANDS = 60.0
"""Seconds that the commands of an act may take; for so long a job stays hidden after the last moment at which it may be decided on."""
NEWS = 2.0
"""Seconds for which a decision is waited for while jobs wait for it to end."""
QUESTIONS = 0.5
"""Seconds between two looks whether a job asks something."""
ANSWER = 15.0
"""Seconds after which an exception service that does not answer is away."""
NEXTFLOW = "nf-"
"""How the names of its jobs begin."""
ONLY_LOOKS = "the watcher of this job is in observe-only mode"


class _Reported(NamedTuple):
    job: WatchedJob
    instance: str
    run: str
    incident: str
    nodes: tuple[str, ...]
    """Where it failed."""


@dataclass(slots=True)
class BatchJobRecovery:
    """The service. `run` for ever, or `look` once."""

    spool: JobSpool
    reader: BatchReader
    steering: BatchSteering
    service: ExceptionService
    clock: Clock
    acting: bool = False
    """Otherwise it looks on: failures are recorded and explained, and nothing is touched."""
    hold: bool = False
    """A failure that no rule answers waits for a person; otherwise it is the user's, as without us."""
    every: float = 2.0
    """Seconds between looks."""
    override_no_requeue: bool = False
    """Also recover jobs that may not be requeued. Otherwise only those whose users allow it."""
    decide_within: float = 120.0
    """Seconds after a job's end in which it must be decided on; from then on it is shown as failed, and stays so."""
    troubled: Callable[[str], None] = lambda _text: None
    looks: int = 0
    """Looks that came to an end."""
    rejected: int = 0
    """Words that were left by another user than the job's."""
    _foreign: set[WatchedJob] = field(default_factory=set)
    """Those of them that could not be removed."""
    _identities: dict[BatchId, JobIdentity] = field(default_factory=dict)
    _answered: dict[BatchId, set[tuple[BatchId, int | None]]] = field(default_factory=dict)
    """Jobs whose failure others wait for, with those and their users."""
    _reported: dict[BatchId, _Reported] = field(default_factory=dict)
    _allowed: set[BatchId] = field(default_factory=set)
    _lost: dict[BatchId, int] = field(default_factory=dict)
    """Which start of a job was told as lost with its node."""
    _stuck: dict[BatchId, float] = field(default_factory=dict)
    """Since when jobs are seen that will never start, in seconds since 1970."""
    _asked: set[tuple[BatchId, int]] = field(default_factory=set)
    """Questions of jobs that were seen, with the number of the start."""
    _act: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by an act on a job, so that the job is not shown as failed in the middle of it."""

    async def run(self) -> None:
        """Look for ever. When it ends, jobs are shown as their batch system tells them."""
        try:
            await self.vouch()
            async with asyncio.TaskGroup() as tasks:
                # Apart from the looks, which a batch system that does not answer holds up for minutes.
                tasks.create_task(poll_forever(self.vouch, self.every, self.troubled))
                tasks.create_task(poll_forever(self._look_when_due, 0, self.troubled))
        finally:
            self.spool.vouch(0)

    async def _look_when_due(self) -> None:
        """Look, then wait until the next time, or until a job asks something."""
        try:
            await self.look()
        finally:
            clock, left = asyncio.get_running_loop().time, self.every
            until = clock() + left
            while (left := until - clock()) > 0:
                await asyncio.sleep(min(QUESTIONS, left))
                if self._new_questions():
                    break

    def _new_questions(self) -> set[tuple[BatchId, int]]:
        owners = {name: known.owner for name, known in self._identities.items() if known.owner is not None}
        questions = self.spool.questions(owners).items()
        return {(name, question.restarts) for name, question in questions} - self._asked

    async def _outcome(self, job: WatchedJob) -> BatchOutcome:
        return (await self._outcomes([job]))[job]

    async def _outcomes(self, jobs: Collection[WatchedJob]) -> dict[WatchedJob, BatchOutcome]:
        """What became of jobs, by the batch system and by what they ask themselves."""
        outcomes = await self.reader.outcome(sorted(job.id for job in jobs))
        # Afterwards: one that asks now was running a moment ago.
        questions = self.spool.questions({job.base: job.owner for job in jobs})
        result: dict[WatchedJob, BatchOutcome] = {}
        for job in sorted(jobs, key=lambda job: job.id):
            question = questions.get(job.id)
            result[job] = outcomes[job.id] if question is None else as_asked(outcomes[job.id], question)
        return result

    async def vouch(self) -> None:
        """Vouch for a while longer if the exception service answers, and no more if it does not."""
        if not self.acting:
            return
        try:
            async with asyncio.timeout(ANSWER):
                await self.service.news((), wait=0)
        except (PortError, TimeoutError) as error:
            async with self._act:
                self.spool.vouch(0)
            self.troubled(f"failed jobs are shown as failed: the Forestay server does not respond: {error}")
        else:
            self.spool.vouch(max(90.0, 10 * self.every), hide=self.decide_within + COMMANDS)

    async def look(self) -> None:
        """Once: hear of jobs, report what failed, do what is ordered."""
        words = await self._owned(self.spool.jobs())
        for gone in [name for name, known in self._reported.items() if known.job.base not in words]:
            del self._reported[gone]
        for gone in [name for name in self._lost if name.partition("_")[0] not in words]:
            del self._lost[gone]
        self._allowed &= words.keys()
        arrays = {name: word for name, word in words.items() if self._identities[name].kind is JobKind.ARRAY}
        readings = await self._elements(arrays)
        jobs = {name: word for name, word in words.items() if name not in arrays}
        questions = self.spool.questions({name: word.owner for name, word in words.items()})
        self._asked = {(name, question.restarts) for name, question in questions.items()}
        for name, array in arrays.items():
            asking = {element for element in questions if element.partition("_")[0] == name}
            jobs |= self._undecided(array, readings.get(name), asking)
        outcomes = await self._outcomes(jobs.values())
        await self._judge(outcomes)
        await self._allow([array for name, array in arrays.items() if name in readings and readings[name].active])
        await self._obey(jobs)
        await self._end({array: readings[name] for name, array in arrays.items() if name in readings})
        stuck = {array.id for array in arrays.values() if array.id in readings and readings[array.id].stuck}
        stuck |= {job.id for job, outcome in outcomes.items() if outcome.reason == NEVER_STARTS}
        await self._leave({name: word for name, word in words.items() if name in stuck}, words)
        self.looks += 1

    async def _leave(self, stuck: Mapping[BatchId, WatchedJob], words: Collection[BatchId]) -> None:
        """No longer watch jobs that will never start, because what they wait for has failed and nobody decides on that any more."""
        now = self.clock.now() / 1000
        self._stuck = {name: self._stuck.get(name, now) for name in stuck}
        long = [name for name, since in self._stuck.items() if now > since + self.decide_within + COMMANDS]
        details = await self.steering.details(long) if long else {}
        for name, known in details.items():
            if known.waits_in_vain_for and not set(known.waits_in_vain_for) & set(words):
                self.troubled(f"job {name} will never start and is no longer watched: what it depends on has failed")
                self.spool.settle(stuck[name])

    # -- arrays: one word, many jobs ---------------------------------------------------------------------------

    async def _elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        try:
            return await self.steering.elements(sorted(arrays)) if arrays else {}
        except PortError as error:
            self.troubled(f"the elements of arrays are looked at later: {error}")
            return {}

    def _undecided(
        self, array: WatchedJob, reading: ArrayReading | None, asking: Collection[BatchId]
    ) -> dict[BatchId, WatchedJob]:
        """The elements that something may have to be done about; each is a job like any other from here on."""
        settled = self.spool.settled(array)
        names = {name for name, known in self._reported.items() if known.job.base == array.id} | set(asking)
        if reading is not None:
            names |= reading.restarted
            names |= set(sorted(reading.failed - settled - names, key=lambda name: (len(name), name))[:ELEMENTS])
        return {name: array._replace(id=name) for name in names - settled}

    async def _end(self, arrays: Mapping[WatchedJob, ArrayReading]) -> None:
        """Settle arrays whose elements have all ended and are decided on."""
        reported = {known.job.base for known in self._reported.values()}
        for array, reading in arrays.items():
            if reading.active or array.id in reported or reading.failed - self.spool.settled(array):
                continue
            try:
                over = await self.steering.is_over(array.id)
                if over and self.acting:
                    await self.steering.release_dependents(array.id, array.owner)
            except PortError as error:
                self.troubled(f"whether array {array.id} has ended is checked later: {error}")
                continue
            if over:
                await self._settle(array, "run-completed")

    async def _owned(self, words: Collection[WatchedJob]) -> dict[BatchId, WatchedJob]:
        """The jobs whose own user left word of them, by what the batch system says. One that it does not know is looked at again
        later; the word of another user is ignored."""
        for word in [word for word in words if word.cluster]:
            self.troubled(f"record {word.file} is ignored: jobs of other clusters are not watched")
            self.spool.discard(word)
        words = [word for word in words if not word.cluster]
        names = {word.id for word in words}
        for gone in self._identities.keys() - names:
            del self._identities[gone]
        new = names - self._identities.keys()
        if new:
            identities = await self.steering.identities(sorted(new))
            self._identities |= {job: identity for job, identity in identities.items() if job in new}
            for other, known in identities.items():
                for answered in known.answers:
                    self._answered.setdefault(answered, set()).add((other, known.owner))
        self._answered = {name: others for name, others in self._answered.items() if name in names}
        jobs: dict[BatchId, WatchedJob] = {}
        for word in words:
            identity = self._identities.get(word.id)
            if identity is None or identity.owner is None:
                continue
            if identity.owner == word.owner:
                jobs.setdefault(word.id, word)
            elif word not in self._foreign:
                self._foreign.add(word)
                self.rejected += 1
                self.troubled(
                    f"record {word.file} of user {word.owner} is ignored: job {word.id} belongs to user {identity.owner}"
                )
                self.spool.discard(word)
        self._foreign &= set(words)
        return jobs

    async def _why_not(self, job: WatchedJob, verb: str) -> str:
        """Why nothing is done to a job now, although it is ordered; empty if it may be acted on."""
        why_not = several(job.id, self._identities[job.base].kind)
        if why_not or verb in GIVE_UP:
            return why_not
        outcome = await self._outcome(job)
        details = (await self.steering.details([job.id])).get(job.id)
        why_not = self._obstacle(job, outcome, details)
        answers = [other for other, owner in self._answered.get(job.base, ()) if owner == job.owner]
        ends = fate(outcome) is WatchedJobAction.FAILED and details is not None and not details.running
        if not why_not and answers and ends:
            return f"job {answers[0]} runs because job {job.id} failed (afternotok), so job {job.id} is not run again"
        return why_not

    def _obstacle(self, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None) -> str:
        kind = self._identities[job.base].kind
        why_not = obstacle(job, kind, outcome, details, self._vouching(), self.clock.now() / 1000)
        if why_not or details is None or details.waiting or fate(outcome) is not WatchedJobAction.FAILED:
            return why_not
        if details.name.startswith(NEXTFLOW) and self.spool.told_nextflow(job):
            return f"Nextflow has read the exit code of job {job.id} and does not wait for it any more"
        return ""

    def _vouching(self) -> Vouching:
        return Vouching(self.spool.vouched(), self.decide_within)

    # -- what became of them -----------------------------------------------------------------------------------

    async def _judge(self, outcomes: Mapping[WatchedJob, BatchOutcome]) -> None:
        failed: dict[WatchedJob, BatchOutcome] = {}
        going: list[WatchedJob] = []
        for job, outcome in outcomes.items():
            match fate(outcome):
                case WatchedJobAction.GOING:
                    going.append(job)
                    lost = lost_start(outcome)
                    if lost is not None and self._lost.get(job.id, -1) < lost.restarts:
                        failed[job] = lost
                case WatchedJobAction.DONE:
                    await self._settle(job, "run-completed")
                case WatchedJobAction.FAILED if job.id not in self._reported:
                    failed[job] = outcome
                case WatchedJobAction.FAILED if self.acting and self._vouching().is_late(
                    outcome, self.clock.now() / 1000
                ):
                    self.troubled(f"job {job.id} got no decision in time and is shown as failed")
                    await self._settle(job, "run-failed")
                case _:
                    pass
        await self._allow(going)
        if failed:
            # The others at the next look: a storm does not keep us from what else there is to do. First those that wait to end, then those that have waited
            # longest, for there is a time within which each must be decided on.
            waits = sorted(
                failed, key=lambda job: ((job.id, failed[job].restarts) not in self._asked, failed[job].ended or 0)
            )
            failed = {job: failed[job] for job in waits[:A_LOOK]}
            details = await self.steering.details([job.id for job in failed])
            for job, outcome in failed.items():
                known = details.get(job.id)
                if self._is_recovered(job, outcome, known):
                    continue
                try:
                    await self._report(job, outcome, known)
                except PortError as error:  # one that cannot be told holds up no other
                    self.troubled(f"the failure of job {job.id} is not reported yet: {error}")

    def _is_recovered(self, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None) -> bool:
        """Whether a start that was lost is one that we had run again ourselves, before we were started anew."""
        recovered = (
            _queued_again(outcome, details) and job.id not in self._lost and details is not None and bool(details.mark)
        )
        if recovered:
            self._lost[job.id] = outcome.restarts
        return recovered

    async def _allow(self, going: Collection[WatchedJob]) -> None:
        """Lift ``--no-requeue`` where user or site wants it. Slurm then may also requeue the job by itself, when it is preempted for
        example; but it lets nobody lift it after the job's end."""
        new = [
            job.id
            for job in going
            if (self.override_no_requeue or job.allow_requeue)
            and job.id == job.base
            and job.id not in self._allowed
            and self._identities[job.id].kind is not JobKind.HETEROGENEOUS
        ]
        if not self.acting or not new:
            return
        try:
            await self.steering.allow_again(new)
        except Permanent as error:
            self.troubled(f"one of the new jobs could not be run again if it failed: {error}")
        except PortError as error:
            self.troubled(f"whether new jobs may be run again is checked later: {error}")
            return
        self._allowed.update(new)

    async def _report(self, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None) -> None:
        peak = await self.steering.peak_memory(job.id)
        logs = details.logs if details is not None else ()
        name = details.name if details is not None else "job"
        if name.startswith(NEXTFLOW):
            logs = (*logs, *self.spool.element_logs(job))
        tails = [self.spool.tail(path, job.owner) for path in logs]
        record = self.spool.record(job, outcome.restarts)
        instance = f"{name.replace(':', '-')}:{job.id}"
        why_not = self._obstacle(job, outcome, details)
        known = evidence(outcome, details, "\n".join(filter(None, tails)), peak, record)
        if why_not and self.acting:
            known["not_recovered"] = why_not
        event: dict[str, Any] = {
            "id": f"{job.own_key}:{outcome.restarts}:{outcome.ended or 0}",
            "run": job.key,
            "kind": "task-aborted",
            "task": instance,
            "flow": name,
            "owner": details.user if details is not None else str(job.owner),
            "attempt": outcome.restarts + 1,
            "evidence": known,
            "otherwise": "hold" if self.hold and self.acting and not why_not else "go-on",
        }
        (answer,) = await self.service.report([event])
        self._lost[job.id] = outcome.restarts
        if answer.incident is not None:
            self._reported[job.id] = _Reported(job, instance, answer.run, answer.incident, outcome.nodes)
        elif not _queued_again(outcome, details):
            await self._settle(job, "run-failed")

    async def _settle(self, job: WatchedJob, kind: str) -> None:
        """Nothing more comes of it. A run of its own that was ever reported ends with it."""
        known = self._reported.pop(job.id, None)
        if known is not None and not job.run:
            await self.service.report([{"id": f"{job.own_key}:{kind}", "run": job.key, "kind": kind}])
        self.spool.settle(job)

    # -- what is wanted ----------------------------------------------------------------------------------------

    async def _obey(self, jobs: Mapping[BatchId, WatchedJob]) -> None:
        waiting = {reported.incident: reported for reported in self._reported.values()}
        if not waiting:
            return
        names = list(waiting)
        for start in range(0, len(names), AT_ONCE):
            news = await self.service.news(names[start : start + AT_ONCE], wait=NEWS if self._asked else 0)
            for order in news.orders:
                await self._do(order, jobs.get(order.instance.rpartition(":")[2]))
            await self._close(news.closed, waiting)

    async def _close(self, closed: Collection[str], waiting: Mapping[str, _Reported]) -> None:
        """What is decided is settled: shown as it is, or let go on."""
        for incident in closed:
            known = waiting.get(incident)
            # It may have been ordered to run again just now, or meanwhile by a person.
            if known is not None and known.job.id in self._reported:
                outcome = await self._outcome(known.job)
                if fate(outcome) is WatchedJobAction.FAILED:
                    await self._settle(known.job, "run-failed")
                elif fate(outcome) is WatchedJobAction.GOING:
                    del self._reported[known.job.id]

    async def _do(self, order: OrderedAction, job: WatchedJob | None) -> None:
        """Carry an order out and answer it. What the batch system does not answer now is tried at the next look."""
        if job is None:
            refusal = "the job has ended and is no longer watched"
        elif not self.acting:
            refusal = ONLY_LOOKS
        else:
            try:
                async with self._act:
                    refusal = await self._why_not(job, order.verb)
                    if not refusal:
                        await self._carry_out(order, job)
                        job = None  # it goes on, or is settled
            except Permanent as error:
                refusal, job = str(error), None
            except PortError as error:
                self.troubled(f"command {order.id} waits: {error}")
                return
        await self.service.answer(order.id, "refused" if refusal else "done", refusal)
        if job is not None:
            await self._settle(job, "run-failed")  # that is all that comes of it

    async def _carry_out(self, order: OrderedAction, job: WatchedJob) -> None:
        """`Permanent`: the batch system refuses, or cannot do such a thing."""
        if order.verb in AGAIN:
            await self._again(order, job)
        elif order.verb == "suspend":
            await self.steering.hold(job.id, failed_start=self._failed_start(job))
        elif order.verb == "continue":
            await self.steering.again(job.id, needs={}, wait=0, mark=order.id)
        elif order.verb in GIVE_UP:
            await self._give_up(job)
        else:
            raise Permanent(f"a batch system cannot {order.verb}")

    async def _again(self, order: OrderedAction, job: WatchedJob) -> None:
        details = (await self.steering.details([job.id])).get(job.id)
        if details is None:
            raise Permanent("the batch system no longer has the job; submit it again")
        known = self._reported.get(job.id)
        # With other needs it is the job that is recovered; as it was, it is where it ran.
        avoid = known.nodes if known is not None and not order.needs else ()
        needs = needed(details, order.needs)
        start = self._failed_start(job)
        if start is not None and not self.spool.take(job, start):
            raise Permanent(f"job {job.id} has waited too long for a decision and has ended")
        await self.steering.again(job.id, needs=needs, wait=order.wait, mark=order.id, avoid=avoid, failed_start=start)
        self.spool.forget_questions(job)
        # Its next failure is another one.
        self._reported.pop(job.id, None)

    def _failed_start(self, job: WatchedJob) -> int | None:
        """Which start of a job has failed by its own word, though it may still run."""
        question = self.spool.questions({job.base: job.owner}).get(job.id)
        return None if question is None else question.restarts

    async def _give_up(self, job: WatchedJob) -> None:
        outcome = await self._outcome(job)
        if fate(outcome) is WatchedJobAction.GOING:
            await self.steering.cancel(job.id)
        await self._settle(job, "run-failed")


def _queued_again(outcome: BatchOutcome, details: JobDetails | None) -> bool:
    """Whether the batch system has the job in its queue already: what is told is a start of it that was lost."""
    return outcome.state is BatchState.LOST and details is not None and details.waiting
