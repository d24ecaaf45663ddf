"""The secrets that a claim names. The servers read references in the same way, in `forestay.domain.jobs.job_secrets`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from forestay_pilot.job_secrets.secret_error import UNFIT, SecretError

FILE, VAULT = "file", "vault"
LONGEST = 500
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}"
_NAMES = {
    FILE: re.compile(rf"{_PART}(/{_PART}){{0,3}}"),
    VAULT: re.compile(rf"{_PART}(/{_PART}){{0,15}}#[A-Za-z0-9_.-]{{1,128}}"),
}
_KV = re.compile(rf"({_PART}/)+data(/{_PART})+#.*")


class NamedSecret(NamedTuple):
    """One value, by its name at a source."""

    variable: str
    source: str
    name: str
    as_file: bool

    @property
    def text(self) -> str:
        """As lists of the site have it."""
        return f"{self.source}:{self.name}"


def read_references(secrets: dict[str, Any]) -> list[NamedSecret]:
    """References as a specification has them; raises SecretError for any that no server lets through."""
    return [_reference(str(variable), value) for variable, value in sorted(secrets.items())]


def name_fits(source: str, name: str) -> bool:
    """Whether a source can have a secret of this name."""
    if source not in _NAMES or len(name) > LONGEST or not _NAMES[source].fullmatch(name):
        return False
    return source != VAULT or _KV.fullmatch(name) is not None


def _reference(variable: str, value: object) -> NamedSecret:
    source, name, as_file = "", "", False
    if isinstance(value, str):
        source, _, name = value.partition(":")
    elif isinstance(value, dict):
        source = next((source for source in _NAMES if source in value), "")
        name, as_file = str(value.get(source)), value.get("as") == "file"
    known = _VARIABLE.fullmatch(variable) and not variable.startswith("FORESTAY_")
    if not known or not name_fits(source, name):
        raise SecretError(UNFIT, f"the secret {variable[:100]!r} is not written as a reference to one")
    return NamedSecret(variable, source, name, as_file)
