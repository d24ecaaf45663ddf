"""Secrets of a job, by reference: the name that a site gives to a value, and how the job gets the value.

Documents contain references only. The pilot that runs the job reads the values, in `forestay_pilot.job_secrets`; it parses references
in the same way, and a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_SECRETS = 32
"""Secrets of one job."""
LONGEST = 500
"""Characters of a secret's name at its source."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_RESERVED = "FORESTAY_"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}"
_FILE = re.compile(rf"{_PART}(/{_PART}){{0,3}}")
_VAULT = re.compile(rf"{_PART}(/{_PART}){{0,15}}#[A-Za-z0-9_.-]{{1,128}}")
_KV = re.compile(rf"({_PART}/)+data(/{_PART})+#.*")


class SecretSource(StrEnum):
    """Where a site keeps values."""

    FILE = "file"
    """In a folder of the site, or of a Kubernetes secret that is mounted there."""
    VAULT = "vault"
    """In a key-value store of Vault, version 2."""


@dataclass(frozen=True, slots=True)
class SecretReference:
    """One value, by its name."""

    source: str
    """One of `SecretSource`."""
    name: str
    as_file: bool = False
    """The job's variable has the path of a file with the value, not the value."""

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"


def secrets_as_plain(secrets: Mapping[str, SecretReference]) -> dict[str, Any]:
    """The field of a specification, by variable: `file:NAME`, or `{"file": NAME, "as": "file"}`; nothing for a job without secrets."""
    if not secrets:
        return {}
    return {
        "secrets": {
            variable: {reference.source: reference.name, "as": "file"} if reference.as_file else str(reference)
            for variable, reference in sorted(secrets.items())
        }
    }


def secrets_from_plain(data: Mapping[str, Any] | None) -> dict[str, SecretReference]:
    """References as they are written; raises ValueError with the variable and the error."""
    return {variable: _reference(variable, value) for variable, value in (data or {}).items()}


def _reference(variable: str, value: object) -> SecretReference:
    if isinstance(value, str) and value:
        source, _, name = value.partition(":")
        return SecretReference(source, name)
    if isinstance(value, Mapping):
        sources = [source for source in SecretSource if source in value]
        given = value.get("as", "variable")
        if len(sources) == 1 and given in ("variable", "file") and value.keys() <= {sources[0].value, "as"}:
            name = value[sources[0]]
            if isinstance(name, str) and name:
                return SecretReference(sources[0].value, name, as_file=given == "file")
    raise ValueError(f'{variable}: expected file:NAME, vault:PATH#KEY, or {{"file": NAME, "as": "file"}}')


def wrong_secrets(
    secrets: Mapping[str, SecretReference], environment: Mapping[str, str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The errors in the secrets of a job, each with its position."""
    if len(secrets) > MAX_SECRETS:
        yield (), f"a job has at most {MAX_SECRETS} secrets"
    for variable, reference in secrets.items():
        if not VARIABLE.fullmatch(variable) or variable.startswith(_RESERVED):
            yield (
                (variable,),
                f"a secret's variable has at most 100 letters, digits and '_', and does not begin with {_RESERVED}",
            )
        elif variable in environment:
            yield (variable,), "the environment sets this variable, too"
        elif problem := _name_problem(reference):
            yield (variable,), problem


def _name_problem(reference: SecretReference) -> str | None:
    name = reference.name
    if reference.source == SecretSource.FILE:
        known = _FILE.fullmatch(name)
        words = "a secret in a file is a name such as db-password or app/token: up to four parts of letters, digits and _ . @ = + -, of which none begins with a dot"
    elif reference.source == SecretSource.VAULT:
        known = _VAULT.fullmatch(name) and _KV.fullmatch(name)
        words = "a secret in Vault is MOUNT/data/PATH#KEY, such as secret/data/app#token"
    else:
        return f"there is no source {reference.source[:32]!r}; use file:NAME or vault:PATH#KEY"
    return None if known and len(name) <= LONGEST else words


def secrets_requirement(secrets: Mapping[str, SecretReference]) -> str:
    """The condition that a pilot satisfies if it has the sources of all secrets; empty: there are none."""
    return " && ".join(f'features["{feature}"] == "yes"' for feature in sorted({_feature(s) for s in secrets.values()}))


def _feature(reference: SecretReference) -> str:
    """What a pilot with a source reports."""
    return f"secrets.{reference.source}"
