"""Checks files that hold secrets: they exist, and only their owner can read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from forestay.adapters.private_file import open_to_others
from forestay.apps.config.settings import Settings
from forestay.apps.doctor.check_result import GOOD, MISSING, NOTE, CheckResult
from forestay.apps.doctor.named_things import files, references

PRIVATE = b"PRIVATE KEY-----"


def key(settings: Settings) -> Iterator[CheckResult]:
    path = settings.key_file
    if not path.exists():
        yield CheckResult("key", NOTE, f"{path} does not exist; the first start creates it")
    elif open_to_others(path):
        yield CheckResult("key", MISSING, f"{path} can be read by others; it signs every token", f"chmod 600 {path}")
    else:
        yield CheckResult("key", GOOD, str(path))


def others(settings: Settings) -> Iterator[CheckResult]:
    """Check secrets referenced by `file:` and `env:`, and the settings file itself if it contains a password."""
    for name, reference in references(settings):
        kind, _, where = reference.partition(":")
        if kind == "env":
            if not os.environ.get(where):
                yield CheckResult(
                    name, MISSING, f"the variable {where} is not set", f"Set {where} for every server and reconciler."
                )
            continue
        path = Path(where)
        if not path.is_file() or not os.access(path, os.R_OK):
            yield CheckResult(
                name, MISSING, f"{path} cannot be read", "Put the secret there, readable by this user only."
            )
        elif open_to_others(path):
            yield CheckResult(name, MISSING, f"{path} can be read by others", f"chmod 600 {path}")
        else:
            yield CheckResult(name, GOOD, str(path))
    for name, path in files(settings):
        if path != settings.key_file and PRIVATE in _beginning(path) and open_to_others(path):
            yield CheckResult(
                name, MISSING, f"{path} contains a private key and can be read by others", f"chmod 600 {path}"
            )
    config = os.environ.get("FORESTAY_CONFIG")
    if config and _password_in(settings.store) and "FORESTAY_STORE" not in os.environ and open_to_others(Path(config)):
        yield CheckResult(
            "settings",
            MISSING,
            f"{config} contains the store's password and can be read by others",
            f"chmod 600 {config}",
        )


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _password_in(url: str) -> bool:
    try:
        return bool(urlsplit(url).password)
    except ValueError:
        return False
