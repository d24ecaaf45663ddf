"""Implements `ports.sites.batch_steering.BatchSteering` with scontrol: a job that ended is requeued under its own id, as long as Slurm remembers it.

Actions on a job are recorded in its comment, so that a repeat after a crash finds that they are done.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from forestay.adapters.slurm.batch import MOST_IDS, SlurmBatch
from forestay.adapters.slurm.words import one_line, said, separator, state_of
from forestay.domain.sites.batch import OVER, BatchId, slices
from forestay.domain.sites.watched_job import NEVER_STARTS, ArrayReading, JobDetails, JobIdentity, JobKind, several
from forestay.formats.text.host_list import nodes_of
from forestay.ports.commands import CommandResult
from forestay.ports.errors import Permanent, Transient
from forestay.ports.sites.batch_steering import never

MIB = 1 << 20
MARK = "forestay:"
HELD_BY_PERSON = ("JobHeldUser", "JobHeldAdmin")
"""Reasons of a job that was held in the queue; one that is queued again and held has another."""
HELD_BY_US = "held"
HELD = (*HELD_BY_PERSON, "job_requeued_in_held_state", "JobHoldMaxRequeue")
NEVER = (
    "presently disabled",  # it was submitted so that it must not be run twice
    "invalid job id",
    "already finished",
    "access/permission denied",
    "job violates accounting",
    "requested node configuration is not available",
    "invalid",
    "not permitted",
)
"""Permanent refusals."""
CANCELLED = "somebody cancelled the job"
SOONEST = 2
"""Seconds from an end to the next start. A node refuses a credential issued in the second in which it revoked the previous one, since both are in
whole seconds; Slurm then reports a job as failed that it did not run."""
PROMPT = 0.5
"""Seconds within which a job that is about to end has left its node."""
IDENTITY_FIELDS = "JobID:|,ArrayJobID:|,ArrayTaskID:|,HetJobID:|,UserID:|,Dependency:"
ACCOUNTED_FIELDS = "JobID,JobIDRaw,UID,JobName"
ELEMENT_FIELDS = "ArrayJobID:|,ArrayTaskID:|,RestartCnt:|,Reason:|,State:"
FAILED = "BOOT_FAIL,DEADLINE,FAILED,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,TIMEOUT"
NOT_WELL = f"{FAILED},COMPLETING,CONFIGURING,PENDING,REQUEUED,REQUEUE_HOLD,RUNNING,SUSPENDED"
"""States of jobs that have not succeeded, or not yet. Succeeded and cancelled ones may be most of an array."""
UNNAMED = "allocation"
"""slurmdbd's name of a job whose end it received before its start: until it has caught up, the rest of its record is invalid too."""
DEPENDENT_FIELDS = "ArrayJobID:|,ArrayTaskID:|,UserID:|,Dependency:"
_DEPENDENCY = re.compile(r"\((?:failed|unfulfilled)\)|_\*")
"""Annotations that Slurm adds when it prints a dependency."""
_AFTER_NAME = re.compile(r"(?: HetJobIdSet=[\d,-]+)? UserId=\S+\(\d+\) GroupId=")
_NAME = re.compile(rf" JobName=(?:(?! [A-Za-z][A-Za-z_/:]*=).)*{_AFTER_NAME.pattern}")
"""A name without anything that looks like a field in it."""
_FIELD = re.compile(r"(?:^| )([A-Za-z][A-Za-z_/:]*)=")
_AMOUNT = re.compile(r"^([0-9.]+)([KMGTP]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_TIME = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")


@dataclass(frozen=True, slots=True)
class SlurmSteering:
    """One Slurm, run as one of its operators or as the owner of the jobs."""

    slurm: SlurmBatch

    async def identities(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobIdentity]:
        identities: dict[BatchId, JobIdentity] = {}
        for some in slices(jobs, MOST_IDS):
            identities |= read_identities(await self._queue(some, "--states=all", f"--Format={IDENTITY_FIELDS}"))
            forgotten = [job for job in some if job not in identities]
            if forgotten:
                identities |= await self._accounted(forgotten)
        return identities

    async def _accounted(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobIdentity]:
        between = separator()
        form = ("--noheader", "--parsable2", f"--delimiter={between}", "-X", f"--format={ACCOUNTED_FIELDS}")
        ran = await self._run("sacct", *form, f"--jobs={','.join(jobs)}")
        return read_accounted_identities(ran.out, between) if ran.code == 0 else {}

    async def elements(self, arrays: Collection[BatchId]) -> Mapping[BatchId, ArrayReading]:
        readings: dict[BatchId, ArrayReading] = {}
        for some in slices(arrays):
            ids = f"--jobs={','.join(some)}"
            queue = await self._queue(some, f"--states={NOT_WELL}", f"--Format={ELEMENT_FIELDS}")
            # Failures older than the controller's memory.
            period = (f"--starttime=now-{self.slurm.look_back}days", "--endtime=now")
            form = ("--noheader", "--parsable2", "--allocations", "--format=JobID")
            accounted = await self._run("sacct", *form, f"--state={FAILED}", *period, ids)
            known = accounted.code == 0 and "error:" not in accounted.err.lower()
            some_readings = read_elements(some, queue, accounted.out if known else "")
            if not known and "disabled" not in accounted.err.lower():
                # Some elements may have failed that are not reported now.
                some_readings = {array: reading._replace(active=True) for array, reading in some_readings.items()}
            readings |= some_readings
        return readings

    async def is_over(self, array: BatchId) -> bool:
        states = (await self._queue([array], "--states=all", "--Format=State:")).split()
        if not states:
            ran = await self._run("sacct", "--noheader", "--parsable2", "-X", "--format=State", f"--jobs={array}")
            states = ran.out.splitlines() if ran.code == 0 else []
        # An array without any report has not ended.
        return bool(states) and all(state_of(state)[0] in OVER for state in states)

    async def details(self, jobs: Collection[BatchId]) -> Mapping[BatchId, JobDetails]:
        details: dict[BatchId, JobDetails] = {}
        for job in jobs:  # scontrol accepts one id at a time
            fields = await self._fields(job)
            if fields is not None:
                details[job] = _details(job, fields)
        return details

    async def peak_memory(self, job: BatchId) -> int | None:
        ran = await self._run("sacct", "--noheader", "--parsable2", f"--jobs={job}", "--format=MaxRSS")
        peaks = [amount for line in ran.out.splitlines() if (amount := _bytes(line)) is not None]
        return max(peaks, default=None) if ran.code == 0 else None

    async def allow_again(self, jobs: Collection[BatchId]) -> None:
        for some in slices(jobs, MOST_IDS):
            queue = await self._queue(some, f"--Format=Requeue:|,{IDENTITY_FIELDS}")
            lines = [line.partition("|") for line in queue.splitlines()]
            identities = read_identities("\n".join(rest for _, _, rest in lines))
            for job in some:
                if job in identities and identities[job].kind is JobKind.HETEROGENEOUS:
                    raise Permanent(several(job, JobKind.HETEROGENEOUS))
            barred = dict.fromkeys(rest.split("|")[1] for requeue, _, rest in lines if requeue == "0")
            single = [job for job in barred if identities[job].kind is JobKind.SINGLE]
            if single:
                await self._do("update", f"JobId={','.join(single)}", "Requeue=1")
            for array in barred.keys() - set(single):
                # By the id of the array, so that its waiting elements remain one record in Slurm. Those that have ended are refused one by one.
                ran = await self._run("scontrol", "update", f"JobId={array}", "Requeue=1")
                if ran.code != 0 and not said(ran.err + ran.out, ("already finished",)):
                    raise Transient(one_line(ran.err or ran.out) or f"scontrol ended with {ran.code}")

    async def hold(
        self, job: BatchId, *, failed_start: int | None = None, cancelled: Callable[[], bool] = never
    ) -> None:
        fields = await self._remembered(job)
        _wait_for_node(fields)
        if _over(fields) or _is_start(fields, failed_start):
            await self._do("requeuehold", job)
        elif not _held(fields):
            if fields.get("JobState") == "PENDING":
                # So that it is known from a hold of the user's, which stays.
                await self._do("update", f"JobId={job}", f"Comment={_marked(fields, HELD_BY_US)}")
            await self._do("hold", job)
        await self._obey_cancellation(job, cancelled)

    async def _obey_cancellation(self, job: BatchId, cancelled: Callable[[], bool]) -> None:
        """Slurm ignores a cancellation of a job that has ended, so one that came before the job was queued again is made up for. Later ones Slurm carries
        out itself, since the job waits now."""
        if cancelled():
            await self.slurm.cancel([job])
            raise Permanent(CANCELLED)

    async def again(
        self,
        job: BatchId,
        *,
        needs: Mapping[str, int],
        wait: int,
        mark: str,
        avoid: Collection[str] = (),
        failed_start: int | None = None,
        cancelled: Callable[[], bool] = never,
    ) -> None:
        fields = await self._remembered(job)
        marked = fields.get("Comment", "").endswith(MARK + mark)
        if marked and not _held(fields):
            return
        if _is_start(fields, failed_start):
            await self._do("requeuehold", job)
            # It is about to end, so this does not take long. Earlier changes would be lost: Slurm sets the job's start time again.
            await asyncio.sleep(PROMPT)
            fields = await self._remembered(job)
        _wait_for_node(fields)
        if fields.get("Reason") in HELD_BY_PERSON and not fields.get("Comment", "").endswith(MARK + HELD_BY_US):
            raise Permanent("somebody holds the job; scontrol release lets it start")
        if _over(fields):
            await self._do("requeuehold", job)
        await self._obey_cancellation(job, cancelled)
        if not marked:
            words = [f"Comment={_marked(fields, mark)}", *_needs(fields, needs)]
            words += await self._elsewhere(fields, avoid)
            # By default Slurm lets a requeued job wait for two minutes.
            await self._do("update", f"JobId={job}", f"StartTime=now+{max(SOONEST, wait)}", *words)
        await self._repair_dependents(job, fields)
        await self._do("release", job)

    async def release_dependents(self, array: BatchId, owner: int) -> None:
        repaired: dict[str, list[BatchId]] = {}
        for dependent, wanted in await self._dependents(owner):
            rest = without_array(wanted, array)
            if rest != wanted:
                repaired.setdefault(rest, []).append(dependent)
        if not repaired:
            return
        ran = await self._run("sacct", "--noheader", "--parsable2", "-X", "--format=State", f"--jobs={array}")
        states = set(ran.out.splitlines())
        if ran.code != 0 or any(state_of(state)[0] not in OVER for state in states):
            raise Transient("Slurm's accounting lags behind")
        if states == {"COMPLETED"}:
            await self._depend(repaired)

    async def _repair_dependents(self, job: BatchId, fields: Mapping[str, str]) -> None:
        """Let jobs of the same user that Slurm gave up because this one had failed wait for it again, as their user intended."""
        owner = fields.get("UserId", "").partition("(")[2].rstrip(")")
        if not owner.isdigit():
            return
        repaired: dict[str, list[BatchId]] = {}
        for dependent, wanted in await self._dependents(int(owner)):
            if is_given_up(dependent, wanted, job):
                repaired.setdefault(_DEPENDENCY.sub("", wanted), []).append(dependent)
        await self._depend(repaired)

    async def _dependents(self, owner: int) -> list[tuple[BatchId, str]]:
        """Jobs of a user that wait for a failed one, with their dependencies in Slurm's form."""
        which = ("--states=PENDING", f"--user={owner}")
        ran = await self._run("squeue", "--noheader", *which, f"--Format={DEPENDENT_FIELDS}")
        if ran.code != 0:
            raise Transient(one_line(ran.err) or "squeue does not respond")
        dependents = []
        for line in ran.out.splitlines():
            parts = line.strip().split("|")
            if len(parts) == 4 and parts[2] == str(owner) and "(failed)" in parts[3]:
                array, element, _, wanted = parts
                dependents.append((f"{array}_{element}" if element.isdigit() else array, wanted))
        return dependents

    async def _depend(self, repaired: Mapping[str, Collection[BatchId]]) -> None:
        for wanted, dependents in repaired.items():
            for some in slices(dependents):
                ran = await self._run("scontrol", "update", f"JobId={','.join(some)}", f"Dependency={wanted}")
                # Where Slurm refuses, for example because someone else was faster, nothing is changed.
                if ran.code != 0 and said(ran.err + ran.out, ("unable to contact", "timed out")):
                    raise Transient(one_line(ran.err or ran.out))

    async def cancel(self, job: BatchId) -> None:
        _refuse_several(job, await self._fields(job) or {})
        await self.slurm.cancel([job])

    async def _elsewhere(self, fields: Mapping[str, str], avoid: Collection[str]) -> list[str]:
        """The argument that excludes nodes, with those already excluded; empty where too few others would be left.
        A job whose user named its nodes keeps them."""
        if not avoid or fields.get("ReqNodeList", "(null)") != "(null)":
            return []
        up = ["sinfo", "--noheader", "--Node", "--responding", "--states=idle,mixed,allocated,completing"]
        ran = await self._run(*up, f"--partition={fields.get('Partition', '')}", "--format=%N")
        before = fields.get("ExcNodeList", "(null)")
        wanted = {*avoid, *(nodes_of(before) if before != "(null)" else ())}
        every = set(ran.out.split())
        left, least = len(every - wanted), fields.get("NumNodes", "1").partition("-")[0]
        # A problem on many nodes must not exclude a whole partition.
        if ran.code != 0 or 2 * left < len(every) or left < (int(least) if least.isdigit() else 1):
            return []
        return [f"ExcNodeList={','.join(sorted(wanted))}"]

    async def _fields(self, job: BatchId) -> dict[str, str] | None:
        ran = await self._run("scontrol", "--oneliner", "show", "job", job)
        if ran.code == 0:
            return _read(ran.out if _is_plain(ran.out) else await self._without_name(job, ran.out))
        if said(ran.err + ran.out, ("invalid job id",)):
            return None
        raise Transient(one_line(ran.err or ran.out) or "scontrol does not respond")

    async def _without_name(self, job: BatchId, text: str) -> str:
        """scontrol's output on a job, with a name that cannot be mistaken for other fields."""
        between = separator()
        form = f"--Format=JobID:{between},Name:{between}"
        ran = await self._run("squeue", "--noheader", "--states=all", f"--jobs={job}", form)
        head, _, rest = text.partition(" JobName=")
        # An id may stand for several jobs; the first of them is read.
        names = [name for name in ran.out.split(between)[1::2] if rest.startswith(name)]
        name = next((name for name in names if _AFTER_NAME.match(rest, len(name))), None)
        if ran.code != 0 or name is None:
            raise Transient(one_line(ran.err) or f"Slurm gives job {job} two names")
        return f"{head} JobName={re.sub(r'[^!-<>-~]', '_', name)}{rest.removeprefix(name)}"

    async def _remembered(self, job: BatchId) -> dict[str, str]:
        fields = await self._fields(job)
        if fields is None:
            raise Permanent("Slurm no longer has the job (MinJobAge); submit it again")
        if fields.get("JobState") == "CANCELLED":  # meanwhile, perhaps
            raise Permanent(CANCELLED)
        _refuse_several(job, fields)
        return fields

    async def _do(self, *words: str) -> None:
        ran = await self._run("scontrol", *words)
        if ran.code == 0:
            return
        text = one_line(ran.err or ran.out)
        raise (Permanent if said(text, NEVER) else Transient)(text or f"scontrol ended with {ran.code}")

    async def _queue(self, jobs: Collection[BatchId], *which: str) -> str:
        """squeue's lines about jobs, none if it knows none of them; `Transient` if it does not respond."""
        ran = await self._run("squeue", "--noheader", *which, f"--jobs={','.join(jobs)}")
        if ran.code != 0 and not said(ran.err, ("invalid job id",)):
            raise Transient(one_line(ran.err) or "squeue does not respond")
        return ran.out

    async def _run(self, *command: str) -> CommandResult:
        return await self.slurm.run(command)


def read_identities(text: str) -> dict[BatchId, JobIdentity]:
    """From squeue's lines. The base id of an array is known by each of its elements."""
    identities: dict[BatchId, JobIdentity] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 6:
            continue
        job, array, element, group, user, wanted = parts
        owner = int(user) if user.isdigit() else None
        answers = tuple(re.findall(r"afternotok:(\d+)(?:_[\d*]+)?\(unfulfilled\)", wanted))
        if array != job or element != "N/A":
            identities |= dict.fromkeys((job, array), JobIdentity(JobKind.ARRAY, owner, answers))
        elif group not in ("N/A", "0", ""):
            identities |= dict.fromkeys((job, group), JobIdentity(JobKind.HETEROGENEOUS, owner, answers))
        else:
            identities.setdefault(job, JobIdentity(JobKind.SINGLE, owner, answers))
    return identities


def read_accounted_identities(text: str, between: str) -> dict[BatchId, JobIdentity]:
    """From the accounting's lines, where an element of an array is called ``12_3`` and a part of a heterogeneous job ``12+1``."""
    identities: dict[BatchId, JobIdentity] = {}
    for line in text.splitlines():
        parts = line.split(between, 3)
        if len(parts) != 4 or parts[3] == UNNAMED:
            continue
        name, job, user, _ = parts
        owner = int(user) if user.isdigit() else None
        if "_" in name:
            identities |= dict.fromkeys((job, name.partition("_")[0]), JobIdentity(JobKind.ARRAY, owner))
        elif "+" in name:
            identities |= dict.fromkeys((job, name.partition("+")[0]), JobIdentity(JobKind.HETEROGENEOUS, owner))
        elif job:
            identities.setdefault(job, JobIdentity(JobKind.SINGLE, owner))
    return identities


def read_elements(arrays: Collection[BatchId], queue: str, accounting: str) -> dict[BatchId, ArrayReading]:
    """From the queue's lines about elements that are not well, and from the accounting's ids of those that failed."""
    failed: dict[BatchId, set[BatchId]] = {array: set() for array in arrays}
    restarted: dict[BatchId, set[BatchId]] = {array: set() for array in arrays}
    active: set[BatchId] = set()
    startable: set[BatchId] = set()
    in_queue: set[BatchId] = set()
    for line in queue.splitlines():
        parts = line.split("|")
        if len(parts) != 5 or parts[0] not in failed:
            continue
        array, number, restarts, reason, word = parts
        job = f"{array}_{number}"
        in_queue.add(job)
        if state_of(word)[0] in OVER:
            failed[array].add(job)
            continue
        active.add(array)
        if reason != NEVER_STARTS:
            startable.add(array)
        if number.isdigit() and word == "PENDING" and restarts != "0":
            restarted[array].add(job)
    for job in accounting.split():
        array, _, number = job.partition("_")
        if array in failed and number.isdigit() and job not in in_queue:
            failed[array].add(job)
    return {
        array: ArrayReading(
            frozenset(failed[array]), frozenset(restarted[array]), array in active, array in active - startable
        )
        for array in arrays
    }


def is_given_up(dependent: BatchId, wanted: str, job: BatchId) -> bool:
    """Whether a dependent can never start because that job failed. An element of an array may wait for the one of the same number in another array."""
    array, _, element = job.partition("_")
    clauses = re.split("[,?]", wanted)
    if any(clause.endswith(f":{job}(failed)") for clause in clauses):
        return True
    return bool(element) and dependent.partition("_")[2] == element and f"aftercorr:{array}_*(failed)" in clauses


def without_array(wanted: str, array: BatchId) -> str:
    """The remaining dependency when every element of an array has succeeded. Slurm itself remembers that one of them once failed."""
    clause = f"afterok:{array}_*(failed)"
    clauses = re.split("[,?]", wanted)
    if clause not in clauses:
        return wanted
    return "" if "?" in wanted else ",".join(_DEPENDENCY.sub("", other) for other in clauses if other != clause)


def _refuse_several(job: BatchId, fields: Mapping[str, str]) -> None:
    """Raise `Permanent` for an id that stands for several jobs: an action on it would affect jobs that did not fail."""
    array = fields.get("ArrayJobId")
    why = several(job, JobKind.HETEROGENEOUS) if "HetJobId" in fields else ""
    if array is not None and not job.startswith(f"{array}_"):
        why = several(array, JobKind.ARRAY)
    if why:
        raise Permanent(why)


def _is_plain(text: str) -> bool:
    """Whether the name of a job ends where it seems to."""
    record = _first_record(text)
    fields = [match[1] for match in _FIELD.finditer(record)]
    name = _NAME.search(record)
    return name is not None and fields.count("UserId") == fields.count("JobName") == 1 and "\n" not in record


def _first_record(text: str) -> str:
    """The first record of an id that stands for several jobs."""
    return text.strip().split("\nJobId=", 1)[0]


def _read(text: str) -> dict[str, str]:
    """The fields of one line; a value ends where the next field begins."""
    line = " ".join(_first_record(text).split("\n"))
    places = list(_FIELD.finditer(line))
    ends = [*(place.start() for place in places[1:]), len(line)]
    result: dict[str, str] = {}
    for place, end in zip(places, ends, strict=True):
        result.setdefault(place[1], line[place.end() : end].strip())
    return result


def _details(job: BatchId, fields: Mapping[str, str]) -> JobDetails:
    needs: dict[str, int] = {}
    cpus = int(fields["NumCPUs"]) if fields.get("NumCPUs", "").isdigit() else 1
    needs["cpus"] = cpus
    each, node = _bytes(fields.get("MinMemoryCPU", "")), _bytes(fields.get("MinMemoryNode", ""))
    if node or each:
        needs["memory"] = node or (each or 0) * cpus
    wall = _seconds(fields.get("TimeLimit", ""))
    if wall is not None:
        needs["wall"] = wall
    mark = fields.get("Comment", "").rpartition(MARK)[2] if MARK in fields.get("Comment", "") else ""
    logs = dict.fromkeys(fields[field] for field in ("StdErr", "StdOut") if fields.get(field, "").startswith("/"))
    user = fields.get("UserId", "").partition("(")[0]
    state = fields.get("JobState")
    waiting, running = state == "PENDING", state == "RUNNING"
    requeue = fields.get("Requeue") != "0"
    name = fields.get("JobName", "job")
    given_up = tuple(re.findall(r":(\d+)(?:_[\d*]+)?\(failed\)", fields.get("Dependency", "")))
    number = fields.get("JobId", "")
    return JobDetails(
        job, name, user, _held(fields), mark, needs, tuple(logs), waiting, running, requeue, given_up, number
    )


def _needs(fields: Mapping[str, str], needs: Mapping[str, int]) -> list[str]:
    """Changed needs as arguments of scontrol."""
    words = []
    if "memory" in needs:
        by_cpu = "MinMemoryCPU" in fields
        cpus = int(fields.get("NumCPUs", "1")) if by_cpu else 1
        words.append(f"{'MinMemoryCPU' if by_cpu else 'MinMemoryNode'}={-(-needs['memory'] // (cpus * MIB))}")
    if "wall" in needs:
        words.append(f"TimeLimit={-(-needs['wall'] // 60)}")
    if "cpus" in needs:
        words.append(f"NumCPUs={needs['cpus']}")
    if "disk" in needs:
        words.append(f"MinTmpDiskNode={-(-needs['disk'] // MIB)}")
    return words


def _held(fields: Mapping[str, str]) -> bool:
    return fields.get("JobState") == "PENDING" and (fields.get("Reason") in HELD or fields.get("Priority") == "0")


def _marked(fields: Mapping[str, str], mark: str) -> str:
    """The job's comment with our mark at its end."""
    comment = re.sub(rf"\s*{MARK}\S*$", "", fields.get("Comment", "").replace("(null)", ""))
    return f"{comment} {MARK}{mark}".lstrip()


def _wait_for_node(fields: Mapping[str, str]) -> None:
    """Slurm does not say how a job ended, or that somebody cancelled it, before its nodes have tidied up. It would queue it again all the same."""
    if fields.get("JobState") == "COMPLETING":
        raise Transient("a node has not confirmed yet that nothing of the job runs there")


def _is_start(fields: Mapping[str, str], number: int | None) -> bool:
    """Whether the job runs, after that many restarts."""
    return number is not None and fields.get("JobState") == "RUNNING" and fields.get("Restarts") == str(number)


def _over(fields: Mapping[str, str]) -> bool:
    return fields.get("JobState", "") not in ("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "REQUEUED")


def _bytes(text: str) -> int | None:
    match = _AMOUNT.match(text.strip())
    return int(float(match[1]) * _UNITS[match[2]]) if match else None


def _seconds(text: str) -> int | None:
    match = _TIME.match(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
