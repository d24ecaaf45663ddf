"""The files that a job needs before it starts, and where each comes from."""

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
    """In which order the inputs of a job are brought."""

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


def filled(given: JobInput, parameters: Mapping[str, object], index: int | None) -> JobInput:
    """The input of one job."""
    name = filled_text(given.name, parameters, index)
    return replace(given, name=name, source=filled_text(given.source, parameters, index))


def filled_text(text: str, parameters: Mapping[str, object], index: int | None) -> str:
    """A text of a specification as it is for one job: braces that name no parameter stay."""

    def value(place: re.Match[str]) -> str:
        name = place.group(1)
        if name == "index" and index is not None:
            return str(index)
        if name not in parameters:
            return place.group(0)
        found = parameters[name]
        return found if isinstance(found, str) else json.dumps(found, sort_keys=True)

    return _PLACE.sub(value, text)


def produced(source: str) -> Produced | None:
    """The output that a source names; None for a source of another kind."""
    found = _JOB.fullmatch(source)
    return Produced(found[1], found[2]) if found else None


def logical_name(given: JobInput) -> str | None:
    """How caches and catalogue speak of a filled input; None where nobody can know that the file did not change meanwhile."""
    named = produced(given.source) is not None or catalogue_name(given.source) is not None
    return given.source if named or given.sha256 is not None else None


def catalogue_name(source: str) -> str | None:
    """The name of a file of the catalogue, as its rules see it; None for a source of another kind."""
    found = _LFN.fullmatch(source)
    return found[1] if found and not wrong_name(found[1].removeprefix("/")) else None


def local_path(source: str) -> str | None:
    """The path that a source names; None for a source of another kind."""
    if source.startswith("/"):
        return source
    if not source.startswith("file:"):
        return None
    parts = urlsplit(source)
    return unquote(parts.path) if parts.netloc in ("", "localhost") else None


def wrong_input(given: JobInput, outbound: OutboundPolicy) -> str | None:
    """Why an input cannot be staged, or None."""
    if why := wrong_name(given.name):
        return why
    path = local_path(given.source)
    if path is not None:
        return None if path.startswith("/") and "\0" not in path else "an absolute path is required"
    other = produced(given.source)
    if other is not None:
        return wrong_name(other.path)
    if given.source.startswith("lfn:"):
        words = "the name after lfn: must be a path of letters, digits and . _ + = @ , : ~ -, without . or .."
        return None if catalogue_name(given.source) is not None else words
    if given.source.startswith(("http:", "https:")):
        return outbound.check(given.source)
    return "a source is a path, a file:, http: or https: address, job:ID/PATH or lfn:NAME"


def wrong_name(name: str) -> str | None:
    """Why a name is not one inside a job's folder."""
    parts = name.split("/")
    if not name or "\0" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "expected a path inside the job's folder, without . or .."
    return None
