"""Jobs and pods as the Kubernetes documentation and its sources show them: what becomes of them, and the causes that the shipped patterns see in it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.adapters.kubernetes.objects import GAVE_UP, SUBMITTED
from forestay.adapters.kubernetes.reading import (
    OVERDUE,
    disrupted_pod,
    disruption_by,
    explained,
    outcome_of,
    refusal_of,
    start_failure,
    submitted,
)
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.evidence.evidence import Evidence, with_batch_word
from forestay.domain.sites.batch import BatchOutcome, BatchState

Fields = dict[str, Any]
THEN = "2026-11-18T09:06:40Z"
START = 1_794_992_800
"""The same in seconds."""
NOW = START + 60


def job(*conditions: Fields, **parts: Any) -> Fields:
    return {
        "metadata": {"name": "forestay-1", "labels": {SUBMITTED: "true"}, **parts.get("metadata", {})},
        "spec": parts.get("spec", {"suspend": False}),
        "status": {"conditions": list(conditions), **parts.get("status", {})},
    }


def condition(kind: str, reason: str = "", message: str = "", status: str = "True", **more: str) -> Fields:
    return {"type": kind, "status": status, "reason": reason, "message": message, **more}


def pod(phase: str, *conditions: Fields, container: Fields | None = None, **parts: Any) -> Fields:
    statuses = [] if container is None else [{"name": "pilot", "state": container}]
    return {
        "metadata": {"name": "forestay-1-x7k2p", "creationTimestamp": THEN, **parts.get("metadata", {})},
        "spec": {"nodeName": parts.get("node", "n1")},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": statuses,
            **parts.get("status", {}),
        },
    }


def terminated(reason: str, code: int, **more: Any) -> Fields:
    return {"terminated": {"reason": reason, "exitCode": code, "startedAt": THEN, "finishedAt": THEN, **more}}


def waiting(reason: str, message: str = "") -> Fields:
    return {"waiting": {"reason": reason, "message": message}}


FAILED = condition("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
DISRUPTED = condition(
    "Failed",
    "PodFailurePolicy",
    "Pod here/forestay-1-x7k2p has condition DisruptionTarget matching FailJob rule at index 0",
)
LOW_MEMORY = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 60Mi. Container pilot was using 31Gi, request is 0."
LOW_DISK = "The node was low on resource: ephemeral-storage. Threshold quantity: 6442450944, available: 5120Mi."
SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
PREEMPTED = condition(
    "DisruptionTarget", "PreemptionByScheduler", "default-scheduler: preempting to accommodate a higher priority pod"
)
TAINTED = condition("DisruptionTarget", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
COLLECTED = condition("DisruptionTarget", "DeletionByPodGC", "PodGC: node no longer exists")
PULL = 'Back-off pulling image "registry.example.org/pilot:2": ErrImagePull: not found'

ENDS = [
    ("oom", job(FAILED), pod("Failed", container=terminated("OOMKilled", 137)), BatchState.ENDED, "OOMKilled", Cause.MEMORY),
    (
        "evicted for memory",
        job(FAILED),
        pod("Failed", condition("DisruptionTarget", "TerminationByKubelet"), status={"reason": "Evicted", "message": LOW_MEMORY}),
        BatchState.ENDED,
        "Evicted",
        Cause.MEMORY,
    ),
    (
        "evicted for disk",
        job(FAILED),
        pod("Failed", status={"reason": "Evicted", "message": LOW_DISK}, container=terminated("Error", 137)),
        BatchState.ENDED,
        "Evicted",
        Cause.DISK,
    ),
    (
        "node shut down",
        job(DISRUPTED),
        pod(
            "Failed",
            condition("DisruptionTarget", "TerminationByKubelet", SHUTDOWN),
            status={"reason": "Terminated", "message": SHUTDOWN},
        ),
        BatchState.ENDED,
        "NodeShutdown",
        Cause.NODE,
    ),
    (
        "preempted",
        job(DISRUPTED),
        pod("Failed", PREEMPTED, container=terminated("Error", 143)),
        BatchState.ENDED,
        "PreemptionByScheduler",
        Cause.PREEMPTED,
    ),
    ("node gone", job(DISRUPTED), pod("Failed", COLLECTED), BatchState.LOST, "DeletionByPodGC", Cause.NODE),
    (
        "over its time",
        job(FAILED),
        pod(
            "Failed",
            status={"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"},
            container=terminated("Error", 137),
        ),
        BatchState.ENDED,
        "DeadlineExceeded",
        Cause.TIME,
    ),
    (
        "not started in time",
        job(condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")),
        None,
        BatchState.LOST,
        "DeadlineExceeded",
        Cause.TIME,
    ),
    (
        "a command that is missing",
        job(FAILED),
        pod("Failed", container=terminated("StartError", 128, message='exec: "python3": executable file not found in $PATH')),
        BatchState.ENDED,
        "StartError",
        Cause.CODE,
    ),
    (
        "an image that is missing",
        job(
            condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline"),
            metadata={"annotations": {GAVE_UP: f"ImagePullBackOff: {PULL}"}, "labels": {SUBMITTED: "true"}},
        ),
        None,
        BatchState.LOST,
        "ImagePullBackOff",
        Cause.BAD_INPUT,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("read", "own", "state", "word", "cause"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS]
)
def test_an_end_keeps_kubernetes_own_word_and_its_cause_is_found(
    read: Fields, own: Fields | None, state: BatchState, word: str, cause: Cause
) -> None:
    outcome = outcome_of(read, [own] if own else [], at=NOW)
    assert (outcome.state, outcome.word) == (state, word)
    reason = "; ".join(filter(None, (outcome.reason, *outcome.node_events)))
    evidence = with_batch_word(
        Evidence(more={"reason": "lost"}),
        word=outcome.word,
        reason=reason,
        nodes=outcome.nodes,
        pilot="p",
        batch_job="b",
    )
    assert classifier().classify(evidence).cause is cause


def test_a_pilot_that_ended_well() -> None:
    outcome = outcome_of(job(condition("Complete")), [pod("Succeeded", container=terminated("Completed", 0))], at=NOW)
    assert outcome == BatchOutcome(
        BatchState.ENDED, "Completed", exit_code=0, nodes=("n1",), started=START, ended=START
    )
    assert outcome_of(job(condition("Complete")), [], at=NOW).state is BatchState.ENDED


@pytest.mark.parametrize(
    ("code", "expected"), [(3, (3, None)), (137, (None, 9)), (143, (None, 15)), (255, (255, None))]
)
def test_a_signal_is_told_from_an_exit_code(code: int, expected: tuple[int | None, int | None]) -> None:
    outcome = outcome_of(job(FAILED), [pod("Failed", container=terminated("Error", code, message="no server"))], at=NOW)
    assert (outcome.exit_code, outcome.signal) == expected
    assert outcome.reason == "no server"


def test_a_pod_that_ended_counts_before_the_jobs_controller_saw_it() -> None:
    assert outcome_of(job(), [pod("Failed", container=terminated("Error", 1))], at=NOW).state is BatchState.ENDED


@pytest.mark.parametrize(
    ("read", "own", "state", "word"),
    [
        (job(spec={"suspend": True}), None, BatchState.WAITING, "Suspended"),
        (job(), None, BatchState.WAITING, "Pending"),
        (
            job(),
            pod("Pending", condition("PodScheduled", "Unschedulable", "0/3 nodes are available", "False"), node=""),
            BatchState.WAITING,
            "Unschedulable",
        ),
        (job(), pod("Pending", container=waiting("ContainerCreating")), BatchState.WAITING, "ContainerCreating"),
        (job(), pod("Running", container={"running": {"startedAt": THEN}}), BatchState.RUNNING, "Running"),
        (job(), pod("Unknown"), BatchState.LOST, "NodeLost"),
    ],
)
def test_what_has_not_ended(read: Fields, own: Fields | None, state: BatchState, word: str) -> None:
    outcome = outcome_of(read, [own] if own else [], at=NOW)
    assert (outcome.state, outcome.word) == (state, word)


def test_a_pod_that_its_node_does_not_confirm_is_lost_only_when_it_is_overdue() -> None:
    gone = pod("Running", TAINTED, metadata={"deletionTimestamp": THEN})
    assert outcome_of(job(), [gone], at=START + OVERDUE).state is BatchState.RUNNING
    late = outcome_of(job(), [gone], at=START + OVERDUE + 1)
    assert (late.state, late.word) == (BatchState.LOST, "NodeLost")
    assert late.node_events == ("n1: DeletionByTaintManager",)
    assert outcome_of(job(), [gone], at=None).state is BatchState.RUNNING, (
        "without the cluster's time nothing is concluded"
    )


def test_a_job_that_was_deleted_is_unknown_unless_pods_are_left() -> None:
    assert outcome_of(None, [], at=NOW).state is BatchState.UNKNOWN
    assert outcome_of(None, [pod("Running")], at=NOW).state is BatchState.RUNNING


def test_what_was_seen_of_a_pod_explains_the_end_after_it_is_gone_which_nobody_confirmed() -> None:
    seen = outcome_of(job(), [pod("Running", PREEMPTED, metadata={"deletionTimestamp": THEN})], at=None)
    outcome = outcome_of(job(DISRUPTED), [], at=NOW, seen=seen)
    assert (outcome.state, outcome.word, outcome.nodes) == (BatchState.LOST, "PreemptionByScheduler", ("n1",))
    unseen = outcome_of(job(DISRUPTED), [], at=NOW)
    assert (unseen.state, unseen.word) == (BatchState.LOST, "PodFailurePolicy")
    assert disrupted_pod(job(DISRUPTED)) == "forestay-1-x7k2p"
    assert disruption_by([{"reason": "Scheduled"}, {"reason": "TaintManagerEviction", "message": "Marking"}]) == (
        "DeletionByTaintManager",
        "Marking",
    )
    assert disruption_by([]) == ("", "")


def test_a_job_that_failed_has_not_ended_while_its_pod_is_being_stopped() -> None:
    """Kubernetes before 1.31 says so at once."""
    stopping = pod("Running", metadata={"deletionTimestamp": THEN})
    late = condition("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")
    assert outcome_of(job(late), [stopping], at=START).state is BatchState.RUNNING
    given_up = job(late, metadata={"annotations": {GAVE_UP: "ImagePullBackOff: no"}, "labels": {SUBMITTED: "true"}})
    assert outcome_of(given_up, [stopping], at=START).state is BatchState.RUNNING
    waited, ran = BatchOutcome(BatchState.WAITING, "ImagePullBackOff"), BatchOutcome(BatchState.RUNNING, "Running")
    assert outcome_of(given_up, [], at=START, seen=waited).state is BatchState.ENDED
    assert outcome_of(given_up, [], at=START, seen=ran).state is BatchState.LOST
    assert outcome_of(job(late), [], at=START, seen=ran).word == "DeadlineExceeded"


def test_a_job_without_the_mark_was_not_submitted() -> None:
    assert submitted(job())
    assert not submitted(job(metadata={"labels": {}}))
    assert not submitted({})


@pytest.mark.parametrize(
    "reason", ["InvalidImageName", "ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"]
)
def test_a_pod_that_cannot_start_is_noticed(reason: str) -> None:
    scheduled = condition("PodScheduled", lastTransitionTime=THEN)
    failure = start_failure(job(), [pod("Pending", scheduled, container=waiting(reason, "why"))])
    assert failure is not None
    assert (failure.word, failure.reason, failure.since, failure.pod) == (reason, "why", START, "forestay-1-x7k2p")


def test_a_pod_that_waits_for_a_node_or_runs_is_no_failure() -> None:
    assert start_failure(job(), [pod("Pending", node="")]) is None
    assert start_failure(job(), [pod("Running", container={"running": {}})]) is None
    assert start_failure(job(FAILED), [pod("Pending", container=waiting("ImagePullBackOff"))]) is None
    assert start_failure(job(spec={"suspend": True}), []) is None


def test_a_refused_pod_waits_for_a_quota_and_fails_for_anything_else() -> None:
    quota = {
        "reason": "FailedCreate",
        "message": 'pods "forestay-1-" is forbidden: exceeded quota: team, requested: cpu=4',
    }
    policy = {"reason": "FailedCreate", "message": 'violates PodSecurity "restricted:latest"'}
    assert start_failure(job(), [], [quota]) is None
    assert refusal_of([quota]) == quota["message"]
    failure = start_failure(job(status={"startTime": THEN}), [], [quota, policy])
    assert failure is not None
    assert (failure.word, failure.reason) == ("FailedCreate", policy["message"])
    assert start_failure(job(), [], []) is None


def test_events_explain_what_the_container_does_not() -> None:
    failure = start_failure(job(), [pod("Pending", container=waiting("ContainerCreating"))])
    assert failure is not None
    events = [{"type": "Warning", "reason": "FailedMount", "message": 'configmap "x" not found'}, {"type": "Normal"}]
    assert explained(failure, events)[:2] == ("FailedMount", 'configmap "x" not found')
    assert explained(failure, []) == failure
    pull = failure._replace(word="ImagePullBackOff", reason="Back-off")
    assert explained(pull, events) == pull


@pytest.mark.parametrize(
    "value", [None, 3, "text", [], {"conditions": None, "containerStatuses": [3, {"state": None}]}]
)
def test_a_status_that_is_no_status_says_nothing(value: object) -> None:
    strange = {"metadata": value, "spec": value, "status": value}
    assert outcome_of(strange, [strange], at=None).state is BatchState.RUNNING
    assert outcome_of(strange, [], at=None).state is BatchState.WAITING
    assert start_failure(strange, [strange]) is None
