"""Implements `ports.sites.batch.BatchSystem` on a Kubernetes API server: a launch is a Job of its name.

A name exists once, so a submission that is repeated after a crash creates nothing: it continues the one that was broken off. A Job that was
created but not marked as submitted never runs; `find` removes it and reports that nothing was submitted.

Kubernetes forgets a Job when its time after the end is over, or when somebody deletes it: then its outcome is unknown, unless pods are left.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from forestay.adapters.kubernetes.api import MERGE_PATCH, ApiAnswer, Fields, KubernetesApi, NotSent, seconds_of
from forestay.adapters.kubernetes.objects import (
    LAUNCH,
    MANAGED,
    NAME,
    SITE,
    PilotProgram,
    PodSettings,
    give_up_patch,
    job_object,
    program_object,
    secret_object,
    submission_patch,
)
from forestay.adapters.kubernetes.reading import (
    NEVER,
    POD_FAILURE_POLICY,
    StartFailure,
    disrupted_pod,
    disruption_by,
    explained,
    label_of,
    name_of,
    outcome_of,
    refusal_of,
    start_failure,
    submitted,
    uid_of,
    wants_reason,
)
from forestay.domain.sites.batch import (
    FORGOTTEN,
    OVER,
    BatchId,
    BatchJob,
    BatchOutcome,
    BatchState,
    PilotJob,
    SubmitRefusal,
    SubmitRefused,
    slices,
)
from forestay.ports.errors import Permanent, PortError, Transient

AT_ONCE = 150
"""Names in one selector: proxies accept addresses of 8 KiB."""
MOST_KEPT = 10_000
"""Jobs whose last state is kept in memory."""
CONFLICT, NOT_FOUND, FORBIDDEN = 409, 404, 403
Value = TypeVar("Value")
_LATER = ("exceeded quota", "insufficient quota", "is being terminated", "try again")


class KubernetesBatch:
    """The Jobs of one site, in one namespace."""

    def __init__(
        self,
        api: KubernetesApi,
        settings: PodSettings,
        program: PilotProgram,
        *,
        patience: float = 600.0,
        on_event: Callable[[str, Mapping[str, object]], None] = lambda _event, _facts: None,
    ) -> None:
        """`patience`: seconds for which a pod that has a node may fail to start, such as while its image is pulled."""
        self.api = api
        self._settings = settings
        self._program = program
        self._patience = patience
        self._on_event = on_event
        self._program_exists = False
        self._cancelled: OrderedDict[BatchId, None] = OrderedDict()
        self._seen: OrderedDict[BatchId, BatchOutcome] = OrderedDict()
        """What was read of pods last: those that are evicted or preempted are gone when their Job has failed."""
        self._jobs = f"/apis/batch/v1/namespaces/{settings.namespace}/jobs"
        self._core = f"/api/v1/namespaces/{settings.namespace}"

    async def close(self) -> None:
        await self.api.close()

    # -- submissions -------------------------------------------------------------------------------------------

    async def submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        """As the port says."""
        self._check(job)
        try:
            refused = await self._keep_program()
            return refused or await self._submit(job)
        except NotSent as error:
            return SubmitRefused(error.why, str(error))

    async def check(self, job: PilotJob) -> None:
        """Let the API server check a Job without creating it: rights, quota, admission. Raises the errors of the port."""
        self._check(job)
        answer = await self.api.call("POST", self._jobs, query={"dryRun": "All"}, body=self._object(job))
        if not answer.ok and answer.status != CONFLICT:
            raise Permanent(self._refusal(answer).words)

    async def _submit(self, job: PilotJob) -> BatchId | SubmitRefused:
        created = await self.api.call("POST", self._jobs, body=self._object(job))
        if created.status == CONFLICT:
            created = await self.api.call("GET", f"{self._jobs}/{job.name}")
            if created.ok and submitted(created.body):
                return job.name
            if created.status == NOT_FOUND:
                raise Transient(f"Job {job.name} is being removed")
        if not created.ok:
            return self._refusal(created)
        uid = uid_of(created.body)
        answer = await self._keep_secret(job, uid)
        if answer is None or answer.ok:
            answer = await self.api.call(
                "PATCH", f"{self._jobs}/{job.name}", body=submission_patch(job, uid=uid), content=MERGE_PATCH
            )
            if answer.ok:
                return job.name
            if answer.status in (NOT_FOUND, CONFLICT):
                raise Transient(f"Job {job.name} was removed while it was submitted: {answer.message}")
        await self._delete(job.name, uid=uid)
        return self._refusal(answer)

    async def _keep_secret(self, job: PilotJob, uid: str) -> ApiAnswer | None:
        if not job.environment:
            return None
        secret = secret_object(job, uid=uid, settings=self._settings)
        answer = await self.api.call("POST", f"{self._core}/secrets", body=secret)
        if answer.status == CONFLICT:  # of the same launch, by an agent that was killed
            answer = await self.api.call("PUT", f"{self._core}/secrets/{job.name}", body=secret)
        return answer

    async def _keep_program(self) -> SubmitRefused | None:
        """Store the pilot's program in the cluster, and remove those of other releases that no Job needs any more."""
        if self._program_exists:
            return None
        answer = await self.api.call(
            "POST", f"{self._core}/configmaps", body=program_object(self._program, self._settings)
        )
        if not answer.ok and answer.status != CONFLICT:
            return self._refusal(answer)
        self._program_exists = True
        selector = ",".join(f"{name}={value}" for name, value in {**MANAGED, SITE: self._settings.site}.items())
        try:
            programs = await self.api.list(f"{self._core}/configmaps", labelSelector=selector)
            others = {name_of(resource) for resource in programs.items} - {self._program.name}
            if others:
                jobs = await self.api.list(self._jobs, labelSelector=selector)
                used = {name for resource in jobs.items for name in _programs(resource)}
                for name in sorted(others - used):
                    await self.api.call("DELETE", f"{self._core}/configmaps/{name}")
        except PortError as error:
            self._on_event("programs of earlier releases are not removed", {"detail": str(error)})
        return None

    def _object(self, job: PilotJob) -> Fields:
        return job_object(job, self._program.name, self._settings)

    @staticmethod
    def _check(job: PilotJob) -> None:
        if not NAME.fullmatch(job.name):
            raise Permanent(f"invalid name of a Job: {job.name!r}")
        if job.account is not None:
            raise Permanent(
                "Kubernetes has no accounts: remove the size's `account`, and choose a namespace or a Kueue queue"
            )
        if job.user:
            raise Permanent("pilots in Kubernetes run as the user of the site's settings")

    def _refusal(self, answer: ApiAnswer) -> SubmitRefused:
        words = answer.message
        if answer.status == NOT_FOUND or (answer.status == FORBIDDEN and " cannot " in words):
            raise Permanent(f"the site agent's rights or its namespace are missing: {words}")
        return SubmitRefused(SubmitRefusal.REFUSED, words, later=any(word in words for word in _LATER))

    async def cancel(self, jobs: Collection[BatchId]) -> None:
        """As the port says. A Job disappears when its pods have."""
        for name in dict.fromkeys(jobs):
            if NAME.fullmatch(name) and await self._delete(name, propagation="Foreground"):
                _remember(self._cancelled, name, None)

    async def _delete(self, name: str, *, propagation: str = "Background", uid: str = "") -> bool:
        """Delete a Job; False if there is none."""
        options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid:
            options["preconditions"] = {"uid": uid}
        answer = await self.api.call("DELETE", f"{self._jobs}/{name}", body=options)
        if not answer.ok and answer.status not in (NOT_FOUND, CONFLICT):
            raise Transient(f"Job {name} could not be deleted: {answer.message}")
        return answer.ok

    # -- states ------------------------------------------------------------------------------------------------

    async def find(self, names: Collection[str]) -> Mapping[str, tuple[BatchJob, ...]]:
        """As the port says."""
        wrong = [name for name in names if not NAME.fullmatch(name)]
        if wrong:
            raise Permanent(f"invalid name of a Job: {wrong[0]!r}")
        found: dict[str, tuple[BatchJob, ...]] = {}
        for some in slices(names, AT_ONCE):
            jobs, pods, at = await self._read(some)
            for name in some:
                job = jobs.get(name)
                if job is not None and not submitted(job):
                    await self._delete(name, uid=uid_of(job))
                elif job is not None or name in pods:
                    outcome = outcome_of(job, pods.get(name, ()), at=at, seen=self._seen.get(name))
                    found[name] = (BatchJob(name, name, outcome),)
        return found

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        """As the port says."""
        outcomes: dict[BatchId, BatchOutcome] = dict.fromkeys(jobs, FORGOTTEN)
        for some in slices([name for name in jobs if NAME.fullmatch(name)], AT_ONCE):
            try:
                outcomes |= await self._outcomes(some)
            except PortError as error:
                outcomes |= dict.fromkeys(some, BatchOutcome(BatchState.UNKNOWN, reason=str(error)))
        return outcomes

    async def _outcomes(self, names: Sequence[str]) -> dict[BatchId, BatchOutcome]:
        jobs, pods, at = await self._read(names)
        waiting = {name for name, job in jobs.items() if name not in pods and wants_reason(job)}
        events = await self._refusals(waiting) if waiting else {}
        outcomes: dict[BatchId, BatchOutcome] = {}
        for name in names:
            job, own = jobs.get(name), pods.get(name, ())
            if job is None and not own:
                gone = BatchOutcome(BatchState.ENDED, "Cancelled") if name in self._cancelled else FORGOTTEN
                outcomes[name] = gone
                continue
            outcome = outcome_of(job, own, at=at, seen=self._seen.get(name))
            if job is not None and outcome.state not in OVER:
                outcome = await self._unstarted(name, job, own, events.get(name, ()), outcome, at)
            elif job is not None and (pod := disrupted_pod(job)) and outcome.word == POD_FAILURE_POLICY:
                # Its pod was gone before anybody saw why.
                word, reason = disruption_by(await self._events(f"involvedObject.kind=Pod,involvedObject.name={pod}"))
                outcome = replace(outcome, word=word or outcome.word, reason=reason or outcome.reason)
            if own:
                _remember(self._seen, name, outcome)
            outcomes[name] = outcome
        return outcomes

    async def _unstarted(
        self,
        name: str,
        job: Fields,
        pods: Sequence[Fields],
        events: Sequence[Fields],
        outcome: BatchOutcome,
        at: int | None,
    ) -> BatchOutcome:
        """The outcome of a Job that has not ended, which is ended here if its pod cannot start."""
        failure = start_failure(job, pods, events)
        refused = refusal_of(events)
        if failure is None:
            return replace(outcome, word="FailedCreate", reason=refused) if refused else outcome
        if failure.word in NEVER or (
            at is not None and failure.since is not None and at - failure.since > self._patience
        ):
            failure = explained(failure, await self._pod_events(failure))
            await self._give_up(name, failure)
        return replace(outcome, word=failure.word, reason=failure.reason)

    async def _pod_events(self, failure: StartFailure) -> Sequence[Fields]:
        if not failure.pod:
            return ()
        return await self._events(f"involvedObject.kind=Pod,involvedObject.name={failure.pod}")

    async def _give_up(self, name: str, failure: StartFailure) -> None:
        why = f"{failure.word}: {failure.reason}"
        self._on_event("a pilot's pod cannot start", {"job": name, "detail": why})
        # Perhaps somebody removed the program's ConfigMap.
        self._program_exists = False
        answer = await self.api.call("PATCH", f"{self._jobs}/{name}", body=give_up_patch(why), content=MERGE_PATCH)
        if not answer.ok and answer.status != NOT_FOUND:
            self._on_event("a Job whose pod cannot start is not ended", {"job": name, "detail": answer.message})

    async def _read(self, names: Sequence[str]) -> tuple[dict[str, Fields], dict[str, list[Fields]], int | None]:
        """The Jobs of these names, their pods, and the API server's time. Pods that belong to a Job are read after it, so none is missed."""
        selector = f"{LAUNCH} in ({','.join(names)})"
        jobs = await self.api.list(self._jobs, labelSelector=selector)
        pods = await self.api.list(f"{self._core}/pods", labelSelector=selector)
        by_name: dict[str, list[Fields]] = {}
        for pod in pods.items:
            by_name.setdefault(label_of(pod, LAUNCH), []).append(pod)
        return {name_of(job): job for job in jobs.items}, by_name, pods.at

    async def _refusals(self, names: Collection[str]) -> dict[str, list[Fields]]:
        """The refusals to create pods of these Jobs, oldest first: a quota, or an admission."""
        found: dict[str, list[Fields]] = {}
        for event in await self._events("involvedObject.kind=Job,reason=FailedCreate"):
            name = str((event.get("involvedObject") or {}).get("name"))
            if name in names:
                found.setdefault(name, []).append(event)
        return found

    async def _events(self, selector: str) -> Sequence[Fields]:
        """Events, oldest first; none if the agent may not read them, since they only explain."""
        try:
            events = (await self.api.list(f"{self._core}/events", fieldSelector=selector)).items
        except Permanent:
            return ()
        return sorted(events, key=_time)


def _time(event: Fields) -> int:
    created = (event.get("metadata") or {}).get("creationTimestamp")
    return seconds_of(event.get("lastTimestamp") or event.get("eventTime") or created) or 0


def _programs(job: Fields) -> Iterable[str]:
    """The ConfigMaps that a Job mounts."""
    pod = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    for volume in pod.get("volumes") or ():
        if name := (volume.get("configMap") or {}).get("name"):
            yield str(name)


def _remember(kept: OrderedDict[str, Value], name: str, value: Value) -> None:
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > MOST_KEPT:
        kept.popitem(last=False)
