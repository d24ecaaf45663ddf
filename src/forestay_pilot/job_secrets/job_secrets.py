"""Gives a job its secrets: checks that its owner may have them, reads them, and puts files where only its user can read them."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.job_secrets.checked_files import MAX_VALUE, read_below
from forestay_pilot.job_secrets.redaction import Redactor
from forestay_pilot.job_secrets.references import FILE, NamedSecret, read_references
from forestay_pilot.job_secrets.secret_error import (
    NO_SOURCE,
    NOT_ALLOWED,
    NOT_FOUND,
    UNEXPECTED,
    UNFIT,
    UNREACHABLE,
    SecretError,
)
from forestay_pilot.job_secrets.secret_files import SecretFiles, files_of, remove_secrets
from forestay_pilot.job_secrets.vault import read_vault
from forestay_pilot.staging.transfer import StoppedError

if TYPE_CHECKING:
    from forestay_pilot.job_secrets.site_secrets import SiteSecrets, SiteSecretsFile
    from forestay_pilot.process.payload import ClaimedJob

log = logging.getLogger("forestay_pilot")

_LONGEST_VARIABLE = 100_000  # the system's limit for one is 128 KiB


@dataclass(frozen=True)
class JobSecrets:
    """The values of one job, while it runs."""

    variables: dict[str, str] = field(default_factory=dict, repr=False)
    files: tuple[str, ...] = ()
    """The variables that have the path of a file."""
    folder: str = ""
    """The job's folder of `SecretFiles`."""
    values: dict[str, str] = field(default_factory=dict, repr=False)
    """All values, for their redaction."""

    def environment(self, files_at: str) -> dict[str, str]:
        """The variables, with files in the folder in which the payload sees them."""
        return {**self.variables, **{name: os.path.join(files_at, name) for name in self.files}}

    @property
    def files_folder(self) -> str:
        """Where the files are on the host."""
        return files_of(self.folder)

    def redacted(self, end: dict[str, Any]) -> dict[str, Any]:
        """A completion without the values: a pilot's own words may have a name of a file that has one."""
        redactor = Redactor(self.values)
        return {
            name: redactor.text(value) if name in ("log_tail", "file") and isinstance(value, str) else value
            for name, value in end.items()
        }

    def remove(self) -> None:
        """Remove its files. Its guard has done so already unless it was killed."""
        remove_secrets(self.folder)


class SecretProvider:
    """The secrets that one pilot can give."""

    def __init__(self, file: SiteSecretsFile | None, work: str) -> None:
        self._file = file
        self._files = None if file is None else SecretFiles(work)
        if file is not None and file.open_to_jobs:
            log.warning("jobs run as the user of this pilot, who can read the site's secrets: see the page on secrets")

    def provide(self, job: ClaimedJob, stopped: Callable[[], bool]) -> JobSecrets:
        """The secrets that a claim names; raises SecretError, before any is read if its owner may not have one of them, and StoppedError."""
        try:
            return self._provide(job, stopped)
        except (SecretError, StoppedError):
            raise
        except Exception as error:
            # Its own text may have a value.
            raise SecretError(UNEXPECTED, f"unexpected {type(error).__name__} while secrets were read") from None

    def _provide(self, job: ClaimedJob, stopped: Callable[[], bool]) -> JobSecrets:
        references = read_references(job.secrets)
        if self._file is None or self._files is None:
            raise SecretError(NO_SOURCE, "this pilot has no source of secrets (--secrets)")
        site = self._file.read()
        for reference in references:
            if not site.allows(job.owner, reference.text):
                words = f"{job.owner} may not use {reference.text} at this site"
                raise SecretError(NOT_ALLOWED, words, reference.text)
        values = _read_all(site, references, stopped)
        variables = {
            reference.variable: _as_variable(reference, values[reference.variable])
            for reference in references
            if not reference.as_file
        }
        files = {reference.variable: values[reference.variable] for reference in references if reference.as_file}
        try:
            folder = self._files.make(job.claim, files)
        except OSError as error:
            raise SecretError(UNREACHABLE, f"no file for a secret can be made: {error.strerror}") from error
        texts = {name: value.decode("utf-8", "surrogateescape") for name, value in values.items()}
        return JobSecrets(variables, tuple(files), folder, texts)

    def close(self) -> None:
        """Remove what is left of files."""
        if self._files is not None:
            self._files.close()


def _read_all(site: SiteSecrets, references: list[NamedSecret], stopped: Callable[[], bool]) -> dict[str, bytes]:
    """The values by variable; a path in Vault is read once."""
    paths: dict[str, dict[str, Any]] = {}
    values: dict[str, bytes] = {}
    for reference in references:
        if stopped():
            raise StoppedError
        try:
            value = _read(site, reference, paths)
        except SecretError as error:
            raise SecretError(error.error, f"{reference.text}: {error}", reference.text) from None
        values[reference.variable] = value
    return values


def _read(site: SiteSecrets, reference: NamedSecret, paths: dict[str, dict[str, Any]]) -> bytes:
    if reference.source not in site.sources:
        raise SecretError(NO_SOURCE, f"this pilot has no source {reference.source!r} of secrets")
    return _read_file(site, reference.name) if reference.source == FILE else _read_key(site, reference.name, paths)


def _read_file(site: SiteSecrets, name: str) -> bytes:
    if name in site.values:
        return _as_bytes(site.values[name])
    if not site.folder:
        raise SecretError(NOT_FOUND, "the site has no such secret")
    return read_below(site.folder, name)


def _read_key(site: SiteSecrets, name: str, paths: dict[str, dict[str, Any]]) -> bytes:
    path, _, key = name.partition("#")
    assert site.vault is not None  # noqa: S101 - it is one of the sources
    if path not in paths:
        paths[path] = read_vault(site.vault, path)
    if key not in paths[path]:
        raise SecretError(NOT_FOUND, "the path in Vault has no such key")
    value = paths[path][key]
    return _as_bytes(value if isinstance(value, str) else json.dumps(value))


def _as_bytes(value: str) -> bytes:
    try:
        content = value.encode("utf-8")
    except UnicodeEncodeError:
        raise SecretError(UNFIT, "the value is no text") from None
    if len(content) > MAX_VALUE:
        raise SecretError(UNFIT, f"the value has more than {MAX_VALUE} bytes")
    return content


def _as_variable(reference: NamedSecret, value: bytes) -> str:
    """A value without the line break at its end, which editors add to files."""
    text = value.decode("utf-8", "surrogateescape")
    if text.endswith("\n"):
        text = text[:-1]
    if "\0" in text or len(value) > _LONGEST_VARIABLE:
        words = f"{reference.text}: it does not fit into a variable; take it as a file"
        raise SecretError(UNFIT, words, reference.text)
    return text
