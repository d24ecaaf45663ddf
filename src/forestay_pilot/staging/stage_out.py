"""Stages outputs to a storage element: the files of an attempt under its own path there, and its manifest last.

Nobody reads what lies there before the servers commit the manifest. What fails is tried again as a transfer, file by file; the
payload has done its work and is not run for it.
"""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable
from urllib.parse import quote

from forestay_pilot.process.regular_file import open_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging import root_transport, s3_transport, web_transport
from forestay_pilot.staging.outputs import (
    FOLDER_GONE,
    OutputFailedError,
    OutputManifest,
    attempt_parts,
    commit_outputs,
    find_outputs,
    manifest_of,
)
from forestay_pilot.staging.transfer import FileLocation, StagingError, TransferContext, TransferTerms

if TYPE_CHECKING:
    from forestay_pilot.process.payload import ClaimedJob

StoreBy = Callable[[str, int, FileLocation, TransferContext], None]
"""Uploads a local file of a size to a place. Raises StagingError, and StoppedError when it is no longer needed."""

STORE: dict[str, StoreBy] = {
    "http": web_transport.store,
    "s3": s3_transport.store,
    "root": root_transport.store,
}

Sign = Callable[["ClaimedJob", "list[dict[str, Any]]"], "dict[str, str]"]
"""Asks the servers for addresses to which files of a claim may be put. Raises StagingError."""

MANIFEST = "manifest.json"
_TRIES = 8
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 30.0
_AT_ONCE = 4
_SIGNED_AT_ONCE = 1000


@dataclass(frozen=True)
class OutputStorage:
    """The storage element that a claim's outputs go to."""

    name: str
    kind: str
    base: str
    prefix: str
    private: bool
    terms: TransferTerms

    @classmethod
    def read(cls, spec: dict[str, Any]) -> OutputStorage:
        """As the claim names it."""
        return cls(
            name=str(spec.get("element") or ""),
            kind=str(spec.get("kind") or ""),
            base=str(spec.get("base") or "").rstrip("/"),
            prefix=str(spec.get("prefix") or "").strip("/"),
            private=spec.get("private") is True,
            terms=TransferTerms.read(spec.get("transfer"), tries=_TRIES),
        )

    def manifest_path(self, job: ClaimedJob) -> str:
        """What the end calls the manifest."""
        return "/".join(part for part in (f"element:{self.name}", self.prefix, *attempt_parts(job), MANIFEST) if part)


def store_outputs(
    job: ClaimedJob,
    folder: str,
    patterns: list[str],
    element: OutputStorage,
    *,
    sign: Sign,
    stopped: Callable[[], bool],
) -> OutputManifest:
    """Bring the declared outputs to a storage element, and the manifest last.

    Raises OutputMissingError when a pattern has no file, OutputFailedError with the transport's own word, StoppedError.
    """
    transfer = TransferContext(element.terms, stopped)
    if element.kind == "file":
        return replace(_commit(job, folder, patterns, element, transfer), path=element.manifest_path(job))
    if element.kind not in STORE:
        raise OutputFailedError(f"this pilot does not support storage of kind {element.kind!r}")
    if not os.path.isdir(folder):
        raise OutputFailedError("the working folder is gone", error=FOLDER_GONE)
    outputs = find_outputs(folder, patterns)
    if MANIFEST in outputs:
        raise OutputFailedError(f"an output has the reserved name {MANIFEST}", error="EEXIST")
    upload = _Upload(job, element, transfer, sign)
    try:
        sizes = {name: os.stat(path).st_size for name, path in outputs.items()}
        upload.prepare([*sizes.items(), (MANIFEST, 0)])
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="staging") as pool:
            futures = [(name, pool.submit(upload.bring, name, outputs[name], sizes[name])) for name in sorted(outputs)]
            try:
                listing = [(name, sizes[name], future.result()) for name, future in futures]
            except BaseException:
                upload.given_up = True
                raise
        content, manifest = manifest_of(job, element.manifest_path(job), listing)
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(folder), prefix="manifest-") as partial_file:
            partial_file.write(content)
            partial_file.flush()
            upload.bring(MANIFEST, partial_file.name, len(content))
    except OSError as error:
        words = f"outputs could not be read: {error.strerror or error}"
        raise OutputFailedError(words, error=symbol(error)) from error
    return manifest


def _commit(
    job: ClaimedJob, folder: str, patterns: list[str], element: OutputStorage, transfer: TransferContext
) -> OutputManifest:
    """To a folder that pilots see."""
    wait = _FIRST_WAIT
    for left in range(element.terms.tries - 1, -1, -1):
        try:
            return commit_outputs(job, folder, patterns, element.base)
        except OutputFailedError as error:
            if not left or error.error not in ("EIO", "ESTALE", "ETIMEDOUT", "EHOSTDOWN", "EAGAIN"):
                raise
            transfer.pause(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing
            wait = min(wait * 2, _LONGEST_WAIT)
    raise AssertionError("the last try raises")


class _Upload:
    """The outputs of one attempt on their way."""

    def __init__(self, job: ClaimedJob, element: OutputStorage, transfer: TransferContext, sign: Sign) -> None:
        self._job = job
        self._element = element
        self._sign = sign
        self._signed: dict[str, str] = {}
        self.given_up = False
        self._transfer = TransferContext(transfer.terms, lambda: self.given_up or transfer.stopped())

    def prepare(self, files: list[tuple[str, int]]) -> None:
        """Have addresses for all files that need signed ones."""
        if self._element.kind == "s3":
            for start in range(0, len(files), _SIGNED_AT_ONCE):
                self._try("", lambda part=files[start : start + _SIGNED_AT_ONCE]: self._ask(part))  # type: ignore[misc]

    def _ask(self, files: list[tuple[str, int]]) -> None:
        self._signed.update(self._sign(self._job, [{"path": path, "bytes": size} for path, size in files]))

    def bring(self, name: str, path: str, size: int) -> str:
        """Bring one file; gives its SHA-256."""
        with ThreadPoolExecutor(1, thread_name_prefix="hashing") as beside:
            digest = beside.submit(_digest, path, self._transfer)
            self._try(name, lambda: self._store(name, path, size))
            seen, sha256 = digest.result()
        if seen != size or os.stat(path).st_size != size:
            raise OutputFailedError(f"output {name} changed while it was transferred to {self._element.name}")
        return sha256

    def _store(self, name: str, path: str, size: int) -> None:
        try:
            STORE[self._element.kind](path, size, self._place(name), self._transfer)
        except StagingError as error:
            if error.error == s3_transport.EXPIRED:
                self._ask([(name, size)])
                error.again = True
            raise

    def _place(self, name: str) -> FileLocation:
        element = self._element
        if element.kind == "s3":
            at = self._signed.get(name, "")
        else:
            parts = [*attempt_parts(self._job), *name.split("/")]
            at = "/".join((element.base, *(quote(part) if element.kind == "http" else part for part in parts)))
        return FileLocation(element.kind, at, element.private, element.name)

    def _try(self, name: str, deed: Callable[[], None]) -> None:
        """As often as the terms say. What cannot go better, or did not, is the end's word."""
        wait = _FIRST_WAIT
        for left in range(self._transfer.terms.tries - 1, -1, -1):
            self._transfer.go_on()
            try:
                deed()
            except StagingError as error:
                if not left or not error.again:
                    what = f"output {name}" if name else "outputs"
                    words = f"{what} could not be transferred to {self._element.name or self._element.base}: {error}"
                    # The same system error means this host's disk when there is no network in between.
                    word = f"connection {error.error}" if error.error.startswith("E") else error.error
                    raise OutputFailedError(words, error=word, file=name) from error
                self._transfer.pause(max(error.wait, wait * random.uniform(0.5, 1.0)))  # noqa: S311 - spreads load
                wait = min(wait * 2, _LONGEST_WAIT)
            else:
                return


def _digest(path: str, transfer: TransferContext) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open(open_regular(path), "rb", buffering=0) as source:
        buffer = memoryview(bytearray(transfer.terms.piece))
        while True:
            transfer.go_on()
            count = source.readinto(buffer)
            if not count:
                return size, digest.hexdigest()
            digest.update(buffer[:count])
            size += count
