"""What a job needs of its pilot beyond amounts of resources: features, seats of licences, and secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from forestay.domain.jobs.job_secrets import SecretReference, secrets_as_plain, secrets_requirement, wrong_secrets

REQUIRES = "requires"
"""The field of a document for the condition that its pilot has to satisfy."""
LICENCES = "licences"
"""The field of a document for the seats of each licence that its job has while it runs."""

MAX_REQUIREMENT = 1000
MAX_LICENCES = 8
MAX_SEATS = 10_000
LICENCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class _HasNeeds(Protocol):
    @property
    def requires(self) -> str: ...
    @property
    def licences(self) -> Mapping[str, int]: ...
    @property
    def secrets(self) -> Mapping[str, SecretReference]: ...
    @property
    def environment(self) -> Mapping[str, str]: ...


def needs_as_plain(job: _HasNeeds) -> dict[str, Any]:
    """The three fields, without defaults: ids of specifications without them stay as they were."""
    out: dict[str, Any] = {}
    if job.requires:
        out["requires"] = job.requires
    if job.licences:
        out["licences"] = dict(sorted(job.licences.items()))
    if job.secrets:
        out |= secrets_as_plain(job.secrets)
    return out


def wrong_needs(job: _HasNeeds) -> list[tuple[tuple[str, ...], str]]:
    """The errors in the three fields, each with its position. Whether the condition compiles is checked elsewhere."""
    wrong: list[tuple[tuple[str, ...], str]] = []
    if len(job.requires) > MAX_REQUIREMENT:
        wrong.append((("requires",), f"a requirement has at most {MAX_REQUIREMENT} characters"))
    if len(job.licences) > MAX_LICENCES:
        wrong.append((("licences",), f"a job uses at most {MAX_LICENCES} licences"))
    for name, seats in job.licences.items():
        if not LICENCE_NAME.fullmatch(name):
            wrong.append((("licences", name), "a licence's name has letters, digits, '.', '_', '@' and '-'"))
        elif not 1 <= seats <= MAX_SEATS:
            wrong.append((("licences", name), f"a job has 1 to {MAX_SEATS:,} seats of a licence"))
    wrong += [(("secrets", *at), words) for at, words in wrong_secrets(job.secrets, job.environment)]
    return wrong


def requirement_of(extra: Mapping[str, object]) -> str:
    """The condition in a job's document; empty for none."""
    condition = extra.get(REQUIRES)
    return condition if isinstance(condition, str) else ""


def licences_of(extra: Mapping[str, object]) -> Mapping[str, int]:
    """The seats in a job's document, by licence."""
    seats = extra.get(LICENCES)
    return seats if isinstance(seats, Mapping) else {}


def needs_extra(job: _HasNeeds) -> dict[str, object]:
    """The part that a job's document repeats, since the dispatcher does not read specifications."""
    out: dict[str, object] = {}
    if condition := _whole_requirement(job):
        out[REQUIRES] = condition
    if job.licences:
        out[LICENCES] = dict(job.licences)
    return out


def _whole_requirement(job: _HasNeeds) -> str:
    """What the job asks for, and the sources of its secrets."""
    if not job.secrets:
        return job.requires
    sources = secrets_requirement(job.secrets)
    return f"({job.requires}) && {sources}" if job.requires else sources
