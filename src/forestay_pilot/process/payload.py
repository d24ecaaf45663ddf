"""The process that a claim requests, and its outcome.

A payload's environment is built from nothing: the specification's own variables, ``PATH`` and ``HOME``, and
the ``FORESTAY_`` ones. Nothing of the pilot's environment passes, so its token cannot.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from forestay_pilot.containers.container_command import SECRETS, ContainerRequest, in_container
from forestay_pilot.containers.image_reference import BUBBLEWRAP, PODMAN
from forestay_pilot.containers.runtimes import ContainerRuntimes
from forestay_pilot.process.device_locks import VARIABLE as DEVICES
from forestay_pilot.process.local_disks import is_local_folder, is_local_program
from forestay_pilot.process.payload_cgroup import leaf_of

if TYPE_CHECKING:
    from forestay_pilot.containers.image_store import StagedImage
    from forestay_pilot.job_secrets.job_secrets import JobSecrets

LOG_CAP = 64 * 1024 * 1024

_PODMAN_SETTLES = 4.0  # its monitor takes the container away when its command has ended

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_NOT_IN_A_NAME = re.compile(r"[^A-Z0-9_]")
_SAFE_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:+-]{0,199}")


class BadClaimError(Exception):
    """The claim cannot be run as it is written."""


@dataclass(frozen=True)
class ClaimedJob:
    """One claim as the server gave it."""

    job: str
    generation: int
    attempt: int
    claim: str
    tenant: str
    name: str
    index: int | None
    parameters: dict[str, Any]
    resources: dict[str, Any]
    command: list[Any]
    environment: dict[str, Any]
    outputs: list[Any]
    external: bool
    inputs: list[dict[str, Any]] = field(default_factory=list)
    sequential: bool = False  # whether inputs are staged one after the other
    owner: str = ""
    outputs_to: dict[str, Any] = field(
        default_factory=dict
    )  # the storage element for outputs, if not the pilot's folder
    warm: bool = False  # a call of a function, for a runner that is kept
    free: int = 0  # bytes of the disk that are made free first: there was no room the last time
    container: str = ""  # the image that its command runs in; empty for none
    secrets: dict[str, Any] = field(default_factory=dict)  # references, by variable
    checkpoint: PayloadCheckpoints | None = None
    checkpoint_number: int = 0  # which of its checkpoints is committed; its outputs when 0
    begin_from: dict[str, Any] = field(default_factory=dict)  # the checkpoint of an earlier attempt
    task: dict[str, Any] = field(
        default_factory=dict
    )  # of a task: its executors, or the outputs that are to be brought

    @property
    def fence(self) -> str:
        """The fencing token that a receiver of effects may compare: generation, then attempt."""
        return f"{self.generation}.{self.attempt}"

    @property
    def checkpoint_files(self) -> list[str]:
        """The patterns of its checkpoint's files."""
        return [] if self.checkpoint is None else self.checkpoint.files

    @property
    def memory(self) -> int:
        """The requested bytes of memory; 0 when not given."""
        amount = self.resources.get("memory")
        return math.ceil(amount) if isinstance(amount, (int, float)) and amount > 0 else 0

    @property
    def gpus(self) -> int:
        """The number of requested accelerators."""
        amount = self.resources.get("gpus")
        return math.ceil(amount) if isinstance(amount, (int, float)) and amount > 0 else 0

    @property
    def wall(self) -> float | None:
        """The wall limit in seconds, if there is one."""
        wall = self.resources.get("wall")
        return float(wall) if isinstance(wall, (int, float)) and wall > 0 else None


@dataclass(frozen=True)
class PayloadCheckpoints:
    """The files from which the next attempt continues, and how the payload is told to write them."""

    files: list[Any]
    signal: int
    every: float  # seconds between two commits while it runs; 0 for none
    grace: float  # seconds between the signal and SIGKILL

    @classmethod
    def read(cls, document: object) -> PayloadCheckpoints | None:
        """As a specification has it; what makes no sense is as if it were not there."""
        if not isinstance(document, dict) or not isinstance(document.get("files"), list):
            return None
        every, grace = document.get("every"), document.get("grace")
        return cls(
            files=document["files"],
            signal=_CHECKPOINT_SIGNALS.get(str(document.get("signal")), signal.SIGTERM),
            every=float(every) if isinstance(every, (int, float)) and every > 0 else 0.0,
            grace=float(grace) if isinstance(grace, (int, float)) and grace > 0 else 10.0,
        )


_CHECKPOINT_SIGNALS = {name: getattr(signal, "SIG" + name) for name in ("TERM", "INT", "HUP", "USR1", "USR2")}


def _record(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def read_claim(document: dict[str, Any]) -> ClaimedJob:
    """Read a claim; only the parts that name it must be there, so that any bad one can still be ended."""
    specification = _record(document.get("specification"))
    index = document.get("index")
    try:
        return ClaimedJob(
            job=str(document["job"]),
            generation=int(document["generation"]),
            attempt=int(document["attempt"]),
            claim=safe_part(str(document["claim"])),
            tenant=str(document.get("tenant") or ""),
            name=str(document.get("name") or ""),
            index=index if isinstance(index, int) else None,
            parameters=_record(document.get("parameters")),
            resources={**_record(specification.get("resources")), **_record(document.get("resources"))},
            command=_sequence(specification.get("command")),
            environment=_record(specification.get("environment")),
            outputs=_sequence(specification.get("outputs")),
            # Who holds seats of a licence ends with its lease, too: they are another's soon after it.
            external=specification.get("effects") in ("external", "resumable") or bool(specification.get("licences")),
            inputs=[input_ for input_ in _sequence(document.get("inputs")) if isinstance(input_, dict)],
            sequential=specification.get("staging") == "sequential",
            owner=str(document.get("owner") or ""),
            outputs_to=_record(document.get("outputs_to")),
            warm=specification.get("runner") == "warm",
            free=int(document.get("free") or 0),
            container=str(specification.get("container") or ""),
            secrets=_record(specification.get("secrets")),
            checkpoint=PayloadCheckpoints.read(specification.get("checkpoint")),
            begin_from=_record(document.get("checkpoint")),
            task=_record(document.get("task")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadClaimError(f"a claim without a usable name: {error!r}") from error


@dataclass(frozen=True)
class Payload:
    """One process to run, as the guard receives it."""

    claim: str
    argv: list[str]
    environment: dict[str, str] = field(repr=False)
    folder: str
    log: str
    wall: float | None
    grace: float
    external: bool
    log_cap: int = LOG_CAP
    stdin: str = ""  # the file it reads from; nothing unless named
    stdout: str = ""  # the file its output goes to instead of the log
    group: str = ""  # the control group to make for it; none unless named
    memory: int = 0  # the bytes that it is kept to in its group; no limit when 0
    devices: list[str] = field(default_factory=list)  # names of what it holds while anything of it lives
    program: str = ""  # the path of its program; empty when only its own search can find it
    at_hand: bool = (
        False  # whether its program and folder are on disks of this host, so that its guard may wait for them
    )
    watched: bool = False  # its first process only watches the others: a stop's SIGTERM is for those below it
    settle: float = 0.0  # seconds that what it leaves may take to clear up after it, before it is killed
    measured: bool = True  # whether what it uses is that of its first process and those below it
    checkpoint_signal: int = 0  # what a stop that is to be continued from begins with, instead of SIGTERM
    checkpoint_grace: float = 0.0
    secrets: dict[str, str] = field(default_factory=dict, repr=False)  # values that are taken out of its output
    secrets_folder: str = ""  # removed at its end


@dataclass(frozen=True)
class PayloadOutcome:
    """How a payload ended, as the guard saw it."""

    exit_code: int | None = None
    signal: int | None = None
    started: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    peak_memory: int = 0
    oom_kills: int | None = None  # the kernel's kills for memory while it ran; nothing if it cannot be known
    disk_left: int | None = None  # where it ran, when it failed
    log_tail: str = ""
    log_bytes: int = 0
    stopped_for: str = ""  # why the pilot stopped it; empty when it ended on its own
    start_error: str = ""
    start_symbol: str = ""  # the same as the system calls it
    start_part: str = ""  # what was at failure: the working folder or the program
    left_running: int = 0  # processes of it that could not be ended
    ranks: list[dict[str, Any]] = field(default_factory=list)  # how each ended, if a job of several nodes failed


@dataclass(frozen=True)
class Surroundings:
    """What payloads of this pilot have in common."""

    grace: float = 10.0
    log_cap: int = LOG_CAP
    groups: str = ""  # the control group under which each payload gets one of its own; empty for none
    containers: ContainerRuntimes = field(default_factory=ContainerRuntimes)
    inherited: dict[str, str] = field(default_factory=lambda: clean_variables())


def clean_variables() -> dict[str, str]:
    """What of the pilot's environment may pass to others."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.environ.get("HOME", "/")}


def as_text(value: object) -> str:
    """A parameter as one word: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def fill_in(word: str, job: ClaimedJob) -> str:
    """Replace ``{name}`` and ``{index}``; braces that name no parameter stay, for ``awk`` and its like."""

    def value(place: re.Match[str]) -> str:
        name = place.group(1)
        if name == "index" and job.index is not None:
            return str(job.index)
        return as_text(job.parameters[name]) if name in job.parameters else place.group(0)

    return _PLACE.sub(value, word)


def _environment(job: ClaimedJob, folder: str, surroundings: Surroundings, bound: Mapping[str, str]) -> dict[str, str]:
    environment = dict(surroundings.inherited)
    environment.update({str(name): as_text(value) for name, value in job.environment.items()})
    for name, value in job.parameters.items():
        environment["FORESTAY_PARAM_" + _NOT_IN_A_NAME.sub("_", str(name).upper())] = as_text(value)
    environment.update(
        FORESTAY_JOB=job.job,
        FORESTAY_ATTEMPT=str(job.attempt),
        FORESTAY_FENCE=job.fence,
        FORESTAY_CLAIM=job.claim,
        FORESTAY_INDEX="" if job.index is None else str(job.index),
        FORESTAY_MEMORY=str(job.memory or ""),
        FORESTAY_OUTPUTS=folder,
    )
    environment.pop(DEVICES, None)  # by this it would be taken for one that has them
    environment.update(bound)
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise BadClaimError(f"the environment variable {name!r} cannot be set")
    return environment


def make_payload(
    job: ClaimedJob,
    folder: str,
    log: str,
    surroundings: Surroundings,
    image: StagedImage | None = None,
    *,
    bound: Mapping[str, str] = MappingProxyType({}),
    devices: Sequence[str] = (),
    secrets: JobSecrets | None = None,
) -> Payload:
    """The process that a claim requests, in its image if it has one, with its secrets and the variables that bind it to its devices; raises BadClaimError when there is none."""
    if not job.command or not all(isinstance(word, str) for word in job.command):
        raise BadClaimError("the command is not a list of words")
    argv = [fill_in(word, job) for word in job.command]
    if not argv[0] or any("\0" in word for word in argv):
        raise BadClaimError("the command has an empty name or a zero byte")
    environment = _environment(job, folder, surroundings, bound)
    given: dict[str, str] = {}
    if secrets is not None:
        given = secrets.environment(secrets.files_folder if image is None else os.path.join(folder, SECRETS))
        environment.update(given)
    group = leaf_of(surroundings.groups, job.claim)
    if image is not None:
        runtimes = surroundings.containers
        request = ContainerRequest(
            image, argv, environment, folder, surroundings.inherited, job.claim,
            mounts=runtimes.mounts, devices=runtimes.devices_for(job.gpus), group=group,
            secret=frozenset(given), secret_files="" if secrets is None else secrets.files_folder,
        )  # fmt: skip
        try:
            argv, environment = in_container(request)
        except ValueError as error:
            raise BadClaimError(str(error)) from error
    program = _program(argv[0], environment)
    return Payload(
        claim=job.claim,
        argv=argv,
        environment=environment,
        folder=folder,
        log=log,
        wall=_wall(job),
        grace=surroundings.grace,
        external=job.external,
        log_cap=surroundings.log_cap,
        group=group,
        memory=job.memory,
        devices=list(devices),
        program=program,
        at_hand=bool(program) and is_local_program(program) and is_local_folder(os.path.dirname(folder)),
        watched=image is not None and image.runtime == BUBBLEWRAP,
        settle=_PODMAN_SETTLES if image is not None and image.runtime == PODMAN else 0.0,
        # Podman's containers are not children of its command: only a control group of their own shows their usage.
        measured=image is None or image.runtime != PODMAN or bool(group),
        checkpoint_signal=0 if job.checkpoint is None else job.checkpoint.signal,
        checkpoint_grace=0.0 if job.checkpoint is None else job.checkpoint.grace,
        secrets={} if secrets is None else secrets.values,
        secrets_folder="" if secrets is None else secrets.folder,
    )


def _wall(job: ClaimedJob) -> float | None:
    """When a payload is told to end: in time to write its checkpoint before its limit."""
    if job.wall is None or job.checkpoint is None:
        return job.wall
    return max(job.wall - job.checkpoint.grace, job.wall / 2)


def _program(name: str, environment: dict[str, str]) -> str:
    """Where a payload's program is, as a search from its own folder would find it.

    Looked for here, in the slot's own thread: a folder that does not answer must not hold up the guard, and a search by the freshly
    forked child costs as much again as the start of a small program.
    """
    if "/" in name:
        return ""
    try:
        for folder in environment["PATH"].split(os.pathsep):
            path = f"{folder}/{name}"
            if not folder.startswith("/"):
                return ""  # it means another folder to the payload
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                return path
    except (KeyError, ValueError):  # no path, or a text that is no name of a file
        pass
    return ""


def safe_part(text: str) -> str:
    """A name fit to be one part of a path; raises BadClaimError for any other."""
    if not _SAFE_PART.fullmatch(text):
        raise BadClaimError(f"{text!r} cannot be part of a path")
    return text
