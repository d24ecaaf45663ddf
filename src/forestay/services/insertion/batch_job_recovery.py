"""Recovers users' own batch jobs that were recorded in the spool: determines why one failed, and requeues it where a rule or a person asks for it.

It declares in the spool that it decides on failed jobs, as long as the exception service answers; failed jobs are shown as running only while it does. A job whose
failure may have been seen is reported and never run again.

Its state is in the spool, in the batch system and in the exception service. After a restart it reads all three and continues: a repeated report is
the same event, and actions on a job are recorded in the job itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from forestay.domain.sites.batch import BatchId, BatchOutcome, BatchState
from forestay.domain.sites.cancel_call import SIGNAL_TAKES, CancelCall
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
"""The most failures reported in one poll; each costs the batch system two queries."""
ELEMENTS = 4 * A_LOOK
"""The most failed elements of an array that are handled in one poll."""
AT_ONCE = 20
"""Incidents whose state the service returns at a time."""
COMMANDS = 60.0
"""Seconds that the commands of an action may take; a job stays hidden for that long after the last moment for a decision."""
NEWS = 2.0
"""Seconds to wait for a decision while jobs need one in order to end."""
QUESTIONS = 0.5
"""Seconds between polls for questions of jobs."""
ANSWER = 15.0
"""Seconds after which an exception service that does not answer counts as down."""
NEXTFLOW = "nf-"
"""The prefix of the names of Nextflow's jobs."""
ONLY_LOOKS = "the watcher of this job is in observe-only mode"


class _Reported(NamedTuple):
    job: WatchedJob
    instance: str
    run: str
    incident: str
    nodes: tuple[str, ...]
    """The nodes on which it failed."""
    details: JobDetails | None


@dataclass(slots=True)
class BatchJobRecovery:
    """The service. `run` polls until cancelled, `look` polls once."""

    spool: JobSpool
    reader: BatchReader
    steering: BatchSteering
    service: ExceptionService
    clock: Clock
    acting: bool = False
    """Otherwise it only observes: failures are recorded and explained, and jobs are not touched."""
    hold: bool = False
    """A failure that no rule answers waits for a person; otherwise the user gets it, as without Forestay."""
    every: float = 2.0
    """Seconds between polls."""
    override_no_requeue: bool = False
    """Also recover jobs that may not be requeued. Otherwise only those whose users allow it."""
    decide_within: float = 120.0
    """Seconds after a job's end within which it must be decided on; after that it is shown as failed, and stays so."""
    troubled: Callable[[str], None] = lambda _text: None
    looks: int = 0
    """The number of completed polls."""
    rejected: int = 0
    """Records written by another user than the job's."""
    _foreign: set[WatchedJob] = field(default_factory=set)
    """Such records that could not be removed."""
    _identities: dict[BatchId, JobIdentity] = field(default_factory=dict)
    _answered: dict[BatchId, set[tuple[BatchId, int | None]]] = field(default_factory=dict)
    """Jobs whose failure other jobs wait for, with those jobs and their users."""
    _reported: dict[BatchId, _Reported] = field(default_factory=dict)
    _allowed: set[BatchId] = field(default_factory=set)
    _lost: dict[BatchId, int] = field(default_factory=dict)
    """The start of a job that was reported as lost with its node."""
    _stuck: dict[BatchId, float] = field(default_factory=dict)
    """Jobs that will never start, with when they were first seen, in seconds since 1970."""
    _asked: set[tuple[BatchId, int]] = field(default_factory=set)
    """Questions of jobs that were read, with the number of the start."""
    _act: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during an action on a job, so that the job is not shown as failed in the middle of it."""

    async def run(self) -> None:
        """Poll until cancelled. When it ends, jobs are shown as their batch system reports them."""
        try:
            await self.vouch()
            async with asyncio.TaskGroup() as tasks:
                # Separate from the polls, which a batch system that does not answer delays for minutes.
                tasks.create_task(poll_forever(self.vouch, self.every, self.troubled))
                tasks.create_task(poll_forever(self._look_when_due, 0, self.troubled))
        finally:
            self.spool.vouch(0)

    async def _look_when_due(self) -> None:
        """Poll, then wait until the next time, or until a job has a question."""
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
        """The outcomes of jobs, from the batch system and from their own questions."""
        outcomes = await self.reader.outcome(sorted(job.id for job in jobs))
        # Read afterwards: a job with a question now was running a moment ago.
        questions = self.spool.questions({job.base: job.owner for job in jobs})
        result: dict[WatchedJob, BatchOutcome] = {}
        for job in sorted(jobs, key=lambda job: job.id):
            question = questions.get(job.id)
            result[job] = outcomes[job.id] if question is None else as_asked(outcomes[job.id], question)
        return result

    async def vouch(self) -> None:
        """Renew the declaration in the spool if the exception service answers, and withdraw it if it does not."""
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
        """Poll once: read records of jobs, report failures, carry out orders."""
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
        """Stop watching jobs that will never start, because a job that they wait for has failed and its failure is no longer decided on."""
        now = self.clock.now() / 1000
        self._stuck = {name: self._stuck.get(name, now) for name in stuck}
        long = [name for name, since in self._stuck.items() if now > since + self.decide_within + COMMANDS]
        details = await self.steering.details(long) if long else {}
        for name, known in details.items():
            if known.waits_in_vain_for and not set(known.waits_in_vain_for) & set(words):
                self.troubled(f"job {name} will never start and is no longer watched: what it depends on has failed")
                self.spool.settle(stuck[name])

    # -- arrays: one record, many jobs -------------------------------------------------------------------------

    async def _elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        try:
            return await self.steering.elements(sorted(arrays)) if arrays else {}
        except PortError as error:
            self.troubled(f"the elements of arrays are looked at later: {error}")
            return {}

    def _undecided(
        self, array: WatchedJob, reading: ArrayReading | None, asking: Collection[BatchId]
    ) -> dict[BatchId, WatchedJob]:
        """The elements that may need an action; each is a job like any other from here on."""
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
        """The jobs recorded by their own user, according to the batch system. A job that it does not know is checked again
        later; the record of another user is ignored."""
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

    def _why_not(self, job: WatchedJob, order: OrderedAction, outcome: BatchOutcome, details: JobDetails | None) -> str:
        """Why an ordered action is not applied to a job now; empty if it may be."""
        why_not = several(job.id, self._identities[job.base].kind)
        if why_not or order.verb in GIVE_UP:
            return why_not
        started_again = outcome.state is BatchState.RUNNING and outcome.restarts > self._lost.get(
            job.id, outcome.restarts
        )
        if order.verb in AGAIN and started_again and details is not None and details.mark != order.id:
            return f"somebody else had job {job.id} run again already"
        why_not = self._obstacle(job, outcome, details)
        answers = [other for other, owner in self._answered.get(job.base, ()) if owner == job.owner]
        ends = fate(outcome) is WatchedJobAction.FAILED and details is not None and not details.running
        if not why_not and self._is_cancelled(job, outcome, details):
            return f"job {job.id} was cancelled after it had failed, so it is not run again"
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

    # -- outcomes ----------------------------------------------------------------------------------------------

    async def _judge(self, outcomes: Mapping[WatchedJob, BatchOutcome]) -> None:
        failed: dict[WatchedJob, BatchOutcome] = {}
        going: list[WatchedJob] = []
        self.spool.forget_cancel_calls(self.clock.now() / 1000 - self.decide_within - COMMANDS - SIGNAL_TAKES)
        some_failed = any(fate(outcome) is WatchedJobAction.FAILED for outcome in outcomes.values())
        calls = self.spool.cancel_calls() if some_failed else ()
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
                case WatchedJobAction.FAILED if _is_covered(calls, job, outcome, self._reported[job.id].details):
                    await self._settle(job, "run-completed")
                case WatchedJobAction.FAILED if self.acting and self._vouching().is_late(
                    outcome, self.clock.now() / 1000
                ):
                    self.troubled(f"job {job.id} got no decision in time and is shown as failed")
                    await self._settle(job, "run-failed")
                case _:
                    pass
        await self._allow(going)
        if failed:
            # The others at the next poll: a storm must not block other work. First those that wait to end, then those that have waited
            # longest, because each must be decided on within a time limit.
            waits = sorted(
                failed, key=lambda job: ((job.id, failed[job].restarts) not in self._asked, failed[job].ended or 0)
            )
            failed = {job: failed[job] for job in waits[:A_LOOK]}
            details = await self.steering.details([job.id for job in failed])
            for job, outcome in failed.items():
                known = details.get(job.id)
                if self._is_recovered(job, outcome, known):
                    continue
                if _is_covered(calls, job, outcomes[job], known):
                    await self._settle(job, "run-completed")
                    continue
                try:
                    await self._report(job, outcome, known)
                except PortError as error:  # one that cannot be reported must not delay the others
                    self.troubled(f"the failure of job {job.id} is not reported yet: {error}")

    def _is_cancelled(self, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None) -> bool:
        return _is_covered(self.spool.cancel_calls(), job, outcome, details)

    def _is_recovered(self, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None) -> bool:
        """Whether a lost start is one that this service had run again itself, before it was restarted."""
        recovered = (
            _queued_again(outcome, details) and job.id not in self._lost and details is not None and bool(details.mark)
        )
        if recovered:
            self._lost[job.id] = outcome.restarts
        return recovered

    async def _allow(self, going: Collection[WatchedJob]) -> None:
        """Lift ``--no-requeue`` where user or site wants it. Slurm may then also requeue the job on its own, for example when it is
        preempted; but after the job's end it cannot be lifted."""
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
            self._reported[job.id] = _Reported(job, instance, answer.run, answer.incident, outcome.nodes, details)
        elif not _queued_again(outcome, details):
            await self._settle(job, "run-failed")

    async def _settle(self, job: WatchedJob, kind: str) -> None:
        """Settle a job for which no more is done. If a run of its own was reported, it ends with the job."""
        known = self._reported.pop(job.id, None)
        if known is not None and not job.run:
            await self.service.report([{"id": f"{job.own_key}:{kind}", "run": job.key, "kind": kind}])
        self.spool.settle(job)

    # -- orders ------------------------------------------------------------------------------------------------

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
        """Settle decided jobs: they are shown as they are, or continue."""
        for incident in closed:
            known = waiting.get(incident)
            # An order to run it again may have come just now, or meanwhile from a person.
            if known is not None and known.job.id in self._reported:
                outcome = await self._outcome(known.job)
                if fate(outcome) is WatchedJobAction.FAILED:
                    await self._settle(known.job, "run-failed")
                elif fate(outcome) is WatchedJobAction.GOING:
                    del self._reported[known.job.id]

    async def _do(self, order: OrderedAction, job: WatchedJob | None) -> None:
        """Carry out an order and answer it. If the batch system does not answer now, it is tried at the next poll."""
        outcome: BatchOutcome | None = None
        if job is None:
            refusal = "the job has ended and is no longer watched"
        elif not self.acting:
            refusal = ONLY_LOOKS
        else:
            try:
                async with self._act:
                    outcome = await self._outcome(job)
                    details = (await self.steering.details([job.id])).get(job.id)
                    refusal = self._why_not(job, order, outcome, details)
                    if not refusal:
                        await self._carry_out(order, job, outcome, details)
                        job = None  # it continues, or is settled
            except Permanent as error:
                refusal, job = str(error), None
            except PortError as error:
                self.troubled(f"command {order.id} waits: {error}")
                return
        await self.service.answer(order.id, "refused" if refusal else "done", refusal)
        if job is None:
            return
        if outcome is not None and fate(outcome) is WatchedJobAction.GOING:
            self._reported.pop(job.id, None)  # its next failure is a new one
        else:
            await self._settle(job, "run-failed")  # nothing more is done for it

    async def _carry_out(
        self, order: OrderedAction, job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None
    ) -> None:
        """`Permanent`: the batch system refuses, or does not support the action; or the job's user cancelled it."""
        # An order may come long after the poll, and a user may cancel the job until the last moment.
        cancelled = partial(self._is_cancelled, job, outcome, details)
        if order.verb in AGAIN:
            await self._again(order, job, details, cancelled)
        elif order.verb == "suspend":
            await self.steering.hold(job.id, failed_start=self._failed_start(job), cancelled=cancelled)
        elif order.verb == "continue":
            await self.steering.again(job.id, needs={}, wait=0, mark=order.id, cancelled=cancelled)
        elif order.verb in GIVE_UP:
            await self._give_up(job, outcome)
        else:
            raise Permanent(f"a batch system cannot {order.verb}")

    async def _again(
        self, order: OrderedAction, job: WatchedJob, details: JobDetails | None, cancelled: Callable[[], bool]
    ) -> None:
        if details is None:
            raise Permanent("the batch system no longer has the job; submit it again")
        known = self._reported.get(job.id)
        # New needs mean that the job itself was the cause; otherwise the nodes where it failed are avoided.
        avoid = known.nodes if known is not None and not order.needs else ()
        needs = needed(details, order.needs)
        start = self._failed_start(job)
        if start is not None and not self.spool.take(job, start):
            raise Permanent(f"job {job.id} has waited too long for a decision and has ended")
        await self.steering.again(
            job.id, needs=needs, wait=order.wait, mark=order.id, avoid=avoid, failed_start=start, cancelled=cancelled
        )
        self.spool.forget_questions(job)
        # Its next failure is a new one.
        self._reported.pop(job.id, None)

    def _failed_start(self, job: WatchedJob) -> int | None:
        """The start of a job that has failed by its own report, though it may still run."""
        question = self.spool.questions({job.base: job.owner}).get(job.id)
        return None if question is None else question.restarts

    async def _give_up(self, job: WatchedJob, outcome: BatchOutcome) -> None:
        if fate(outcome) is WatchedJobAction.GOING:
            await self.steering.cancel(job.id)
        await self._settle(job, "run-failed")


def _queued_again(outcome: BatchOutcome, details: JobDetails | None) -> bool:
    """Whether the batch system has queued the job again already: the outcome is that of a lost start."""
    return outcome.state is BatchState.LOST and details is not None and details.waiting


def _is_covered(
    calls: Sequence[CancelCall], job: WatchedJob, outcome: BatchOutcome, details: JobDetails | None
) -> bool:
    """Whether a job that failed was cancelled meanwhile: the batch system does nothing about a job that has ended, and keeps no record of the call."""
    return fate(outcome) is WatchedJobAction.FAILED and any(call.covers(job, outcome, details) for call in calls)
