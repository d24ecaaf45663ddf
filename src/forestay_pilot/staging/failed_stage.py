"""How a completion describes a stage that failed before or after the payload: the reason, the progress, the error, the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from forestay_pilot.containers.runtimes import NoContainerError
from forestay_pilot.process.slot_end import STAGING_IN, STAGING_OUT, STOPPED, WENT_FOR, symbol
from forestay_pilot.staging.outputs import OutputFailedError, OutputMissingError
from forestay_pilot.staging.staging import StagingError

if TYPE_CHECKING:
    from forestay_pilot.containers.image_error import ImageError
    from forestay_pilot.job_secrets.secret_error import SecretError

NO_CONTAINER = "no-container"
"""The error of a claim that needs a container where none can be run."""
BAD_CLAIM = "bad-claim"
"""The error of a claim that cannot be run as it is written."""


class Facts(TypedDict):
    """The fields of a completion."""

    reason: str
    stage: str
    words: str
    error: str
    file: str


def staging_facts(error: StagingError) -> Facts:
    """An input could not be transferred."""
    return {
        "reason": error.reason,
        "stage": STAGING_IN,
        "words": str(error),
        "error": error.error,
        "file": error.file,
    }


def image_facts(error: ImageError, image: str) -> Facts:
    """The image could not be had."""
    return {"reason": "image-failed", "stage": STAGING_IN, "words": str(error), "error": error.error, "file": image}


def secret_facts(error: SecretError) -> Facts:
    """A secret could not be had."""
    return {
        "reason": "secret-failed",
        "stage": STAGING_IN,
        "words": str(error),
        "error": error.error,
        "file": error.reference,
    }


def start_facts(error: Exception) -> Facts:
    """What is needed before the payload starts could not be made: its folder, or sense of its claim."""
    if isinstance(error, NoContainerError):
        name, file = NO_CONTAINER, "program"
    else:
        name, file = (symbol(error), "folder") if isinstance(error, OSError) else (BAD_CLAIM, "")
    return {"reason": "start-failed", "stage": STAGING_IN, "words": str(error), "error": name, "file": file}


def output_facts(error: Exception) -> Facts:
    """The outputs are missing, or could not be kept."""
    reason, name, file = "output-failed", "", ""
    if isinstance(error, OutputMissingError):
        reason, file = "output-missing", error.pattern
    elif isinstance(error, OutputFailedError):
        name, file = error.error, error.file
    elif isinstance(error, OSError):
        name = symbol(error)
    return {"reason": reason, "stage": STAGING_OUT, "words": str(error), "error": name, "file": file}


def stopped_facts(why: str) -> Facts:
    """The job was stopped while its outputs were on their way."""
    words = "it was stopped while its outputs were transferred"
    reason, error = STOPPED.get(why, "pilot-stopped"), WENT_FOR.get(why, "")
    return {"reason": reason, "stage": STAGING_OUT, "words": words, "error": error, "file": ""}
