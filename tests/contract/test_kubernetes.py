"""What happens to pilots in a real control plane of Kubernetes: `just kubernetes`. Its nodes and their kubelets are simulated, see `tests/kubernetes.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from tests import servers
from tests.contract.batch_rooms import PATIENCE, KubernetesRoom
from tests.kubernetes import ENORMOUS, GREEDY, INVALID, MISSING, RIGHTS, Admin, names
from tests.system.deploy.test_files import drawn
from tests.unit.packs.shipped import classifier

from forestay.adapters.kubernetes.batch import KubernetesBatch
from forestay.adapters.kubernetes.objects import KUEUE_QUEUE, PodSize
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.evidence.evidence import Evidence, with_batch_word
from forestay.domain.sites.batch import FORGOTTEN, BatchOutcome, BatchState, PilotJob, SubmitRefusal, SubmitRefused
from forestay.ports.errors import Permanent, Transient

pytestmark = [pytest.mark.live, pytest.mark.slow]

OVER = (BatchState.ENDED, BatchState.LOST)


@pytest.fixture
async def room() -> AsyncIterator[KubernetesRoom]:
    room = KubernetesRoom()
    yield room
    errors = room.kubelet.errors
    await room.close()
    assert errors == []


SLOW = "trap 'sleep 2; exit 143' TERM; sleep 600 & wait"
"""A pilot that needs a moment to stop, as real ones do."""


def pilot(script: str = SLOW, **parts: Any) -> PilotJob:
    name = f"forestay-{uuid4().hex}"
    return PilotJob(
        name, ("sh", "-c", script), "/var/forestay", environment={"ENROLMENT": "s"}, **{"wall": 600, **parts}
    )


async def submitted(batch: KubernetesBatch, job: PilotJob) -> PilotJob:
    assert await batch.submit(job) == job.name
    return job


async def until(batch: KubernetesBatch, job: PilotJob, good: Callable[[BatchOutcome], bool]) -> BatchOutcome:
    deadline = time.monotonic() + PATIENCE
    while True:
        outcome = (await batch.outcome([job.name]))[job.name]
        if good(outcome):
            return outcome
        assert time.monotonic() < deadline, outcome
        await asyncio.sleep(0.2)


def running(outcome: BatchOutcome) -> bool:
    return outcome.state is BatchState.RUNNING and outcome.word == "Running"


def over(outcome: BatchOutcome) -> bool:
    return outcome.state in OVER


def cause_of(outcome: BatchOutcome) -> Cause:
    """The cause of a job that was lost with this pilot."""
    reason = "; ".join(filter(None, (outcome.reason, *outcome.node_events)))
    evidence = Evidence(more={"reason": "lost"})
    seen = with_batch_word(evidence, word=outcome.word, reason=reason, nodes=outcome.nodes, pilot="p", batch_job="b")
    return classifier().classify(seen).cause


def of_image(image: str) -> dict[str, PodSize]:
    return {"": PodSize(image=image)}


async def pods_of(room: KubernetesRoom, job: PilotJob) -> list[str]:
    pods = await asyncio.to_thread(room.site.pods)
    return names(pod for pod in pods if pod["metadata"]["labels"].get("forestay/launch") == job.name)


async def pods_at_the_end(room: KubernetesRoom, job: PilotJob) -> set[str]:
    """The pods of a Job that its controller has called failed: from then on it creates no other."""
    deadline = time.monotonic() + PATIENCE
    while "Failed" not in {each["type"] for each in room.site.job(job.name)["status"].get("conditions", ())}:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    return set(await pods_of(room, job))


# -- submissions -----------------------------------------------------------------------------------------------


async def test_the_secret_is_the_jobs_and_goes_with_it_and_the_agent_cannot_read_it(room: KubernetesRoom) -> None:
    batch = room.agent()
    job = await submitted(batch, pilot())
    assert room.site.secrets() == [job.name]
    api = room.api()
    for place in ("secrets", f"secrets/{job.name}", "pods/x/log", "serviceaccounts"):
        answer = await api.call("GET", f"/api/v1/namespaces/{room.site.namespace}/{place}")
        assert answer.status == 403, place
    await batch.cancel([job.name])
    await until(batch, job, over)
    deadline = time.monotonic() + PATIENCE
    while room.site.secrets():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("requests", [1, 3, 4, 5])
async def test_an_agent_that_dies_at_a_request_of_a_submission_leaves_one_job_or_none(
    room: KubernetesRoom, requests: int
) -> None:
    """The first two store the program and list those of other releases; the last submits."""
    batch, job, left = room.agent(), pilot(), requests
    inner = batch.api.call

    async def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        answer = await inner(*arguments, **options)
        if left == 0:
            raise Transient("the agent was killed")
        return answer

    batch.api.call = dying  # type: ignore[method-assign]
    with pytest.raises(Transient):
        await batch.submit(job)
    found = await room.agent().find([job.name])
    assert set(found) == ({job.name} if requests == 5 else set())
    again = room.agent()
    deadline = time.monotonic() + PATIENCE
    while True:  # a Job that is being removed is still there for a moment
        try:
            await submitted(again, job)
            break
        except Transient:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)
    await until(again, job, running)
    assert len(await pods_of(room, job)) == 1


async def test_with_a_queue_the_job_stays_suspended_for_kueue(room: KubernetesRoom) -> None:
    """Kueue itself is not here: the administrator starts the Job, as Kueue does."""
    batch = room.agent()
    job = await submitted(batch, pilot("true", queue="physics"))
    stored = room.site.job(job.name)
    assert (stored["spec"]["suspend"], stored["metadata"]["labels"][KUEUE_QUEUE]) == (True, "physics")
    assert (await until(batch, job, lambda seen: seen.state is BatchState.WAITING)).word == "Suspended"
    room.admin.patch(f"/apis/batch/v1/namespaces/{room.site.namespace}/jobs/{job.name}", {"spec": {"suspend": False}})
    assert (await until(batch, job, over)).word == "Completed"


async def test_a_quota_of_jobs_refuses_a_pilot_for_now(room: KubernetesRoom) -> None:
    await asyncio.to_thread(lambda: room.site.quota(count__jobs_batch="1"))
    batch = room.agent()
    await submitted(batch, pilot())
    refused = await batch.submit(pilot())
    assert isinstance(refused, SubmitRefused)
    assert (refused.why, refused.later) == (SubmitRefusal.REFUSED, True)
    assert "exceeded quota" in refused.words


async def test_a_quota_of_secrets_refuses_a_pilot_and_leaves_no_job(room: KubernetesRoom) -> None:
    await asyncio.to_thread(lambda: room.site.quota(count__secrets="0"))
    batch, job = room.agent(), pilot()
    refused = await batch.submit(job)
    assert isinstance(refused, SubmitRefused)
    assert refused.later
    assert await batch.find([job.name]) == {}


async def test_a_quota_of_cpus_makes_a_pilot_wait_with_the_reason(room: KubernetesRoom) -> None:
    await asyncio.to_thread(lambda: room.site.quota(requests_cpu="2"))
    batch = room.agent()
    job = await submitted(batch, pilot(cpus=4))
    outcome = await until(batch, job, lambda seen: seen.word == "FailedCreate")
    assert outcome.state is BatchState.WAITING
    assert "exceeded quota" in outcome.reason
    assert cause_of(outcome) is Cause.POLICY


async def test_rights_that_are_missing_are_named(room: KubernetesRoom) -> None:
    room.admin.delete(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{room.site.namespace}/rolebindings/forestay-site-agent"
    )
    batch = room.agent()
    deadline = time.monotonic() + PATIENCE
    while "cannot create resource" not in await complaint(batch):
        assert time.monotonic() < deadline
    with pytest.raises(Permanent):
        await batch.find(["forestay-1"])


async def complaint(batch: KubernetesBatch) -> str:
    try:
        await batch.check(pilot())
    except Permanent as error:
        return str(error)
    return ""


async def test_a_check_creates_nothing_and_finds_what_is_wrong(room: KubernetesRoom) -> None:
    await room.agent().check(pilot())
    with pytest.raises(Permanent, match="nodeSelector"):
        await room.agent().check(pilot(options=room.wrong))
    jobs = room.admin.get(f"/apis/batch/v1/namespaces/{room.site.namespace}/jobs")
    assert jobs["items"] == []


# -- how pilots end --------------------------------------------------------------------------------------------


async def test_an_evicted_pod_is_not_replaced(room: KubernetesRoom) -> None:
    batch = room.agent()
    job = await submitted(batch, pilot())
    await until(batch, job, running)
    (pod,) = await pods_of(room, job)
    await asyncio.to_thread(room.admin.evict, room.site.namespace, pod)
    outcome = await until(batch, job, over)
    assert outcome.word == "EvictionByEvictionAPI"
    assert outcome.nodes
    assert cause_of(outcome) is Cause.NODE
    assert await pods_at_the_end(room, job) <= {pod}, "no second pod"
    assert room.site.job(job.name)["status"]["failed"] == 1
    # An agent that did not see it go knows less, and concludes no more.
    later = (await room.agent().outcome([job.name]))[job.name]
    assert later.state is BatchState.LOST


async def test_a_preempted_pod_is_preempted(room: KubernetesRoom) -> None:
    urgent = f"urgent-{uuid4().hex[:8]}"
    resource = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": urgent},
        "value": 1000,
    }
    await asyncio.to_thread(room.admin.create, resource, "")
    # A node of its own: what other tests left on a shared one would be preempted in its place.
    name = f"full-{uuid4().hex[:8]}"
    await asyncio.to_thread(add_node, room.admin, name)
    node = {"kubernetes.io/hostname": name}
    try:
        batch = room.agent(node_selector=node)
        job = await submitted(batch, pilot(cpus=7))
        await until(batch, job, running)
        other = room.agent(node_selector=node, priority_class=urgent)
        winner = await submitted(other, pilot(cpus=7))
        outcome = await until(batch, job, over)
        assert outcome.word == "PreemptionByScheduler"
        assert cause_of(outcome) is Cause.PREEMPTED
        await until(other, winner, running)
    finally:
        room.admin.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{urgent}")
        room.admin.delete(f"/api/v1/nodes/{name}")


async def test_a_pod_of_a_node_that_falls_silent_is_lost_and_not_replaced(room: KubernetesRoom) -> None:
    """kwok no longer keeps the node alive, and its kubelet does nothing: the control plane finds that out, and evicts."""
    node = f"lost-{uuid4().hex[:8]}"
    await asyncio.to_thread(add_node, room.admin, node)
    try:
        batch = room.agent(node_selector={"kubernetes.io/hostname": node}, grace=1)
        job = await submitted(batch, pilot())
        await until(batch, job, running)
        (pod,) = await pods_of(room, job)
        room.kubelet.deaf.add(node)
        room.admin.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"type": None}}})
        outcome = await until(batch, job, lambda seen: seen.word == "DeletionByTaintManager")
        assert outcome.state is BatchState.RUNNING, "its node has not confirmed it: it may still run"
        room.admin.delete(f"/api/v1/nodes/{node}")
        outcome = await until(batch, job, over)
        assert outcome.state is BatchState.LOST
        assert outcome.nodes == (node,)
        assert cause_of(outcome) is Cause.NODE
        assert await pods_at_the_end(room, job) <= {pod}, "no second pod"
    finally:
        room.admin.delete(f"/api/v1/nodes/{node}")


def add_node(admin: Admin, name: str) -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110"}
    labels = {"type": "simulated", "kubernetes.io/hostname": name}
    status = {"capacity": amounts, "allocatable": amounts}
    admin.create(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}, ""
    )


@pytest.mark.parametrize(
    ("image", "word", "cause"),
    [(ENORMOUS, "OOMKilled", Cause.MEMORY), (GREEDY, "Evicted", Cause.DISK)],
    ids=["oom", "disk"],
)
async def test_what_a_kubelet_kills_ends_with_its_reason(
    room: KubernetesRoom, image: str, word: str, cause: Cause
) -> None:
    batch = room.agent(sizes=of_image(image))
    outcome = await until(batch, await submitted(batch, pilot()), over)
    assert (outcome.word, outcome.signal) == (word, 9)
    assert cause_of(outcome) is cause


async def test_a_pod_over_its_time_ends_with_the_deadline(room: KubernetesRoom) -> None:
    batch = room.agent()
    outcome = await until(batch, await submitted(batch, pilot(wall=2)), over)
    assert (outcome.state, outcome.word) == (BatchState.ENDED, "DeadlineExceeded")
    assert cause_of(outcome) is Cause.TIME


async def test_a_pilot_that_fails_says_its_last_words(room: KubernetesRoom) -> None:
    batch = room.agent()
    outcome = await until(batch, await submitted(batch, pilot("echo no server answers; exit 4")), over)
    assert (outcome.state, outcome.exit_code, outcome.reason) == (BatchState.ENDED, 4, "no server answers")


@pytest.mark.parametrize("image", [MISSING, INVALID])
async def test_an_image_that_cannot_be_had_ends_the_pilot(room: KubernetesRoom, image: str) -> None:
    batch = room.agent(sizes=of_image(image), patience=2)
    job = await submitted(batch, pilot())
    outcome = await until(batch, job, over)
    assert (outcome.state, outcome.word) == (
        BatchState.ENDED,
        "ImagePullBackOff" if image == MISSING else "InvalidImageName",
    )
    assert cause_of(outcome) is Cause.BAD_INPUT
    assert (await room.agent().outcome([job.name]))[job.name].word == outcome.word, "the reason outlives the agent"
    assert await pods_of(room, job) == []


async def test_a_pilot_without_a_node_waits_and_ends_when_its_time_to_wait_is_over(room: KubernetesRoom) -> None:
    batch = room.agent(queue_wait=6)
    job = await submitted(batch, pilot(options=room.hold, wall=1))
    outcome = await until(batch, job, lambda seen: seen.word == "Unschedulable")
    assert outcome.state is BatchState.WAITING
    assert "node" in outcome.reason
    outcome = await until(batch, job, over)
    assert outcome.word in ("DeadlineExceeded", "Unschedulable")


async def test_a_job_that_somebody_deletes_is_unknown_once_its_pod_is_gone(room: KubernetesRoom) -> None:
    batch = room.agent()
    job = await submitted(batch, pilot())
    await until(batch, job, running)
    room.admin.delete(
        f"/apis/batch/v1/namespaces/{room.site.namespace}/jobs/{job.name}", propagationPolicy="Background"
    )
    outcome = await until(batch, job, lambda seen: seen.state is BatchState.UNKNOWN)
    assert outcome == FORGOTTEN


async def test_a_job_is_forgotten_after_its_time(room: KubernetesRoom) -> None:
    batch = room.agent(keep_finished=1)
    job = await submitted(batch, pilot("true"))
    await until(batch, job, lambda seen: seen == FORGOTTEN)
    assert room.site.job(job.name) == {}


async def test_five_hundred_and_more_jobs_are_read_in_pages(room: KubernetesRoom) -> None:
    """The adapter asks for 150 names at a time; a list of a site's programs and Jobs can be longer than a page."""
    api = room.api()
    place = f"/api/v1/namespaces/{room.site.namespace}/configmaps"
    limits = asyncio.Semaphore(8)

    async def made(number: int) -> None:
        resource = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"c-{number}", "labels": {"test": "yes"}},
        }
        async with limits:
            assert (await api.call("POST", place, body=resource)).ok

    await asyncio.gather(*(made(number) for number in range(520)))
    before = api.requests
    listing = await api.list(place, labelSelector="test=yes")
    assert len(listing.items) == 520
    assert api.requests - before == 2
    assert listing.at is not None


# -- what is deployed ------------------------------------------------------------------------------------------


@pytest.fixture
def restricted() -> Iterator[tuple[Admin, str]]:
    """An administrator and a namespace with the strictest level of Pod Security."""
    admin = Admin()
    name = f"site-{uuid4().hex[:10]}"
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, "")
    yield admin, name
    admin.delete(f"/api/v1/namespaces/{name}")
    admin.http.close()


def deployed(admin: Admin, namespace: str, items: list[dict[str, Any]]) -> None:
    """Create objects as they are, and wait until each Deployment has its pods: what they mount need not exist for that."""
    for resource in items:
        made = admin.create(resource, namespace, fieldValidation="Strict")
        assert made["metadata"]["name"] == resource["metadata"]["name"]
    wanted = {
        resource["metadata"]["name"]: resource["spec"]["replicas"]
        for resource in items
        if resource["kind"] == "Deployment"
    }
    assert wanted
    deadline = time.monotonic() + PATIENCE
    while True:
        found = admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"]
        statuses = {resource["metadata"]["name"]: resource.get("status", {}) for resource in found}
        if all(statuses[name].get("replicas") == replicas for name, replicas in wanted.items()):
            return
        assert time.monotonic() < deadline, statuses
        time.sleep(0.2)


def test_the_manifest_for_sites_is_accepted_in_a_restricted_namespace(restricted: tuple[Admin, str]) -> None:
    deployed(*restricted, list(yaml.safe_load_all(RIGHTS.read_text())))


def test_the_chart_is_accepted_in_a_restricted_namespace(restricted: tuple[Admin, str], tmp_path: Path) -> None:
    deployed(*restricted, drawn(tmp_path))


async def test_a_pilots_pod_is_accepted_without_a_warning_in_a_restricted_namespace(room: KubernetesRoom) -> None:
    body = room.agent()._object(pilot())
    place = f"/apis/batch/v1/namespaces/{room.site.namespace}/jobs"
    room.admin.patch(
        f"/api/v1/namespaces/{room.site.namespace}",
        {"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}},
    )
    answer = room.admin.http.post(place, json=body, params={"dryRun": "All", "fieldValidation": "Strict"})
    assert answer.status_code == 201, answer.text
    assert "Warning" not in answer.headers


# -- an API server that is killed ------------------------------------------------------------------------------


async def test_an_api_server_that_is_killed_says_nothing_and_pilots_continue(room: KubernetesRoom) -> None:
    batch = room.agent()
    job = await submitted(batch, pilot())
    await until(batch, job, running)
    later = pilot()
    await asyncio.to_thread(servers.order, "kill9", "kubernetes")
    try:
        assert (await batch.outcome([job.name]))[job.name].state is BatchState.UNKNOWN
        refused = await batch.submit(later)
        assert isinstance(refused, SubmitRefused)
        assert refused.why is SubmitRefusal.SCHEDULER_DOWN
        with pytest.raises(Transient):
            await batch.find([job.name, later.name])
    finally:
        await asyncio.to_thread(servers.order, "launch", "kubernetes")
    await until(batch, job, running)
    assert set(await batch.find([job.name, later.name])) == {job.name}
    await submitted(batch, later)
    await until(batch, later, running)
    assert len(await pods_of(room, job)) == 1
