"""What a pilot saw itself and so needs no guess: from the reason of an end, how far the attempt was, and the system's own word for the error.

Structure decides here, never text. What it leaves open is read from the log by the patterns.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import AttemptStage
from forestay.domain.jobs.job_document import AttemptResult

SURE = 0.95


class _KnownError(NamedTuple):
    cause: Cause
    retry: RetryNeed
    words: str
    advice: str


_REASONS: dict[str, _KnownError] = {
    "wall-limit": _KnownError(
        Cause.TIME, RetryNeed.CHANGED,
        "It ran longer than the time it was given, and its pilot stopped it.", "Give it more time, or cut the work in pieces.",
    ),
    "data-missing": _KnownError(
        Cause.DATA_MISSING, RetryNeed.NO,
        "An input was not where it should be.", "Look whether the file was made, and whether its place is right.",
    ),
    "data-corrupt": _KnownError(
        Cause.DATA_CORRUPT, RetryNeed.ELSEWHERE,
        "An input was there, and is not what was committed.", "Take another copy, or make the file again.",
    ),
    "transfer": _KnownError(
        Cause.TRANSFER, RetryNeed.SAME,
        "An input could not be brought.", "It mostly passes; if not, look at where the file is kept.",
    ),
    "disk": _KnownError(
        Cause.DISK, RetryNeed.ELSEWHERE,
        "There was no room for an input where the job was to run.", "Run it where more scratch space is free; look at what fills this host.",
    ),
    "policy": _KnownError(
        Cause.POLICY, RetryNeed.NO,
        "An input may not be had from where it is.", "Ask whoever looks after this domain to allow the place, or bring the file elsewhere.",
    ),
    "bad-input": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "An input was to go to a place outside the job's folder.", "Mend the name of the input.",
    ),
    "output-missing": _KnownError(
        Cause.OUTPUT_MISSING, RetryNeed.NO,
        "It ended well, and a file that it should have left behind is not there.", "Look at its log: it may have failed without saying so.",
    ),
    "output-failed": _KnownError(
        Cause.DISK, RetryNeed.ELSEWHERE,
        "Its outputs could not be kept.", "Look at the space and the rights of the folder for outputs.",
    ),
    "downstream-error": _KnownError(
        Cause.SCHEDULER, RetryNeed.SAME,
        "The task server that it was sent to says that it failed itself, not the task.", "It mostly passes; if not, look at what that server writes of the task.",
    ),
    "downstream-preempted": _KnownError(
        Cause.PREEMPTED, RetryNeed.SAME,
        "The task server that it was sent to took it off to make room.", "Nothing: it is sent again.",
    ),
    "downstream-lost": _KnownError(
        Cause.SCHEDULER, RetryNeed.SAME,
        "The task server that it was sent to answers, and no longer knows it.", "Ask who looks after that server whether its memory was lost.",
    ),
    "downstream-silent": _KnownError(
        Cause.NETWORK, RetryNeed.ELSEWHERE,
        "The task server that it was sent to has not answered for long.", "Look whether it runs and can be reached; another one may take the task.",
    ),
    "downstream-cancelled": _KnownError(
        Cause.POLICY, RetryNeed.NO,
        "Someone cancelled it at the task server that it was sent to.", "Ask who looks after that server.",
    ),
    "downstream-refused": _KnownError(
        Cause.BAD_INPUT, RetryNeed.NO,
        "The task server that it was sent to does not take such a task.", "Read what it says, and mend the task or send it elsewhere.",
    ),
}  # fmt: skip
"""By the reason alone."""

_FULL = ("ENOSPC", "EFBIG")
_REFUSED = ("EACCES", "EPERM")
_SICK = ("EIO", "ESTALE", "ENOENT", "ENOTDIR", "ENODEV", "ENXIO", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT", "folder-gone")
_SHORT = ("EAGAIN", "ENOMEM", "EMFILE", "ENFILE")

_NO_ROOM_OUT = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "There was no room for its outputs.", "Free space where outputs go, or let it run where there is some.",
)  # fmt: skip
_NO_ROOM = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "There was no room for its working folder.", "Run it where more scratch space is free; look at what fills this host.",
)  # fmt: skip
_SICK_HOST = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "The place on this host where jobs work or outputs go is gone or broken.", "Look at the host's mounts and disks; elsewhere the job may go well.",
)  # fmt: skip
_SHORT_HOST = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "The host had no room for another process.", "Look at what else runs there; elsewhere the job may go well.",
)  # fmt: skip
_QUOTA = _KnownError(
    Cause.DISK, RetryNeed.NO,
    "A quota is used up where its files go.", "Free some of it, or ask for more; another try does not help.",
)  # fmt: skip
_READ_ONLY = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "The file system that its files go to cannot be written.", "Look at why it is read-only on this host; elsewhere it may not be.",
)  # fmt: skip
_FORBIDDEN = _KnownError(
    Cause.POLICY, RetryNeed.NO,
    "The pilot may not write where its files go.", "Give the pilot's account the right to write there.",
)  # fmt: skip
_NO_PROGRAM = _KnownError(
    Cause.CODE, RetryNeed.NO,
    "The program of its command is not there or cannot be run.", "Load the environment that has it, or mend the command; another try does not help.",
)  # fmt: skip
_TOO_LONG = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "Its command or environment is longer than the system takes.", "Put long lists in a file.",
)  # fmt: skip
_BAD_CLAIM = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "It was asked for something that cannot be run as it is written.", "Mend its command, its environment or its outputs.",
)  # fmt: skip

_NO_CONTAINER = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "It wants a container, and there is no Apptainer on this host.", "Install it there, or let pilots check for it with --needs apptainer; elsewhere the job may go well.",
)  # fmt: skip
_NO_ROAD = _KnownError(
    Cause.NETWORK, RetryNeed.SAME,
    "The host that has an input could not be reached.", "It mostly passes; if not, look at the way to it and whether it runs.",
)  # fmt: skip
_NOT_GIVEN = _KnownError(
    Cause.POLICY, RetryNeed.NO,
    "Whoever has an input does not give it to the job.", "Ask for the right to read it, or bring the file elsewhere.",
)  # fmt: skip

_A_FOLDER = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "What it names as an input is a folder; inputs are files.", "Name each file of it, or an archive of them.",
)  # fmt: skip
_BAD_NAME = _KnownError(
    Cause.BAD_INPUT, RetryNeed.NO,
    "An input cannot have the name it is to have: it is too long, or another input is in its way.", "Mend the names of the inputs.",
)  # fmt: skip
_NO_XRDCP = _KnownError(
    Cause.NODE, RetryNeed.ELSEWHERE,
    "The host has no xrdcp, which files of XRootD servers need.", "Install XRootD's client on the hosts, or give the element an HTTP door.",
)  # fmt: skip
_OUT_NO_ROAD = _KnownError(
    Cause.NETWORK, RetryNeed.SAME,
    "The storage that keeps its outputs could not be reached.", "It mostly passes; if not, look at the way to it and whether it runs.",
)  # fmt: skip
_OUT_TRANSFER = _KnownError(
    Cause.TRANSFER, RetryNeed.SAME,
    "Its outputs could not be brought to where they are kept.", "It mostly passes; if not, look at the storage.",
)  # fmt: skip
_STORAGE_FULL = _KnownError(
    Cause.DISK, RetryNeed.ELSEWHERE,
    "The storage that keeps its outputs is full.", "Free space there, or let outputs go to another storage element.",
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
    "Its end named outputs in a folder that is not its own, so nothing was committed.", "Look at the pilot that said so; it may be broken, or not be what it says.",
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
    **dict.fromkeys([f"connection {one}" for one in _NETWORK], _OUT_NO_ROAD),
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
"""Of an input that is a path, and was not had from there."""
_INTO: dict[str, _KnownError] = {
    "EDQUOT": _QUOTA,
    "EROFS": _READ_ONLY,
    **dict.fromkeys(_REFUSED, _FORBIDDEN),
    **dict.fromkeys(_SICK, _SICK_HOST),
    # The folder is new and the job's own: what is in the way there came from its own inputs.
    **dict.fromkeys(("ENAMETOOLONG", "EEXIST", "ENOTDIR", "EISDIR"), _BAD_NAME),
}
"""Of an input that could not be written into the job's folder."""

_STAGED = {"disk": _INTO, "data-missing": _SOURCE, "transfer": _TRANSFER}
"""Of an input, by the reason."""

_STORAGE_WORDS = ("HTTP ", "S3 ", "XRootD ", "connection ", "no addresses")
"""How the words of storage elements begin, of which not every one is known."""

LOST = CauseFinding(
    Cause.NODE,
    0.7,
    RetryNeed.ELSEWHERE,
    words="Its pilots were lost again and again while they ran it.",
    advice="Either the hosts are sick, or the job brings them down: look at what it does to its host.",
)
UNCLEARED = CauseFinding(
    Cause.CLEANUP,
    SURE,
    RetryNeed.NO,
    words="Its work was done, and its working folder could not be cleared away.",
    advice="Look at what holds the folder on that host: a mount, a process, rights. The job itself needs nothing.",
)


def pilot_finding(ending: AttemptResult) -> CauseFinding | None:
    """What the pilot knows for sure; nothing when only what the job printed can tell."""
    known = _known(ending.reason, ending.error or "", ending.file or "")
    if known is None:
        return None
    return CauseFinding(known.cause, SURE, known.retry, words=known.words, advice=known.advice)


def decided_by_error(ending: AttemptResult) -> bool:
    """Whether the system's own word decided, so that nothing that was printed can say it better."""
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
        if error == "no-container":
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
"""Of an attempt that was executing; every cause that is not here is a want of resources."""


def execution_failure(stage: AttemptStage | None, cause: Cause) -> ExecutionFailure:
    """Which of the six it is: how far the attempt was, and why it went no further."""
    if stage is AttemptStage.CLEANUP:
        return ExecutionFailure.CLEANUP
    if stage is AttemptStage.STAGING_OUT:
        return ExecutionFailure.OUTPUT
    if stage is AttemptStage.STAGING_IN and cause in (Cause.NETWORK, Cause.POLICY):
        return ExecutionFailure.DATA  # the file is where it is, and cannot be had
    return _KINDS.get(cause, ExecutionFailure.RESOURCE)
