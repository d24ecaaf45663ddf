"""What a Job and its pods say about a pilot: pure functions from their status to `BatchOutcome`.

The word is Kubernetes' own reason, because the failure patterns know it: `OOMKilled`, `Evicted`, `PreemptionByScheduler`, `ImagePullBackOff`. The most
specific one wins: a disruption or the pod's own reason says why a container was killed, the container's says how, the Job's only that it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from forestay.adapters.kubernetes.api import Fields, seconds_of
from forestay.adapters.kubernetes.objects import GAVE_UP, SUBMITTED
from forestay.domain.sites.batch import OVER, BatchOutcome, BatchState

NEVER = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Reasons of a container that waits and can never start."""
PERHAPS = frozenset({
    "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError",
    "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "PostStartHookError", "ContainerCreating", "PodInitializing",
})  # fmt: skip
"""Reasons of one that waits and may start later: after the patience of the site it is given up."""
OVERDUE = 120
"""Seconds after which a deleted pod that its node has not confirmed is given up, beyond its grace period."""
UNEXPLAINED = frozenset({"ContainerCreating", "PodInitializing"})
"""Those that do not say what is missing."""
POD_FAILURE_POLICY = "PodFailurePolicy"
"""The Job's own reason when its pod was disrupted."""
_OVER = ("Succeeded", "Failed")
_PHASES = frozenset({"", "Pending", "Running", "Succeeded", "Failed", "Unknown"})
_PER_SIGNAL = 128
_MOST_SIGNAL = 64
_DISRUPTION = "DisruptionTarget"
_GENERAL = frozenset({"", "Error", "Completed"})
_SHUT_DOWN = re.compile(r"node shutdown|node is shutting down", re.I)
_POD_OF = re.compile(r"^Pod [^/\s]+/(\S+) has condition ")
_QUOTA = "exceeded quota"


class StartFailure(NamedTuple):
    """Why a pod that has a node, or a Job that has no pod, does not start."""

    word: str
    reason: str
    since: int | None
    """Seconds since 1970, by the API server's clock."""
    pod: str = ""


def submitted(job: Fields) -> bool:
    """Whether a Job was marked as submitted: without the mark it has never run."""
    return _labels(job).get(SUBMITTED) == "true"


def outcome_of(
    job: Fields | None, pods: Sequence[Fields], *, at: int | None, seen: BatchOutcome | None = None
) -> BatchOutcome:
    """The outcome of a Job. `at`: the API server's time. `seen`: what was read of its pod before, while that still existed."""
    pod = max(pods, key=lambda each: str(_meta(each).get("creationTimestamp")), default=None)
    known = _pod_outcome(pod, at=at) if pod is not None else seen
    if job is None:
        # Somebody deleted it. While pods are left, its processes may live.
        return known if known is not None and pod is not None else BatchOutcome(BatchState.UNKNOWN)
    conditions = _conditions(job)
    if "Complete" in conditions:
        end = (
            known
            if known is not None and known.state is BatchState.ENDED
            else BatchOutcome(BatchState.ENDED, exit_code=0)
        )
        return replace(end, word="Completed", reason="")
    if "Failed" in conditions:
        return _failed(job, conditions["Failed"], known, present=pod is not None)
    if known is not None and pod is not None:
        return known
    if _spec(job).get("suspend"):
        suspended = conditions.get("Suspended", {})
        return BatchOutcome(BatchState.WAITING, "Suspended", _line(suspended.get("message")))
    target = conditions.get("FailureTarget")
    if target is not None:
        return BatchOutcome(BatchState.RUNNING, _text(target.get("reason")), _line(target.get("message")))
    return BatchOutcome(BatchState.WAITING, "Pending")


def _failed(job: Fields, failed: Fields, known: BatchOutcome | None, *, present: bool) -> BatchOutcome:
    """The outcome of a Job that failed. A pod that is gone may have been removed by force: only one that was seen to end has ended."""
    if known is not None and known.state not in OVER and present:
        return known  # its pod is still being stopped
    word, reason = _text(failed.get("reason")) or "Failed", _line(failed.get("message"))
    gave_up = _text(_part(_meta(job), "annotations").get(GAVE_UP))
    if gave_up:
        word, _, reason = gave_up.partition(": ")
        waited = known is not None and known.state is BatchState.WAITING
        end = known or BatchOutcome(BatchState.LOST)
        return replace(end, state=BatchState.ENDED if waited else _over(end.state), word=word, reason=reason)
    if known is None:
        return BatchOutcome(BatchState.LOST, word, reason)
    end = replace(known, state=_over(known.state))
    return replace(end, word=word, reason=reason) if end.word in _PHASES else end


def _over(state: BatchState) -> BatchState:
    return state if state in OVER else BatchState.LOST


def _pod_outcome(pod: Fields, *, at: int | None) -> BatchOutcome:
    """The outcome of a pod, as far as it says."""
    status, phase = _status(pod), _text(_status(pod).get("phase"))
    node = _text(_spec(pod).get("nodeName"))
    disruption = _conditions(pod).get(_DISRUPTION)
    terminated = _terminated(pod)
    outcome = BatchOutcome(
        BatchState.RUNNING,
        word=phase,
        nodes=(node,) if node else (),
        restarts=0,
        started=seconds_of((terminated or _running(pod)).get("startedAt")),
        ended=seconds_of((terminated or {}).get("finishedAt")),
    )
    word, reason = _why(pod, disruption, terminated)
    outcome = replace(outcome, word=word or phase, reason=reason)
    if phase in _OVER:
        code = (terminated or {}).get("exitCode")
        signal = (terminated or {}).get("signal")
        number = code if isinstance(code, int) else None
        if not isinstance(signal, int) or not signal:
            signal = (
                number - _PER_SIGNAL
                if number is not None and _PER_SIGNAL < number <= _PER_SIGNAL + _MOST_SIGNAL
                else None
            )
        # The garbage collector of pods ends those whose nodes are gone: no node confirmed it.
        lost = _text((disruption or {}).get("reason")) == "DeletionByPodGC" or status.get("reason") == "NodeLost"
        return replace(
            outcome,
            state=BatchState.LOST if lost else BatchState.ENDED,
            exit_code=number if signal is None else None,
            signal=signal,
            node_events=(f"{node}: {reason}",) if lost and node and reason else (),
        )
    if phase == "Unknown" or _overdue(pod, at):
        return replace(
            outcome,
            state=BatchState.LOST,
            word="NodeLost",
            reason=reason or "its node does not confirm that the pod has ended",
            node_events=(f"{node}: {word}",) if node and word else (),
        )
    if phase == "Pending":
        return replace(outcome, state=BatchState.RUNNING if _deleted(pod) and node else BatchState.WAITING)
    return outcome


def _why(pod: Fields, disruption: Fields | None, terminated: Fields | None) -> tuple[str, str]:
    """The most specific reason that a pod gives for its state, and its words about that."""
    status = _status(pod)
    reason, message = _text(status.get("reason")), _line(status.get("message"))
    how, last_words = _text((terminated or {}).get("reason")), _line((terminated or {}).get("message"))
    if reason == "Terminated" and _SHUT_DOWN.search(message):
        reason = "NodeShutdown"
    if not reason and disruption is not None:
        reason, message = _text(disruption.get("reason")), _line(disruption.get("message"))
    if reason:
        return reason, "; ".join(filter(None, (message, how if how not in _GENERAL else "")))
    if how:
        return how, last_words
    waiting = _waiting(pod)
    if waiting is not None:
        return _text(waiting.get("reason")), _line(waiting.get("message"))
    scheduled = _of_type(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _text(scheduled.get("reason")), _line(scheduled.get("message"))
    return "", ""


def start_failure(job: Fields, pods: Sequence[Fields], events: Sequence[Fields] = ()) -> StartFailure | None:
    """Why a Job does not start, if that may be for good. `events`: of the Job itself, newest last."""
    if not wants_reason(job):
        return None
    if not pods:
        refused = [event for event in events if event.get("reason") == "FailedCreate"]
        if not refused or _QUOTA in _text(refused[-1].get("message")):
            return None  # others leave the quota free later: it waits, as in a queue
        since = seconds_of(_status(job).get("startTime"))
        return StartFailure("FailedCreate", _line(refused[-1].get("message")), since)
    pod = pods[0]
    waiting = _waiting(pod)
    if len(pods) > 1 or waiting is None or _deleted(pod) or not _spec(pod).get("nodeName"):
        return None
    word = _text(waiting.get("reason"))
    if word not in NEVER | PERHAPS:
        return None
    since = seconds_of(_of_type(pod, "PodScheduled").get("lastTransitionTime"))
    return StartFailure(word, _line(waiting.get("message")), since, _text(_meta(pod).get("name")))


def explained(failure: StartFailure, events: Sequence[Fields]) -> StartFailure:
    """The failure in the words of the pod's newest warning, if its container says nothing itself."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    if not warnings or (failure.reason and failure.word not in UNEXPLAINED):
        return failure
    word = _text(warnings[-1].get("reason")) if failure.word in UNEXPLAINED else failure.word
    return failure._replace(word=word or failure.word, reason=_line(warnings[-1].get("message")))


def disrupted_pod(job: Fields) -> str:
    """The pod whose disruption ended a Job, by the Job's own words; empty if none is named."""
    match = _POD_OF.match(_text(_conditions(job).get("Failed", {}).get("message")))
    return match[1] if match else ""


def disruption_by(events: Sequence[Fields]) -> tuple[str, str]:
    """Why a pod that no longer exists was disrupted, by its events; empty if they do not say."""
    reasons = {
        "Preempted": "Preempted",
        "TaintManagerEviction": "DeletionByTaintManager",
        "Evicted": "Evicted",
        "NodeNotReady": "NodeNotReady",
    }
    for event in reversed(events):
        word = reasons.get(_text(event.get("reason")))
        if word:
            return word, _line(event.get("message"))
    return "", ""


def refusal_of(events: Sequence[Fields]) -> str:
    """The newest refusal to create a Job's pod; empty if there is none."""
    refused = [event for event in events if event.get("reason") == "FailedCreate"]
    return _line(refused[-1].get("message")) if refused else ""


def wants_reason(job: Fields) -> bool:
    """Whether a Job without a pod should have one: its events say why not."""
    return not (
        _conditions(job).keys() & {"Failed", "Complete", "FailureTarget"} or _spec(job).get("suspend") or _deleted(job)
    )


def name_of(resource: Fields) -> str:
    return _text(_meta(resource).get("name"))


def uid_of(resource: Fields) -> str:
    return _text(_meta(resource).get("uid"))


def label_of(resource: Fields, label: str) -> str:
    return _text(_labels(resource).get(label))


def _overdue(pod: Fields, at: int | None) -> bool:
    """Whether a pod's node has not confirmed its deletion in time. The time of deletion includes its grace period."""
    due = seconds_of(_meta(pod).get("deletionTimestamp"))
    return due is not None and at is not None and at > due + OVERDUE


def _deleted(resource: Fields) -> bool:
    return bool(_meta(resource).get("deletionTimestamp"))


def _containers(pod: Fields) -> list[Fields]:
    status = _status(pod)
    found = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [each for each in found if isinstance(each, Mapping)]


def _states(pod: Fields, kind: str) -> list[Fields]:
    states = [each.get("state") for each in _containers(pod)]
    found = [state.get(kind) for state in states if isinstance(state, Mapping)]
    return [each for each in found if isinstance(each, Mapping)]


def _terminated(pod: Fields) -> Fields | None:
    found = _states(pod, "terminated")
    return found[-1] if found else None


def _waiting(pod: Fields) -> Fields | None:
    found = _states(pod, "waiting")
    return found[0] if found else None


def _running(pod: Fields) -> Fields:
    found = _states(pod, "running")
    return found[-1] if found else {}


def _conditions(resource: Fields) -> dict[str, Fields]:
    """The conditions that are true, by their types."""
    return {
        _text(each.get("type")): each
        for each in _status(resource).get("conditions") or ()
        if isinstance(each, Mapping) and each.get("status") == "True"
    }


def _of_type(resource: Fields, kind: str) -> Fields:
    found = [
        each
        for each in _status(resource).get("conditions") or ()
        if isinstance(each, Mapping) and each.get("type") == kind
    ]
    return found[0] if found else {}


def _labels(resource: Fields) -> Fields:
    return _part(_meta(resource), "labels")


def _meta(resource: Fields) -> Fields:
    return _part(resource, "metadata")


def _spec(resource: Fields) -> Fields:
    return _part(resource, "spec")


def _status(resource: Fields) -> Fields:
    return _part(resource, "status")


def _part(resource: Fields, name: str) -> Fields:
    part = resource.get(name)
    return part if isinstance(part, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _line(value: object) -> str:
    return " ".join(_text(value).split())[:1000]
