"""The result of an ended job for its caller: a value or an exception."""

from __future__ import annotations

import builtins
import hashlib
import json
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from forestay.client.api.answers import WELL
from forestay.client.transport.errors import JobFailedError, RemoteError, ResultUnreachable
from forestay_pilot.calls.plain_values import unpack
from forestay_pilot.calls.runner import RESULT_FILE

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job, ManifestJson


class RemoteTraceback(Exception):
    """The traceback of what a function raised, as text; the cause of the exception that is raised here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def value_of(job: Job) -> Any:
    """What the function of a job gave back; of a job that is no function, the job itself. Raises what it raised."""
    last = job["last"] or {}
    if job["state"] not in WELL:
        raise error_of(job)
    if job["state"] == "forced_complete":
        return None  # someone declared it completed; there is no result
    text = last.get("result")
    if text is not None:
        return _value(text)
    manifest = job["winner"]["manifest"] if job["winner"] else None
    return job if manifest is None else _stored(job, manifest)


def _value(text: str) -> Any:
    try:
        return unpack(json.loads(text)["value"])
    except (ValueError, KeyError, TypeError) as error:
        raise ResultUnreachable(f"the result cannot be read: {error}") from error


def _stored(job: Job, manifest: ManifestJson) -> Any:
    """A result that was too large to go with the end."""
    place = Path(manifest["path"])
    try:
        content = place.read_bytes()
        if hashlib.sha256(content).hexdigest() != manifest["sha256"]:
            raise ResultUnreachable(f"{place} is not the manifest that was committed")
        files = {file["path"]: file for file in json.loads(content)["files"]}
        known = files.get(RESULT_FILE)
        if known is None:
            return job
        raw = (place.parent / PurePosixPath(RESULT_FILE)).read_bytes()
    except OSError as error:
        raise ResultUnreachable(
            f"the result is in {place.parent}, which cannot be read from here ({error.strerror}); results of more than 4,096 "
            "characters need a folder that this program and the pilots share"
        ) from error
    if hashlib.sha256(raw).hexdigest() != known["sha256"]:
        raise ResultUnreachable(f"{place.parent / RESULT_FILE} is not the result that was committed")
    return _value(raw.decode("ascii"))


def bundle_of(job: Job, calls: int | None = None) -> list[Any]:
    """What each call of a bundle came to: a value or an exception, in order. `ClientError` if the bundle as a whole has none of it."""
    value = value_of(job)
    if not isinstance(value, list) or (calls is not None and len(value) != calls):
        raise ResultUnreachable("the results of several calls were expected")
    return [_outcome(job, record) for record in value]


class RaisedError(NamedTuple):
    """An exception that a call of a bundle raised."""

    error: Exception


def _outcome(job: Job, text: object) -> Any:
    try:
        document = json.loads(str(text))
        return RaisedError(_raised(job, document["error"])) if "error" in document else unpack(document["value"])
    except (ValueError, KeyError, TypeError) as error:
        return RaisedError(ResultUnreachable(f"the result cannot be read: {error}"))


def error_of(job: Job) -> Exception:
    """The exception for a job that did not succeed."""
    last = job["last"] or {}
    text = last.get("result")
    if job["state"] == "failed" and text is not None and last.get("reason") == "exception":
        try:
            return _raised(job, json.loads(text)["error"])
        except (ValueError, KeyError, TypeError):
            pass
    return JobFailedError(failure_in_words(job), job=job["id"], state=job["state"], reason=last.get("reason") or "")


def failure_in_words(job: Job) -> str:
    last = job["last"]
    if not last:
        return f"job {job['id']} ({job['name']}) is {job['state']}"
    how = last.get("reason") or "failure"
    if last.get("exit_code") is not None:
        how += f", exit code {last['exit_code']}"
    if last.get("signal") is not None:
        how += f", signal {last['signal']}"
    return (
        f"job {job['id']} ({job['name']}) is {job['state']}: {how}, attempt {last.get('attempt')} on {last.get('host')}; "
        f"`forestay logs {job['id']}` shows what it printed"
    )


def _raised(job: Job, failure: dict[str, Any]) -> Exception:
    """An exception of the same class if this program has it loaded already; nothing is imported by a name from outside."""
    error: Exception | None = None
    kind = _class_named(str(failure["type"]))
    if kind is not None and failure.get("args") is not None:
        try:
            error = kind(*unpack(failure["args"]))
        except Exception:  # its constructor needs other arguments
            error = None
    if error is None:
        words = f"{failure['type'].replace(':', '.')}: {failure['message']}"
        error = RemoteError(words, job=job["id"], state=job["state"], reason="exception")
    error.__cause__ = RemoteTraceback(str(failure["traceback"]))
    return error


def _class_named(name: str) -> type[Exception] | None:
    module, _, path = name.partition(":")
    found_builtins: Any = (
        builtins if module == "builtins" else sys.modules.get("__main__" if module.startswith("__") else module)
    )
    for part in path.split("."):
        found_builtins = getattr(found_builtins, part, None)
    return found_builtins if isinstance(found_builtins, type) and issubclass(found_builtins, Exception) else None
