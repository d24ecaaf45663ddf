"""What the administrator of a site lets jobs have: the sources of secrets, and which owners may use which.

A file of JSON, for example::

    {"folder": "/etc/forestay/secrets",
     "vault": {"address": "https://vault.example.org:8200", "token_file": "/etc/forestay/vault-token"},
     "owners": {"ann@example.org": ["file:db-password", "vault:secret/data/ann/*"], "*": ["file:proxy"]}}

It is read again for each job, so that a change counts at once. Jobs run as the pilot's user and can read what that user can: a site
that keeps values from them gives the file by a descriptor that another user opened. Then it is read once, and it has the values itself.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import Any

from forestay_pilot.job_secrets.checked_files import read_alone
from forestay_pilot.job_secrets.references import FILE, VAULT
from forestay_pilot.job_secrets.secret_error import INSECURE, SecretError
from forestay_pilot.job_secrets.vault import VaultSettings

EVERYBODY = "*"
_MOST = 1 << 20
_DESCRIPTOR = re.compile(r"/dev/fd/([0-9]{1,4})")
_FIELDS = {"folder", "values", "vault", "owners"}
_VAULT_TEXTS = ("address", "token_file", "token", "namespace", "ca_file")


@dataclass(frozen=True)
class SiteSecrets:
    """The content of the file."""

    folder: str = ""
    values: dict[str, str] = field(default_factory=dict, repr=False)
    vault: VaultSettings | None = None
    owners: dict[str, list[str]] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """The kinds of sources that there are."""
        return ([FILE] if self.folder or self.values else []) + ([VAULT] if self.vault is not None else [])

    def allows(self, owner: str, reference: str) -> bool:
        """Whether the list has a secret for an owner. An entry that ends with ``*`` stands for all that begin like it."""
        entries = [*self.owners.get(owner, ()), *self.owners.get(EVERYBODY, ())] if owner else []
        return any(
            reference == entry or (entry.endswith("*") and reference.startswith(entry[:-1])) for entry in entries
        )


class SiteSecretsFile:
    """The file, as it is now."""

    def __init__(self, path: str) -> None:
        """Raises ValueError for a file that makes no sense."""
        self._path = path
        match = _DESCRIPTOR.fullmatch(path)
        self._once = None if match is None else read_site_secrets(_read_descriptor(int(match.group(1))))
        if self._once is not None and (self._once.folder or (self._once.vault and self._once.vault.token_file)):
            raise ValueError(
                "a file that is given by a descriptor has values and the token itself: jobs could read them elsewhere"
            )
        try:
            self.sources = self.read().sources
        except SecretError as error:
            raise ValueError(str(error)) from error

    def read(self) -> SiteSecrets:
        """Raises SecretError."""
        if self._once is not None:
            return self._once
        what = "the file of the site's secrets"
        try:
            return read_site_secrets(read_alone(self._path, what, _MOST))
        except ValueError as error:
            raise SecretError(INSECURE, f"{what} cannot be used: {error}") from error

    @property
    def open_to_jobs(self) -> bool:
        """Whether jobs of several owners run as the user who reads it here."""
        return self._once is None and list(self.read().owners) != [] and len(self.read().owners) != 1


def read_site_secrets(content: bytes) -> SiteSecrets:
    """Raises ValueError, which never has a value in its text."""
    try:
        document = json.loads(content)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(document, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - of what is read
    unknown = sorted(str(name) for name in document.keys() - _FIELDS)
    if unknown:
        raise ValueError(f"it has no field {unknown[0]!r}; its fields are {', '.join(sorted(_FIELDS))}")
    folder, values = document.get("folder", ""), document.get("values", {})
    if not isinstance(folder, str) or (folder and not os.path.isabs(folder)):
        raise ValueError("'folder' is a whole path")
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise ValueError("'values' are texts by name")
    return SiteSecrets(folder, values, _vault(document.get("vault")), _owners(document.get("owners", {})))


def _vault(document: object) -> VaultSettings | None:
    if document is None:
        return None
    if not isinstance(document, dict):
        raise ValueError("'vault' has an address and a token_file")  # noqa: TRY004 - of what is read
    fields: dict[str, Any] = dict(document)
    allow_http = fields.pop("allow_http", False)
    unknown = sorted(str(name) for name in fields.keys() - set(_VAULT_TEXTS))
    if unknown or not isinstance(allow_http, bool) or not all(isinstance(text, str) for text in fields.values()):
        raise ValueError(f"'vault' has the texts {', '.join(_VAULT_TEXTS)}, and allow_http")
    settings = VaultSettings(**{"address": "", **fields}, allow_http=allow_http)
    settings.check()
    return settings


def _owners(document: object) -> dict[str, list[str]]:
    if not isinstance(document, dict):
        raise ValueError("'owners' are lists of secrets by owner")  # noqa: TRY004 - of what is read
    for owner, entries in document.items():
        if not isinstance(entries, list) or not all(
            isinstance(entry, str) and entry.startswith((f"{FILE}:", f"{VAULT}:")) for entry in entries
        ):
            raise ValueError(f"the list of {owner!r} has entries such as file:NAME and vault:PATH#KEY")
    return document


def _read_descriptor(number: int) -> bytes:
    """What another user opened; closed at once, so that nothing of it is left to jobs. Raises ValueError."""
    try:
        with open(number, "rb", closefd=number > 2) as source:
            content = source.read(_MOST + 1)
        if number <= 2:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, number)
            os.close(null)
    except OSError as error:
        raise ValueError(f"the descriptor {number} cannot be read: {error.strerror}") from error
    if len(content) > _MOST:
        raise ValueError(f"the file of the site's secrets has more than {_MOST} bytes")
    return content
