"""Causes that the pilot observed directly: from the reason of an end, the stage that the attempt had reached, and the system's error code.

Only structured fields decide here, never text. What they leave open is read from the log by the patterns: `find_cause` uses both.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import AttemptStage, Evidence
from forestay.domain.jobs.job_document import AttemptResult, JobDocument

SURE = 0.95
_KILL = 9
NO_CONTAINER = "no-container"
"""The error of an attempt whose host has no container runtime."""


class _KnownError(NamedTuple):
    cause: Cause
    retry: RetryNeed
    words: str
    advice: str


_REASONS: dict[str, _KnownError] = {
    "wall-limit": _KnownError(
        Cause.TIME, RetryNeed.CHANGED,
        "It exceeded its time limit, and its pilot stopped it.", "Increase the time limit, or split the work.",
    ),
    "data-missing": _KnownError(
        Cause.DATA_MISSING, RetryNeed.NO,
        "An input does not exist at its location.", "Check whether the file was created and whether its location is correct.",
    ),
    "data-corrupt": _KnownError(
        Cause.DATA_CORRUPT, RetryNeed.ELSEWHERE,
        "An input differs from what was committed.", "Use another replica, or create the file again.",
    ),
    "transfer": _KnownError(
        Cause.TRANSFER, RetryNeed.SAME,
        "An input could not be transferred.", "This is usually transient; otherwise check the file's storage.",
    ),
    "disk": _KnownError(
        Cause.DISK, RetryNeed.ELSEWHERE,
        "There was no disk space for an input on the job's host.", "Run it on a host with more free scratch space; check what fills this one.",
    ),
    "policy": _KnownError(
        Cause.POLICY, RetryNeed.NO,
        "Access to an input is not allowed.", "Ask this domain's operator to allow the location, or move the file.",
    ),
    "bad-input": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The name of an input is outside the job's folder.", "Correct the name of the input.",
    ),
    "image-failed": _KnownError(
        Cause.NODE, RetryNeed.ELSEWHERE,
        "The container runtime of the host could not prepare the image.", "Read the runtime's words in the log; the job may succeed elsewhere.",
    ),
    # Not a fault of the host: jobs without secrets run there.
    "secret-failed": _KnownError(
        Cause.POLICY, RetryNeed.ELSEWHERE,
        "The pilot could not give the job a secret.", "Read its words in the log; the job may succeed elsewhere.",
    ),
    "output-missing": _KnownError(
        Cause.OUTPUT_MISSING, RetryNeed.NO,
        "It exited successfully, but a declared output file does not exist.", "Read its log: it may have failed without an error code.",
    ),
    "output-failed": _KnownError(
        Cause.DISK, RetryNeed.ELSEWHERE,
        "Its outputs could not be stored.", "Check the free space and the permissions of the output folder.",
    ),
    "downstream-error": _KnownError(
        Cause.SCHEDULER, RetryNeed.SAME,
        "The task server reports a failure of its own, not of the task.", "This is usually transient; otherwise read that server's log of the task.",
    ),
    "downstream-preempted": _KnownError(
        Cause.PREEMPTED, RetryNeed.SAME,
        "The task server preempted it.", "Nothing: it is submitted again.",
    ),
    "downstream-lost": _KnownError(
        Cause.SCHEDULER, RetryNeed.SAME,
        "The task server responds but no longer has the task.", "Ask that server's operator whether its data was lost.",
    ),
    "downstream-silent": _KnownError(
        Cause.NETWORK, RetryNeed.ELSEWHERE,
        "The task server has not responded for a long time.", "Check whether it runs and can be reached; another one may accept the task.",
    ),
    "downstream-cancelled": _KnownError(
        Cause.POLICY, RetryNeed.NO,
        "Someone cancelled it at the task server.", "Ask that server's operator.",
    ),
    "downstream-refused": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The task server does not accept such a task.", "Read its message, and correct the task or send it elsewhere.",
    ),
}  # fmt: skip
"""By the reason alone."""

NOT_OF_STORAGE = ("bad-manifest", "policy")
"""Reasons for refusing outputs that could have been written."""
_FULL = ("ENOSPC", "EFBIG")
_REFUSED = ("EACCES", "EPERM")
_SICK = ("EIO", "ESTALE", "ENOENT", "ENOTDIR", "ENODEV", "ENXIO", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT", "folder-gone")
_SHORT = ("EAGAIN", "ENOMEM", "EMFILE", "ENFILE")

_NO_ROOM_OUT = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "There was no disk space for its outputs.", "Free space in the output location, or run it where there is more.",
)  # fmt: skip
_NO_ROOM = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "There was no disk space for its working folder.", "Run it on a host with more free scratch space; check what fills this one.",
)  # fmt: skip
_SICK_HOST = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "The working folder or output location on this host is missing or broken.", "Check the host's mounts and disks; the job may succeed elsewhere.",
)  # fmt: skip
_SHORT_HOST = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "The host could not create another process.", "Check what else runs there; the job may succeed elsewhere.",
)  # fmt: skip
_QUOTA = _KnownError(
    Cause.DISK, RetryNeed.NO,
    "The quota of its file location is exhausted.", "Free some of it, or request more.",
)  # fmt: skip
_READ_ONLY = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "The file system for its files is read-only.", "Check why it is read-only on this host; it may be writable elsewhere.",
)  # fmt: skip
_FORBIDDEN = _KnownError(
    Cause.POLICY, RetryNeed.NO,
    "The pilot has no write permission for its files.", "Give the pilot's account write permission there.",
)  # fmt: skip
_NO_PROGRAM = _KnownError(
    Cause.CODE, RetryNeed.NO,
    "The program of its command does not exist or cannot be executed.", "Load the environment that contains it, or correct the command.",
)  # fmt: skip
_TOO_LONG = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "Its command or environment exceeds the system's limit.", "Put long lists in a file.",
)  # fmt: skip
_BAD_CLAIM = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "The job cannot be executed as written.", "Correct its command, its environment or its outputs.",
)  # fmt: skip

_NO_CONTAINER = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "It needs a container, but this host has no runtime for its image.", "Install Apptainer or Podman there (bubblewrap runs unpacked images only); the job may succeed elsewhere.",
)  # fmt: skip
_NO_CONTAINER_ANYWHERE = _KnownError(
    Cause.POLICY, RetryNeed.NO,
    "It needs a container, and no pilot here has a runtime for its image.", "Install Apptainer or Podman on the hosts of the pilots (bubblewrap runs unpacked images only); for TES tasks, an administrator can set tes_containers instead.",
)  # fmt: skip
_IMAGE: dict[str, _KnownError] = {
    "not-found": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The container image does not exist: no such name, tag, digest or path.", "Check the name of the image and its tag.",
    ),
    "denied": _KnownError(
        Cause.POLICY, RetryNeed.NO,
        "The registry refused access to the container image.", "Give the pilots' account credentials for the registry, or use an image that it may pull.",
    ),
    "platform": _KnownError(
        Cause.BAD_INPUT, RetryNeed.ELSEWHERE,
        "The container image is for another processor architecture than the host's.", "Use an image for the architecture of the hosts, or one for several.",
    ),
    "network": _KnownError(
        Cause.NETWORK, RetryNeed.SAME,
        "The registry of the container image did not answer, or asked to come back later.", "This is usually transient; otherwise keep a copy of the image on site.",
    ),
    "corrupt": _KnownError(
        Cause.DATA_CORRUPT, RetryNeed.ELSEWHERE,
        "The container image is broken, or differs from its digest.", "Pull or build the image again.",
    ),
    "ENOSPC": _KnownError(
        Cause.DISK, RetryNeed.ELSEWHERE,
        "There was no disk space for the container image.", "Free space in the pilots' folder of images, or use a smaller image.",
    ),
    "unsupported": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The container image is of a kind that cannot be unpacked.", "Build it with layers packed with gzip, or run it by Podman or Apptainer.",
    ),
}  # fmt: skip
"""Causes of a container image that could not be obtained, by the pilot's error."""
_SECRET: dict[str, _KnownError] = {
    "not-found": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The site has no such secret.", "Check the name of the secret, or ask the site's administrator to add it.",
    ),
    "not-allowed": _KnownError(
        Cause.POLICY, RetryNeed.NO,
        "The site does not let the job's owner use this secret.", "Ask the site's administrator to add the owner to the list of this secret.",
    ),
    "unfit": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The value of a secret cannot be given to the job: it is too large, or no text for a variable.", "Take it as a file (`as: file`), or ask for a smaller one.",
    ),
    "denied": _KnownError(
        Cause.POLICY, RetryNeed.ELSEWHERE,
        "The source of a secret refuses the pilot.", "The site's administrator should check the pilot's token and its policy in Vault.",
    ),
    "unreachable": _KnownError(
        Cause.NETWORK, RetryNeed.SAME,
        "The source of a secret did not answer, or cannot answer now.", "This is usually transient; otherwise check whether Vault runs, is unsealed and can be reached from the hosts.",
    ),
    "insecure": _KnownError(
        Cause.POLICY, RetryNeed.ELSEWHERE,
        "The source of a secret is not set up securely on the host, so the pilot does not use it.", "Read the pilot's words in the log; correct the owner or the permissions.",
    ),
}  # fmt: skip
"""Causes of a secret that could not be given to a job, by the pilot's error."""
_NO_ROAD = _KnownError(
    Cause.NETWORK, RetryNeed.SAME,
    "The host of an input could not be reached.", "This is usually transient; otherwise check the network and whether the host runs.",
)  # fmt: skip
_NOT_GIVEN = _KnownError(
    Cause.POLICY, RetryNeed.NO,
    "The storage of an input denied access.", "Request read permission, or move the file.",
)  # fmt: skip

_A_FOLDER = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "An input is a folder; inputs must be files.", "List each file of it, or use an archive.",
)  # fmt: skip
_BAD_NAME = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "The name of an input is not possible: it is too long, or conflicts with another input.", "Correct the names of the inputs.",
)  # fmt: skip
_NO_XRDCP = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "The host has no xrdcp, which is needed for XRootD servers.", "Install the XRootD client on the hosts, or give the element an HTTP door.",
)  # fmt: skip
_OUT_NO_ROAD = _KnownError(
    Cause.NETWORK, RetryNeed.SAME,
    "The storage for its outputs could not be reached.", "This is usually transient; otherwise check the network and whether the host runs.",
)  # fmt: skip
_OUT_TRANSFER = _KnownError(
    Cause.TRANSFER, RetryNeed.SAME,
    "Its outputs could not be transferred to their storage.", "This is usually transient; otherwise check the storage.",
)  # fmt: skip
_STORAGE_FULL = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "The storage for its outputs is full.", "Free space there, or use another storage element for outputs.",
)  # fmt: skip

_NETWORK = ("ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT", "EPIPE")
_DENIED = (
    "HTTP 401",
    "HTTP 403",
    "S3 AccessDenied",
    "S3 SignatureDoesNotMatch",
    "S3 InvalidAccessKeyId",
    "XRootD 3010",
)

_NOT_ITS_OWN = _KnownError(
    Cause.POLICY, RetryNeed.NO,
    "Its completion named outputs in a folder of another attempt, so nothing was committed.", "Check the pilot that reported it; it may be broken or malicious.",
)  # fmt: skip

_OUT: dict[str, _KnownError] = {
    "bad-manifest": _NOT_ITS_OWN,
    **dict.fromkeys(_FULL, _NO_ROOM_OUT),
    "EDQUOT": _QUOTA,
    "EROFS": _READ_ONLY,
    **dict.fromkeys(_REFUSED, _FORBIDDEN),
    **dict.fromkeys(_SICK, _SICK_HOST),
    **dict.fromkeys(_DENIED, _FORBIDDEN),
    **dict.fromkeys(("HTTP 507", "S3 QuotaExceeded", "S3 InsufficientStorage", "XRootD 3009"), _STORAGE_FULL),
    **dict.fromkeys([f"connection {name}" for name in _NETWORK], _OUT_NO_ROAD),
    "XRootD connection": _OUT_NO_ROAD,
    "no xrdcp": _NO_XRDCP,
}
_FOLDER: dict[str, _KnownError] = {**_OUT, **dict.fromkeys(_FULL, _NO_ROOM), **dict.fromkeys(_SHORT, _SHORT_HOST)}
_PROGRAM: dict[str, _KnownError] = {
    **dict.fromkeys(("ENOENT", "ENOTDIR", "EACCES", "EPERM", "ENOEXEC", "EISDIR", "ELIBBAD", "ELOOP"), _NO_PROGRAM),
    "E2BIG": _TOO_LONG,
    **dict.fromkeys(("EIO", "ESTALE"), _SICK_HOST),
    **dict.fromkeys(_SHORT, _SHORT_HOST),
}

_TRANSFER: dict[str, _KnownError] = {
    **dict.fromkeys(_NETWORK, _NO_ROAD),
    **dict.fromkeys(_DENIED, _NOT_GIVEN),
    "XRootD connection": _NO_ROAD,
    "no xrdcp": _NO_XRDCP,
}

_SOURCE: dict[str, _KnownError] = {"EISDIR": _A_FOLDER, **dict.fromkeys(_REFUSED, _NOT_GIVEN)}
"""Causes of an input that is a path and could not be read there."""
_INTO: dict[str, _KnownError] = {
    "EDQUOT": _QUOTA,
    "EROFS": _READ_ONLY,
    **dict.fromkeys(_REFUSED, _FORBIDDEN),
    **dict.fromkeys(_SICK, _SICK_HOST),
    # The folder is new and belongs to the job: whatever is in the way there came from its own inputs.
    **dict.fromkeys(("ENAMETOOLONG", "EEXIST", "ENOTDIR", "EISDIR"), _BAD_NAME),
}
"""Causes of an input that could not be written into the job's folder."""

_STAGED = {
    "image-failed": _IMAGE,
    "secret-failed": _SECRET,
    "disk": _INTO,
    "data-missing": _SOURCE,
    "transfer": _TRANSFER,
}
"""Of what is brought before the start, by the reason."""

_STORAGE_WORDS = ("HTTP ", "S3 ", "XRootD ", "connection ", "no addresses")
"""How the errors of storage elements begin, not all of which are known."""

LOST = CauseFinding(
    Cause.NODE,
    0.7,
    RetryNeed.ELSEWHERE,
    words="Its pilots were lost repeatedly while they ran it.",
    advice="Either the hosts are broken, or the job crashes them: check what it does to its host.",
)
UNCLEARED = CauseFinding(
    Cause.CLEANUP,
    SURE,
    RetryNeed.NO,
    words="Its work is done, but its working folder could not be removed.",
    advice="Check what blocks the folder on that host: a mount, a process, permissions. The job itself needs nothing.",
)


def pilot_finding(ending: AttemptResult) -> CauseFinding | None:
    """The finding that the pilot is sure of; None if only the job's output can tell."""
    known = _known(ending.reason, ending.error or "", ending.file or "")
    if known is None:
        return None
    return CauseFinding(known.cause, SURE, known.retry, words=known.words, advice=known.advice)


def outputs_not_written(ending: AttemptResult) -> bool:
    """Whether the job itself succeeded, and only its outputs could not be written to the site's storage."""
    return ending.reason == "output-failed" and ending.error not in NOT_OF_STORAGE


def needs_container(ending: AttemptResult) -> bool:
    """Whether the attempt failed because its host has no container runtime."""
    return ending.reason == "start-failed" and ending.error == NO_CONTAINER


def no_container_anywhere() -> CauseFinding:
    """The finding for a job that needs a container where no pilot can run one."""
    known = _NO_CONTAINER_ANYWHERE
    return CauseFinding(known.cause, SURE, known.retry, words=known.words, advice=known.advice)


def decided_by_error(ending: AttemptResult) -> bool:
    """Whether the system's own error code decided, so that no printed message can be more precise."""
    return _by_error(ending.reason, ending.error or "", ending.file or "") is not None


def _known(reason: str, error: str, file: str) -> _KnownError | None:
    return _by_error(reason, error, file) or _REASONS.get(reason)


def _by_error(reason: str, error: str, file: str) -> _KnownError | None:
    if reason == "output-failed":
        return _OUT.get(error) or (_OUT_TRANSFER if error.startswith(_STORAGE_WORDS) else None)
    if reason in _STAGED:
        return _STAGED[reason].get(error)
    if reason == "start-failed":
        if error == "bad-claim":
            return _BAD_CLAIM
        if error == NO_CONTAINER:
            return _NO_CONTAINER
        return (_PROGRAM if file == "program" else _FOLDER).get(error)
    return None


class ExecutionFailure(StrEnum):
    """The six kinds of execution failure of paper P0, section 5."""

    RESOURCE = "resource unavailable"
    DATA = "data unavailable"
    INPUT = "bad input"
    JOB = "internal job error"
    OUTPUT = "output staging"
    CLEANUP = "cleanup"


_KINDS = {
    Cause.DATA_MISSING: ExecutionFailure.DATA,
    Cause.DATA_CORRUPT: ExecutionFailure.DATA,
    Cause.TRANSFER: ExecutionFailure.DATA,
    Cause.BAD_INPUT: ExecutionFailure.INPUT,
    Cause.CODE: ExecutionFailure.JOB,
    Cause.UNKNOWN: ExecutionFailure.JOB,
    Cause.OUTPUT_MISSING: ExecutionFailure.OUTPUT,
    Cause.CLEANUP: ExecutionFailure.CLEANUP,
}
"""By cause, for an attempt that was executing; every other cause counts as a lack of resources."""


def execution_failure(stage: AttemptStage | None, cause: Cause) -> ExecutionFailure:
    """Which of the six it is, by the stage of the attempt and the cause."""
    if stage is AttemptStage.CLEANUP:
        return ExecutionFailure.CLEANUP
    if stage is AttemptStage.STAGING_OUT:
        return ExecutionFailure.OUTPUT
    if stage is AttemptStage.STAGING_IN and cause in (Cause.NETWORK, Cause.POLICY):
        return ExecutionFailure.DATA  # the file exists, but cannot be read
    return _KINDS.get(cause, ExecutionFailure.RESOURCE)


def find_cause(document: JobDocument, evidence: Evidence, classifier: Classifier) -> CauseFinding:
    """Why the last attempt failed: what the pilot is sure of, or else the result of the patterns."""
    if document.last is None or evidence.lost:
        return _lost_finding(evidence, classifier)
    known = pilot_finding(document.last)
    read = classifier.classify(evidence)
    if known is None:
        return _not_for_memory(evidence, read)
    said_why = document.last.reason in ("output-failed", "transfer", "downstream-error") and not decided_by_error(
        document.last
    )
    if said_why and read.cause is not Cause.UNKNOWN and read.pattern:
        return read  # the pilot knows where it happened, and its message says why
    return replace(known, also=(read,) if read.pattern else ())


def _lost_finding(evidence: Evidence, classifier: Classifier) -> CauseFinding:
    """Why its pilots were lost: by the batch system's message, if it gives a reason."""
    if not evidence.scheduler_state:
        return LOST
    read = classifier.classify(evidence)
    return read if read.pattern and read.cause is not Cause.UNKNOWN else LOST


def _not_for_memory(evidence: Evidence, read: CauseFinding) -> CauseFinding:
    """A bare SIGKILL looks like the kernel's out-of-memory kill; where the kernel reports that it killed nothing, something else sent it."""
    killed = evidence.signal == _KILL and evidence.oom_kills == 0 and read.cause is Cause.MEMORY
    if not killed or read.lines:
        return read
    return CauseFinding(
        Cause.UNKNOWN,
        0.3,
        RetryNeed.SAME,
        words="Something outside the job killed it (SIGKILL); it was not the kernel's out-of-memory killer.",
        advice="Find out what kills processes on that host: a person, a limit, a monitor. A retry may succeed.",
        also=(read,),
    )
