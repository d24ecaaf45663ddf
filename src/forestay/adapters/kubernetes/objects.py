"""The objects that a pilot consists of in Kubernetes: a Job with one pod, the Secret of its environment, and a ConfigMap with the program.

A Job is created suspended and without its Secret. The Secret is owned by the Job, so it exists only as long as the Job does. A last patch marks the
Job as submitted and lets it start: a Job without that mark has never run, whatever became of the agent that created it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from forestay.adapters.kubernetes.api import Fields
from forestay.domain.sites.batch import PilotJob
from forestay.ports.errors import Permanent

SITE = "forestay/site"
LAUNCH = "forestay/launch"
SUBMITTED = "forestay/submitted"
GAVE_UP = "forestay/gave-up"
"""Annotation of a Job that the agent ended because its pod could not start: why."""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = {"app.kubernetes.io/name": "forestay-pilot", "app.kubernetes.io/managed-by": "forestay-site-agent"}
PROGRAM_FOLDER = "/run/forestay"
PROGRAM = f"{PROGRAM_FOLDER}/pilot.pyz"
CA_FILE = f"{PROGRAM_FOLDER}/ca.crt"
WORK = "/var/forestay"
MOST_PROGRAM = 900_000
"""Bytes of what a ConfigMap holds; Kubernetes accepts one of 1 MiB."""
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""The names that are valid for a Job, its pod's host name and a label."""


@dataclass(frozen=True, slots=True)
class PodVolume:
    """A volume that every pilot mounts: a PersistentVolumeClaim, or a Secret."""

    path: str
    claim: str = ""
    secret: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PodSize:
    """What the pods of one size have beside CPUs and memory."""

    image: str = ""
    """Empty: the site's."""
    gpus: int = 0
    disk: int | None = None


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What is the same for all pilots of a site."""

    site: str
    namespace: str
    image: str
    user: int = 1000
    group: int = 1000
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str | int], ...] = ()
    priority_class: str = ""
    gpu_resource: str = "nvidia.com/gpu"
    volumes: tuple[PodVolume, ...] = ()
    grace: int = 60
    """Seconds between SIGTERM and SIGKILL."""
    queue_wait: int = 7 * 86_400
    """Seconds after which a pilot that still waits can no longer register."""
    keep_finished: int = 86_400
    """Seconds for which a Job stays after its end."""
    sizes: Mapping[str, PodSize] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PilotProgram:
    """The pilot's program, and the certificate authorities that it trusts; empty: the image's."""

    pilot: bytes
    ca: bytes = b""

    @property
    def name(self) -> str:
        """The ConfigMap's name: other content, other name."""
        return f"forestay-pilot-{hashlib.sha256(self.pilot + b'|' + self.ca).hexdigest()[:16]}"


def program_object(program: PilotProgram, settings: PodSettings) -> dict[str, Any]:
    """The ConfigMap with the program."""
    if len(program.pilot) + len(program.ca) > MOST_PROGRAM:
        raise Permanent("the pilot and the certificate authorities are larger than a ConfigMap may be: shorten ca_file")
    files = {"pilot.pyz": program.pilot} | ({"ca.crt": program.ca} if program.ca else {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": program.name, "labels": {**MANAGED, SITE: settings.site}},
        "immutable": True,
        "binaryData": {name: base64.b64encode(content).decode() for name, content in files.items()},
    }


def secret_object(job: PilotJob, *, uid: str, settings: PodSettings) -> dict[str, Any]:
    """The Secret with the job's environment, which Kubernetes removes together with the Job."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": job.name,
            "labels": {**MANAGED, SITE: settings.site, LAUNCH: job.name},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": uid, "blockOwnerDeletion": False}
            ],
        },
        "data": {name: base64.b64encode(value.encode()).decode() for name, value in job.environment.items()},
    }


def submission_patch(job: PilotJob, *, uid: str) -> dict[str, Any]:
    """What makes a Job a submitted one. With a queue, Kueue lets it start; without, it starts at once."""
    labels = {SUBMITTED: "true"} | ({KUEUE_QUEUE: job.queue} if job.queue else {})
    return {"metadata": {"uid": uid, "labels": labels}} | ({} if job.queue else {"spec": {"suspend": False}})


def give_up_patch(why: str) -> dict[str, Any]:
    """What ends a Job whose pod cannot start, so that it stays with the reason until it expires."""
    return {"metadata": {"annotations": {GAVE_UP: why[:2000]}}, "spec": {"activeDeadlineSeconds": 1}}


def job_object(job: PilotJob, program: str, settings: PodSettings) -> dict[str, Any]:
    """The Job. The options of its size are JSON merge patches of it; what makes it run once, and as nobody special, cannot be changed by them."""
    made = _merged(_preferences(job, settings), *(_patch(text) for text in job.options), _fixed(job, program, settings))
    if not isinstance(made, dict):
        raise Permanent("an option of the size replaces the whole Job")
    return made


def _preferences(job: PilotJob, settings: PodSettings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [dict(toleration) for toleration in settings.tolerations],
        "terminationGracePeriodSeconds": settings.grace,
        "securityContext": {
            "runAsUser": settings.user,
            "runAsGroup": settings.group,
            "fsGroup": settings.group,
            "fsGroupChangePolicy": "OnRootMismatch",
        },
    }
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if settings.service_account:
        spec["serviceAccountName"] = settings.service_account
    return {"spec": {"ttlSecondsAfterFinished": settings.keep_finished, "template": {"spec": spec}}}


def _fixed(job: PilotJob, program: str, settings: PodSettings) -> dict[str, Any]:
    labels = {**MANAGED, SITE: settings.site, LAUNCH: job.name}
    size = settings.sizes.get(job.size, PodSize())
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostNetwork": False,
        "hostPID": False,
        "hostIPC": False,
        "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [],
        "containers": [_container(job, size, settings)],
        "volumes": _volumes(program, size, settings),
    }
    deadline: dict[str, Any] = {}
    if job.wall is not None:
        pod["activeDeadlineSeconds"] = job.wall  # from the pod's start on its node
        deadline = {
            "activeDeadlineSeconds": job.wall + settings.queue_wait
        }  # from the Job's start, with its wait for a node
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name, "namespace": settings.namespace, "labels": labels},
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            # A pod that was evicted or preempted is not replaced, and counts as over only when its node has confirmed it.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            **deadline,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(job: PilotJob, size: PodSize, settings: PodSettings) -> dict[str, Any]:
    amounts = {"cpu": str(job.cpus)}
    if job.memory is not None:
        amounts["memory"] = str(job.memory)
    if size.disk is not None:
        amounts["ephemeral-storage"] = str(size.disk)
    if size.gpus:
        amounts[settings.gpu_resource] = str(size.gpus)
    mounts = [
        {"name": "program", "mountPath": PROGRAM_FOLDER, "readOnly": True},
        {"name": "work", "mountPath": WORK},
        *(
            {"name": f"volume-{number}", "mountPath": volume.path, "readOnly": volume.read_only}
            for number, volume in enumerate(settings.volumes)
        ),
    ]
    return {
        "name": "pilot",
        "image": size.image or settings.image,
        "command": list(job.command),
        "workingDir": job.directory,
        "env": [
            {"name": "HOME", "value": WORK},
            *(
                {"name": name, "valueFrom": {"secretKeyRef": {"name": job.name, "key": name}}}
                for name in sorted(job.environment)
            ),
        ],
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": mounts,
        # What a pilot that failed printed last becomes part of its pod's status.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _volumes(program: str, size: PodSize, settings: PodSettings) -> list[dict[str, Any]]:
    limit = {} if size.disk is None else {"sizeLimit": str(size.disk)}
    volumes: list[dict[str, Any]] = [
        {"name": "program", "configMap": {"name": program}},
        {"name": "work", "emptyDir": limit},
    ]
    for number, volume in enumerate(settings.volumes):
        source: dict[str, Any] = (
            {"persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
            if volume.claim
            else {"secret": {"secretName": volume.secret, "defaultMode": 0o440}}
        )
        volumes.append({"name": f"volume-{number}", **source})
    return volumes


def _patch(text: str) -> Fields:
    try:
        patch = orjson.loads(text)
    except ValueError as error:
        raise Permanent(f"an option of the size is no JSON: {text[:100]}") from error
    if not isinstance(patch, dict):
        raise Permanent(f"an option of the size is no JSON object: {text[:100]}")
    return patch


def _merged(first: object, *others: object) -> object:
    """JSON merge patches (RFC 7396), one after the other."""
    result = first
    for other in others:
        if not isinstance(other, Mapping):
            result = other
            continue
        merged = dict(result) if isinstance(result, Mapping) else {}
        for name, value in other.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = _merged(merged.get(name), value)
        result = merged
    return result
