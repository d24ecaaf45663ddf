"""Pilots as Jobs, on a fake API server: each crash of a submission, refusals, credentials, pages, and what a Job contains."""

from __future__ import annotations

import base64
import errno
import json
import socket
import ssl
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.adapters.fake_kubernetes import FakeApiServer, reply, status

from forestay.adapters.kubernetes import batch as batch_module
from forestay.adapters.kubernetes.api import MOST_PAGES, ApiServer, KubernetesApi
from forestay.adapters.kubernetes.batch import KubernetesBatch
from forestay.adapters.kubernetes.objects import (
    GAVE_UP,
    KUEUE_QUEUE,
    LAUNCH,
    SUBMITTED,
    PilotProgram,
    PodSettings,
    PodSize,
    PodVolume,
    job_object,
    program_object,
)
from forestay.domain.sites.batch import FORGOTTEN, BatchState, PilotJob, SubmitRefusal, SubmitRefused
from forestay.domain.sites.pace import Pace
from forestay.ports.errors import Permanent, Transient

SECRET = "an enrolment secret"
JOB = PilotJob(
    "forestay-1",
    ("python3", "/run/forestay/pilot.pyz", "--launch", "1"),
    "/var/forestay",
    environment={"FORESTAY_ENROLMENT": SECRET},
    cpus=4,
    memory=8 << 30,
    wall=3600,
    size="large",
)
SETTINGS = PodSettings("hall", "here", "registry.example.org/pilot:1", sizes={"large": PodSize(gpus=2, disk=1 << 30)})
PROGRAM = PilotProgram(b"the pilot")
FAST = Pace(100, 1000)


class Clock:
    """A clock that moves only while somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Room:
    """A batch system on a fake API server."""

    def __init__(self, folder: Path, settings: PodSettings = SETTINGS, pace: Pace = FAST) -> None:
        self.server = FakeApiServer()
        self.clock = Clock()
        self.token = folder / "token"
        self.token.write_text("first\n")
        self.settings = settings
        self.pace = pace
        self.events: list[str] = []
        self.batch = self.agent()

    def agent(self, program: PilotProgram = PROGRAM) -> KubernetesBatch:
        """The adapter of an agent that has just started."""
        api = KubernetesApi(
            ApiServer("https://api.example.org", self.token),
            clock=self.clock,
            pace=self.pace,
            sleep=self.clock.sleep,
            transport=self.server.transport(),
        )
        return KubernetesBatch(api, self.settings, program, on_event=lambda event, _facts: self.events.append(event))

    def job(self, name: str = "forestay-1") -> dict[str, Any]:
        return self.server.kind("jobs")[name]


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


async def fails(call: Awaitable[object], error: type[Exception], words: str = ".") -> None:
    with pytest.raises(error, match=words):
        await call


# -- submissions -----------------------------------------------------------------------------------------------


async def test_a_submission_is_a_job_its_secret_and_a_last_patch(room: Room) -> None:
    assert await room.batch.submit(JOB) == "forestay-1"
    assert room.server.calls == [
        "POST configmaps",
        "GET configmaps",
        "POST jobs",
        "POST secrets",
        "PATCH jobs/forestay-1",
    ]
    assert room.job()["spec"]["suspend"] is False
    assert room.job()["metadata"]["labels"][SUBMITTED] == "true"
    secret = room.server.kind("secrets")["forestay-1"]
    assert base64.b64decode(secret["data"]["FORESTAY_ENROLMENT"]).decode() == SECRET
    assert secret["metadata"]["ownerReferences"][0]["uid"] == room.job()["metadata"]["uid"]
    bodies = [request.content.decode() for request in room.server.requests if "secrets" not in request.url.path]
    assert not any(SECRET in body or base64.b64encode(SECRET.encode()).decode() in body for body in bodies)
    assert await room.batch.submit(JOB) == "forestay-1", "the name exists once"
    assert len(room.server.kind("jobs")) == 1


@pytest.mark.parametrize("requests", [1, 2, 3, 4, 5])
async def test_an_agent_that_dies_at_any_request_of_a_submission_leaves_one_job_or_none(
    room: Room, requests: int
) -> None:
    """The request is executed, and its answer lost with the agent."""
    inner, left = room.server.answer, requests

    async def dying(request: httpx.Request) -> httpx.Response:
        nonlocal left
        left -= 1
        answer = await inner(request)
        if left == 0:
            raise httpx.ReadError("killed")
        return answer

    room.server.answer = dying  # type: ignore[method-assign]
    dead = room.agent()
    room.server.answer = inner  # type: ignore[method-assign]
    if requests == 2:  # the list of programs is not needed for a submission
        assert await dead.submit(JOB) == "forestay-1"
        return
    await fails(dead.submit(JOB), Transient)
    found = await room.agent().find([JOB.name])
    assert set(found) == ({JOB.name} if requests == 5 else set()), "only the last patch submits"
    if not found:
        assert room.server.kind("jobs") == {}
        assert room.server.kind("secrets") == {}, "the secret went with its Job"
    assert await room.agent().submit(JOB) == "forestay-1"
    assert room.job()["spec"]["suspend"] is False


async def test_a_submission_that_is_repeated_without_a_search_continues_the_one_that_was_broken_off(room: Room) -> None:
    room.server.refused["PATCH", "jobs"] = status(503, "etcd is slow")
    await fails(room.batch.submit(JOB), Transient)
    assert room.job()["spec"]["suspend"] is True
    room.server.refused.clear()
    again = replace(JOB, environment={"FORESTAY_ENROLMENT": "another"})
    assert await room.agent().submit(again) == "forestay-1"
    assert base64.b64decode(room.server.kind("secrets")["forestay-1"]["data"]["FORESTAY_ENROLMENT"]) == b"another"


async def test_with_a_queue_kueue_starts_the_job(room: Room) -> None:
    await room.batch.submit(replace(JOB, queue="physics"))
    assert room.job()["spec"]["suspend"] is True
    assert room.job()["metadata"]["labels"][KUEUE_QUEUE] == "physics"
    (outcome,) = (await room.batch.outcome(["forestay-1"])).values()
    assert (outcome.state, outcome.word) == (BatchState.WAITING, "Suspended")


QUOTA = 'jobs.batch "forestay-1" is forbidden: exceeded quota: team, requested: count/jobs.batch=1, used: 5, limited: 5'


@pytest.mark.parametrize(
    ("code", "message", "later"),
    [
        (403, QUOTA, True),
        (403, "unable to create new content in namespace here because it is being terminated", True),
        (403, 'admission webhook "policy.example.org" denied the request: no such image', False),
        (422, 'Job.batch "forestay-1" is invalid: spec.template.spec.nodeSelector: Invalid value', False),
        (400, "Job in version v1 cannot be handled", False),
    ],
)
async def test_a_refusal_is_a_value_and_leaves_nothing(room: Room, code: int, message: str, later: bool) -> None:
    for kind in ("jobs", "secrets"):
        room.server.refused = {("POST", kind): status(code, message)}
        assert await room.batch.submit(JOB) == SubmitRefused(SubmitRefusal.REFUSED, message, later=later)
        assert room.server.kind("jobs") == {}


async def test_missing_rights_are_an_error_of_the_set_up(room: Room) -> None:
    words = 'jobs.batch is forbidden: User "agent" cannot create resource "jobs" in API group "batch"'
    room.server.refused["POST", "jobs"] = status(403, words)
    await fails(room.batch.submit(JOB), Permanent, "rights")
    room.server.refused["POST", "jobs"] = status(404, 'namespaces "here" not found')
    await fails(room.batch.submit(JOB), Permanent, "not found")
    await fails(room.batch.check(JOB), Permanent, "not found")
    room.server.refused.clear()
    await room.batch.check(JOB)
    assert room.server.kind("jobs") == {}, "a check creates nothing"


@pytest.mark.parametrize("change", [{"name": "Forestay_1"}, {"name": "a" * 64}, {"account": "a"}, {"user": "ann"}])
async def test_what_kubernetes_cannot_do_is_said_before_anything_is_sent(room: Room, change: dict[str, str]) -> None:
    await fails(room.batch.submit(replace(JOB, **change)), Permanent)  # type: ignore[arg-type]
    assert room.server.requests == []


# -- the server does not answer --------------------------------------------------------------------------------


def no_connection(cause: Exception) -> httpx.ConnectError:
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = cause
    return error


def refused_connection() -> httpx.ConnectError:
    return no_connection(ConnectionRefusedError())


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (refused_connection(), SubmitRefusal.SCHEDULER_DOWN),
        (no_connection(ExceptionGroup("", [ConnectionRefusedError()])), SubmitRefusal.SCHEDULER_DOWN),
        (no_connection(ConnectionResetError()), SubmitRefusal.SCHEDULER_DOWN),
        (no_connection(ssl.SSLEOFError()), SubmitRefusal.SCHEDULER_DOWN),
        (httpx.ConnectTimeout(""), SubmitRefusal.NETWORK_DOWN),
        (no_connection(OSError(errno.EHOSTUNREACH, "No route to host")), SubmitRefusal.NETWORK_DOWN),
        (no_connection(socket.gaierror(-2, "Name or service not known")), SubmitRefusal.NETWORK_DOWN),
    ],
)
async def test_a_server_that_is_down_is_told_from_a_network_that_is_down(
    room: Room, fault: Exception, why: SubmitRefusal
) -> None:
    room.server.faults = [fault]
    down = await room.batch.submit(JOB)
    assert isinstance(down, SubmitRefused)
    assert (down.why, down.later) == (why, True)


async def test_a_certificate_that_is_not_trusted_is_an_error_of_the_set_up(room: Room) -> None:
    untrusted = httpx.ConnectError("")
    untrusted.__cause__ = ssl.SSLCertVerificationError()
    untrusted.__cause__.verify_message = "self-signed certificate"
    room.server.faults = [untrusted]
    await fails(room.batch.submit(JOB), Permanent, "not trusted")


async def test_nothing_is_concluded_from_silence(room: Room) -> None:
    await room.batch.submit(JOB)
    for fault in (
        httpx.ReadTimeout(""),
        refused_connection(),
        status(500, "etcdserver: leader changed"),
        status(403, "no"),
    ):
        room.server.faults = [fault]
        outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
        assert outcome.state is BatchState.UNKNOWN
        assert outcome != FORGOTTEN
    room.server.faults = [status(503, "away")]
    await fails(room.batch.find(["forestay-1"]), Transient)
    room.server.faults = [status(503, "away")]
    await fails(room.batch.cancel(["forestay-1"]), Transient)


async def test_a_server_that_asks_to_wait_is_obeyed_by_all_requests(room: Room) -> None:
    busy: list[httpx.Response | Exception] = [status(429, "too many requests", **{"Retry-After": "7"})]
    room.server.faults = [*busy]
    assert await room.batch.submit(JOB) == "forestay-1"
    assert room.clock.slept == [7.0]
    room.server.faults = busy * 3
    answer = await room.batch.submit(replace(JOB, name="forestay-2"))
    assert isinstance(answer, SubmitRefused), "it was turned away each time"
    assert answer.why is SubmitRefusal.SCHEDULER_DOWN
    assert sum(room.clock.slept) == 7.0 * 3
    room.server.faults = [status(503, "away", **{"Retry-After": "100000"})]
    before = room.clock.time
    assert await room.batch.submit(replace(JOB, name="forestay-2")) == "forestay-2"
    assert 7.0 <= room.clock.time - before <= 37.0, "a wait has a limit"


async def test_what_may_have_been_executed_is_never_said_to_be_refused(room: Room) -> None:
    """A repetition that was turned away says nothing about the request before it."""
    unclear = status(503, "away", **{"Retry-After": "1"})
    turned_away = status(429, "too many requests", **{"Retry-After": "1"})
    for faults in ([unclear, turned_away, turned_away], [turned_away, unclear, refused_connection()], [unclear] * 3):
        room.server.faults = [*faults]
        await fails(room.batch.submit(JOB), Transient, "answered 503")


async def test_requests_are_paced(tmp_path: Path) -> None:
    room = Room(tmp_path, pace=Pace(2, 1))
    await room.batch.submit(JOB)
    assert room.clock.time == pytest.approx(2.0), "five requests, two in a second"


@pytest.mark.parametrize("content", [b"[]", b"<html>", b"3"])
async def test_something_else_than_an_api_server_is_no_result(room: Room, content: bytes) -> None:
    room.server.faults = [httpx.Response(200, content=content)] * 2
    outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
    assert outcome.state is BatchState.UNKNOWN


# -- credentials -----------------------------------------------------------------------------------------------


async def test_a_token_that_was_replaced_is_used_at_once_and_never_shown(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    await room.batch.submit(JOB)
    room.server.token = "second"
    outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
    assert outcome.state is BatchState.UNKNOWN
    assert "does not accept the token" in outcome.reason
    room.token.write_text("second")
    assert (await room.batch.outcome(["forestay-1"]))["forestay-1"].state is BatchState.WAITING
    shown = caplog.text + outcome.reason + repr(room.batch) + repr(room.batch.api)
    assert not any(word in shown for word in ("Bearer", SECRET, "second"))


@pytest.mark.parametrize("content", ["", "two words", "a\nb"])
async def test_a_file_without_a_token_is_named(room: Room, content: str) -> None:
    room.token.write_text(content)
    await fails(room.batch.find(["forestay-1"]), Permanent, "contains no token")
    room.token.unlink()
    await fails(room.batch.find(["forestay-1"]), Permanent, "cannot be read")


async def test_a_certificate_authority_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    authority, token, server = tmp_path / "ca.crt", tmp_path / "token", FakeApiServer()
    authority.write_text("one")
    token.write_text("first")
    api = KubernetesApi(
        ApiServer("https://api.example.org", token, authority),
        clock=Clock(),
        pace=Pace(9, 9),
        transport=server.transport(),
    )
    await api.call("GET", "/api/v1/namespaces/here/pods")
    first = api._client
    await api.call("GET", "/api/v1/namespaces/here/pods")
    assert api._client is first
    authority.write_text("another")
    await api.call("GET", "/api/v1/namespaces/here/pods")
    assert api._client is not first
    authority.unlink()
    await fails(api.call("GET", "/api/v1/namespaces/here/pods"), Permanent, "cannot be read")
    await api.close()


# -- states ----------------------------------------------------------------------------------------------------


async def test_lists_are_read_in_pages_and_again_when_they_expire(room: Room) -> None:
    for number in range(7):
        await room.batch.submit(replace(JOB, name=f"forestay-{number}"))
    room.server.page = 3
    names = [f"forestay-{number}" for number in range(8)]
    assert sorted(await room.batch.find(names)) == names[:7]
    room.server.faults = [status(410, "expired")]
    assert len(await room.batch.find(names)) == 7
    room.server.faults = [status(410, "expired")] * 2
    await fails(room.batch.find(names), Transient, "expired")
    endless = reply(200, {"metadata": {"continue": "1"}, "items": []})
    room.server.faults = [endless] * MOST_PAGES
    await fails(room.batch.find(names), Transient, "more than")


async def test_many_jobs_are_read_by_few_requests(room: Room) -> None:
    outcomes = await room.batch.outcome([str(987000000 + number) for number in range(400)] + ["Not a name"])
    assert set(outcomes.values()) == {FORGOTTEN}
    assert len(outcomes) == 401
    assert len(room.server.requests) == 6
    assert max(len(str(request.url)) for request in room.server.requests) < 8192


async def test_a_cancelled_job_has_ended_when_it_is_gone(room: Room) -> None:
    await room.batch.submit(JOB)
    await room.batch.cancel(["forestay-1", "forestay-none", "Not a name"])
    options = json.loads(room.server.requests[-1].content)
    assert options["propagationPolicy"] == "Foreground"
    outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
    assert (outcome.state, outcome.word) == (BatchState.ENDED, "Cancelled")
    await room.batch.cancel(["forestay-1"])
    assert (await room.batch.outcome(["forestay-none"]))["forestay-none"] == FORGOTTEN, "it was never there"
    assert (await room.agent().outcome(["forestay-1"]))["forestay-1"] == FORGOTTEN, (
        "another agent does not know why it is gone"
    )


def pod_of(name: str, **state: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}-x7k2p", "labels": {LAUNCH: name}},
        "spec": {"nodeName": "n1"},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": state.pop("since", "2026-11-18T09:00:00Z")}],
            "containerStatuses": [{"state": {"waiting": state}}],
        },
    }  # fmt: skip


async def test_a_pod_whose_image_cannot_be_pulled_is_given_up_when_patience_ends(room: Room) -> None:
    await room.batch.submit(JOB)
    pods = room.server.kind("pods")
    pods["a"] = pod_of("forestay-1", reason="ImagePullBackOff", message="not found", since="2026-11-18T09:01:00Z")
    outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
    assert (outcome.state, outcome.word) == (BatchState.WAITING, "ImagePullBackOff")
    assert GAVE_UP not in str(room.job()), "six minutes are within its patience"
    pods["a"] = pod_of("forestay-1", reason="ImagePullBackOff", message="not found", since="2026-11-18T08:50:00Z")
    await room.batch.outcome(["forestay-1"])
    assert room.job()["metadata"]["annotations"][GAVE_UP] == "ImagePullBackOff: not found"
    assert room.job()["spec"]["activeDeadlineSeconds"] == 1
    assert room.events == ["a pilot's pod cannot start"]
    pods.clear()
    room.job()["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
    for agent, state in ((room.batch, BatchState.ENDED), (room.agent(), BatchState.LOST)):
        outcome = (await agent.outcome(["forestay-1"]))["forestay-1"]
        assert (outcome.state, outcome.word, outcome.reason) == (state, "ImagePullBackOff", "not found")


async def test_a_name_that_is_no_image_is_given_up_at_once(room: Room) -> None:
    await room.batch.submit(JOB)
    room.server.kind("pods")["a"] = pod_of("forestay-1", reason="InvalidImageName", since="2026-11-18T09:07:00Z")
    room.server.kind("events")["e"] = {
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "InspectFailed",
        "message": "couldn't parse image name",
        "involvedObject": {"kind": "Pod", "name": "forestay-1-x7k2p"},
    }
    await room.batch.outcome(["forestay-1"])
    assert room.job()["metadata"]["annotations"][GAVE_UP] == "InvalidImageName: couldn't parse image name"


async def test_a_pod_that_is_over_the_quota_waits_with_the_reason(room: Room) -> None:
    await room.batch.submit(JOB)
    room.server.kind("events")["e"] = {
        "metadata": {"name": "e"},
        "reason": "FailedCreate",
        "message": 'Error creating: pods "forestay-1-" is forbidden: exceeded quota: team',
        "involvedObject": {"kind": "Job", "name": "forestay-1"},
    }
    outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
    assert (outcome.state, outcome.word) == (BatchState.WAITING, "FailedCreate")
    assert "exceeded quota" in outcome.reason
    room.server.refused["GET", "events"] = status(403, "events is forbidden")
    outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
    assert (outcome.state, outcome.word) == (BatchState.WAITING, "Pending"), (
        "without the right to read events it only knows less"
    )


async def test_a_preempted_pod_that_nobody_saw_go_is_explained_by_its_events(room: Room) -> None:
    await room.batch.submit(JOB)
    words = "Pod here/forestay-1-x7k2p has condition DisruptionTarget matching FailJob rule at index 0"
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": words}
    room.job()["status"] = {"conditions": [failed]}
    room.server.kind("events")["e"] = {
        "metadata": {"name": "e"},
        "reason": "Preempted",
        "message": "Preempted by pod 5 on node n1",
        "involvedObject": {"kind": "Pod", "name": "forestay-1-x7k2p"},
    }
    for _ in range(2):
        outcome = (await room.batch.outcome(["forestay-1"]))["forestay-1"]
        assert (outcome.state, outcome.word) == (BatchState.LOST, "Preempted")


async def test_what_is_kept_in_memory_is_bounded(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MOST_KEPT", 3)
    for number in range(5):
        await room.batch.submit(replace(JOB, name=f"forestay-{number}"))
    await room.batch.cancel([f"forestay-{number}" for number in range(5)])
    assert list(room.batch._cancelled) == ["forestay-2", "forestay-3", "forestay-4"]


async def test_the_programs_of_earlier_releases_go_when_no_job_needs_them(room: Room) -> None:
    await room.batch.submit(JOB)
    old = PROGRAM.name
    newer = PilotProgram(b"the next pilot", b"authorities")
    await room.agent(newer).submit(replace(JOB, name="forestay-2"))
    assert set(room.server.kind("configmaps")) == {old, newer.name}, "a Job still needs the old one"
    await room.batch.cancel(["forestay-1"])
    await room.agent(newer).submit(replace(JOB, name="forestay-3"))
    assert set(room.server.kind("configmaps")) == {newer.name}
    stored = room.server.kind("configmaps")[newer.name]
    assert base64.b64decode(stored["binaryData"]["ca.crt"]) == b"authorities"
    with pytest.raises(Permanent, match="larger"):
        program_object(PilotProgram(b"x" * 1_000_000), SETTINGS)


# -- what a Job contains ---------------------------------------------------------------------------------------


def test_a_job_runs_once_and_as_nobody_special_whatever_its_options_say() -> None:
    options = (
        '{"spec": {"backoffLimit": 6, "suspend": false, "template": {"spec": {"restartPolicy": "OnFailure", "hostPID": true, "runtimeClassName": "gvisor"}}}}',
        '{"spec": {"template": {"spec": {"securityContext": {"runAsNonRoot": false, "supplementalGroups": [7]}, "containers": [{"name": "x"}]}}}}',
    )
    made = job_object(replace(JOB, options=options), "program", SETTINGS)
    spec, pod = made["spec"], made["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["suspend"], spec["parallelism"], pod["restartPolicy"]) == (0, True, 1, "Never")
    assert (pod["hostPID"], pod["automountServiceAccountToken"], pod["runtimeClassName"]) == (False, False, "gvisor")
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["supplementalGroups"]) == (1000, [7])
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_job_asks_for_what_its_size_has() -> None:
    settings = replace(
        SETTINGS,
        node_selector={"pool": "batch"},
        tolerations=({"key": "batch", "operator": "Exists"},),
        priority_class="low",
        service_account="pilots",
        pull_secrets=("registry",),
        volumes=(
            PodVolume("/outputs", claim="outputs"),
            PodVolume("/certificate", secret="certificate", read_only=True),
        ),
    )
    made = job_object(JOB, "program", settings)
    pod = made["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    wanted = {"cpu": "4", "memory": str(8 << 30), "ephemeral-storage": str(1 << 30), "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": wanted, "limits": wanted}
    assert (pod["activeDeadlineSeconds"], made["spec"]["activeDeadlineSeconds"]) == (3600, 3600 + 7 * 86_400)
    assert (pod["nodeSelector"], pod["priorityClassName"], pod["serviceAccountName"]) == (
        {"pool": "batch"},
        "low",
        "pilots",
    )
    assert pod["tolerations"] == [{"key": "batch", "operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [
        "/run/forestay", "/var/forestay", "/outputs", "/certificate",
    ]  # fmt: skip
    assert [sorted(volume) for volume in pod["volumes"]] == [
        ["configMap", "name"], ["emptyDir", "name"], ["name", "persistentVolumeClaim"], ["name", "secret"],
    ]  # fmt: skip
    assert SECRET not in str(made)
    own = replace(SETTINGS, sizes={"large": PodSize(image="other:2")})
    (container,) = job_object(JOB, "program", own)["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "other:2"


@pytest.mark.parametrize("option", ["--partition=main", "[1]", '"text"'])
def test_an_option_that_is_no_patch_is_named(option: str) -> None:
    with pytest.raises(Permanent, match="an option of the size is no JSON"):
        job_object(replace(JOB, options=(option,)), "program", SETTINGS)
