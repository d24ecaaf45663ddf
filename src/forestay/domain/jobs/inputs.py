"""The files that a job needs before it starts, and the source of each."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from forestay.domain.jobs.outbound import OutboundPolicy

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_JOB = re.compile(r"job:([A-Za-z0-9._:-]{1,64})/(.+)")
_LFN = re.compile(r"lfn:(/?[A-Za-z0-9._+=@,:~/-]{1,500})")


class Staging(StrEnum):
    """The order in which the inputs of a job are staged."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True)
class JobInput:
    """One file in a job's folder."""

    name: str
    """Its path in the job's folder; `{name}` and `{index}` are filled in, here and in the source."""
    source: str
    """A path, a `file:`, `http:` or `https:` address, `job:ID/PATH`: an output that another job has committed, or `lfn:NAME`: a file of the catalogue."""
    size: int | None = None
    sha256: str | None = None


class Produced(NamedTuple):
    """An output of another job."""

    job: str
    path: str


def filled(job_input: JobInput, parameters: Mapping[str, object], index: int | None) -> JobInput:
    """The input of one job."""
    name = filled_text(job_input.name, parameters, index)
    return replace(job_input, name=name, source=filled_text(job_input.source, parameters, index))


def filled_text(text: str, parameters: Mapping[str, object], index: int | None) -> str:
    """A text of a specification, filled in for one job: braces that name no parameter stay."""

    def value(place: re.Match[str]) -> str:
        name = place.group(1)
        if name == "index" and index is not None:
            return str(index)
        if name not in parameters:
            return place.group(0)
        parameter = parameters[name]
        return parameter if isinstance(parameter, str) else json.dumps(parameter, sort_keys=True)

    return _PLACE.sub(value, text)


def produced(source: str) -> Produced | None:
    """The output that a source names; None for a source of another kind."""
    match = _JOB.fullmatch(source)
    return Produced(match[1], match[2]) if match else None


def logical_name(job_input: JobInput) -> str | None:
    """The name of a filled input in caches and the catalogue; None if the file may have changed unnoticed."""
    named = produced(job_input.source) is not None or catalogue_name(job_input.source) is not None
    return job_input.source if named or job_input.sha256 is not None else None


def catalogue_name(source: str) -> str | None:
    """The name of a file of the catalogue, as its rules use it; None for a source of another kind."""
    match = _LFN.fullmatch(source)
    return match[1] if match and not wrong_name(match[1].removeprefix("/")) else None


def local_path(source: str) -> str | None:
    """The path that a source names; None for a source of another kind."""
    if source.startswith("/"):
        return source
    if not source.startswith("file:"):
        return None
    parts = urlsplit(source)
    return unquote(parts.path) if parts.netloc in ("", "localhost") else None


def wrong_input(job_input: JobInput, outbound: OutboundPolicy) -> str | None:
    """Why an input cannot be staged, or None."""
    if why := wrong_name(job_input.name):
        return why
    path = local_path(job_input.source)
    if path is not None:
        return None if path.startswith("/") and "\0" not in path else "an absolute path is required"
    other = produced(job_input.source)
    if other is not None:
        return wrong_name(other.path)
    if job_input.source.startswith("lfn:"):
        words = "the name after lfn: must be a path of letters, digits and . _ + = @ , : ~ -, without . or .."
        return None if catalogue_name(job_input.source) is not None else words
    if job_input.source.startswith(("http:", "https:")):
        return outbound.check(job_input.source)
    return "a source is a path, a file:, http: or https: address, job:ID/PATH or lfn:NAME"


def wrong_name(name: str) -> str | None:
    """Why a name is not inside a job's folder."""
    parts = name.split("/")
    if not name or "\0" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "expected a path inside the job's folder, without . or .."
    return None
