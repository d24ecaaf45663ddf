"""Staging in: the inputs of a job, brought into its folder before it starts.

Every file is checked against the size and digest that are known of it, by whoever asked for the job or by the manifest of the
job that made it. It may be had from several places, which are tried in their order. What goes wrong is told by file and by cause: not there, not
as it should be, not to be reached, no space.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.bring import bring, said
from forestay_pilot.staging.transfer import (
    FileLocation,
    StagingError,
    StoppedError,
    TransferContext,
    TransferredFile,
    TransferTerms,
)

if TYPE_CHECKING:
    from forestay_pilot.staging.single_flight import SingleFlight

__all__ = ["Fetch", "InputCache", "StagingError", "StoppedError", "stage_in"]

_AT_ONCE = 4
_MOST_TOLD = 50

Fetch = Callable[[], "tuple[int, str]"]
"""Brings an input to its target from its source; gives its size and SHA-256."""
InputCache = Callable[["dict[str, Any]", str, Fetch], str]
"""Brings an input to its target without its source if it can; gives where it came from."""
Note = Callable[["dict[str, Any]"], None]
"""Takes what is to be told of one input in the end of the job."""


def stage_in(
    inputs: list[dict[str, Any]],
    folder: str,
    *,
    sequential: bool,
    stopped: Callable[[], bool],
    ca_file: str | None = None,
    cache: InputCache | None = None,
    flight: SingleFlight | None = None,
    note: Note | None = None,
) -> None:
    """Bring all inputs into the folder; raises StagingError for the first in order that cannot be brought."""
    given_up = threading.Event()

    def one(given: dict[str, Any]) -> None:
        try:
            context = TransferContext(
                TransferTerms.read(given.get("transfer")), lambda: given_up.is_set() or stopped(), ca_file
            )
            transfer = Transfer(given, folder, context, flight=flight, peers=cache is None)
            if cache is None or given.get("refused") or given.get("missing"):
                transfer.run()
            else:
                transfer.where = cache(given, transfer.target, transfer.run)
        except StagingError as error:
            given_up.set()
            if note is not None:
                note(_told(given, None, "", error.failed))
            raise
        except BaseException:
            given_up.set()
            raise
        if note is not None:
            note(_told(given, transfer.brought, transfer.where, ()))

    if sequential or len(inputs) == 1:
        for given in inputs:
            one(given)
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="staging") as pool:
        errors = [future.exception() for future in [pool.submit(one, given) for given in inputs]]
    found = [error for error in errors if error is not None]
    # One that was given up because another failed is not the cause.
    for error in sorted(found, key=lambda one: isinstance(one, StoppedError)):
        raise error


def most_telling(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As much as an end may say: what went wrong before what went well."""
    return sorted(told, key=lambda one: (bool(one.get("from")), not one.get("failed")))[:_MOST_TOLD]


def _told(
    given: dict[str, Any], brought: TransferredFile | None, where: str, failed: tuple[str, ...]
) -> dict[str, Any]:
    told: dict[str, Any] = {"file": str(given.get("file") or ""), "name": str(given.get("name"))[:1000]}
    if where:
        told["from"] = where
    if brought is not None:
        told.update(
            kind=brought.kind,
            element=brought.element,
            bytes=brought.bytes,
            seconds=round(brought.seconds, 6),
            tries=brought.tries,
        )
        failed = brought.failed
    if failed:
        told["failed"] = list(failed)[-20:]
    return {name: value for name, value in told.items() if value != ""}


class Transfer:
    """One input on its way; needs no job."""

    def __init__(
        self,
        given: dict[str, Any],
        folder: str,
        context: TransferContext,
        *,
        flight: SingleFlight | None = None,
        peers: bool = True,
    ) -> None:
        self._given = given
        self._transfer = context
        self._flight = flight
        self._peers = peers  # whether other hosts' caches are still to be asked
        self._name = str(given.get("name"))
        self._source = str(given.get("source"))
        self.target = _inside(folder, self._name)
        self.brought: TransferredFile | None = None
        self.where = "element"

    def run(self) -> tuple[int, str]:
        """Bring it from where it is; gives its size and SHA-256."""
        began = time.monotonic()
        try:
            brought = self._run()
        except StagingError as error:
            words = f"input {self._name} from {self._source}: {error}"
            raise StagingError(error.reason, words, error=error.error, file=self._name, failed=error.failed) from error
        except StoppedError:
            raise StoppedError(self._name) from None
        self.brought = replace(brought, seconds=time.monotonic() - began)
        self.where = brought.origin
        return brought.bytes, brought.sha256

    def _run(self) -> TransferredFile:
        given = self._given
        if given.get("refused"):
            raise StagingError("policy", str(given["refused"]))
        if given.get("missing"):
            raise StagingError("data-missing", str(given["missing"]))
        places, size, sha256 = self._places()

        def fetch(target: str) -> TransferredFile:
            return bring(places, target, self._transfer, size=size, sha256=sha256)

        try:
            os.makedirs(os.path.dirname(self.target), exist_ok=True)
        except OSError as error:
            raise StagingError("disk", str(error), error=symbol(error)) from error
        file = given.get("file")
        if self._flight is None or not isinstance(file, str) or not file:
            return fetch(self.target)
        key = f"{file}\n{sha256 or ''}"
        return self._flight.obtain(key, self.target, fetch, self._transfer)

    def _places(self) -> tuple[list[FileLocation], int | None, str | None]:
        """Where it can be had from, in order, and what is known of it."""
        given = self._given
        size, digest = given.get("bytes"), given.get("sha256")
        size = size if isinstance(size, int) else None
        digest = digest if isinstance(digest, str) else None
        named = given.get("from")
        places = [FileLocation.read(one) for one in named if isinstance(one, dict)] if isinstance(named, list) else []
        if not self._peers:
            places = [one for one in places if one.kind != "peer"]
        if isinstance(given.get("manifest"), dict):
            try:
                place, size, digest = _by_manifest(given["manifest"], str(given.get("path")))
                places.append(place)
            except StagingError:
                if not places or digest is None:
                    raise
        elif not places:
            places = [FileLocation.of_source(self._source, private=given.get("private") is True)]
        first = self._transfer.terms.protocol
        return sorted(places, key=lambda one: bool(first) and one.kind != first), size, digest


def _by_manifest(manifest: dict[str, Any], path: str) -> tuple[FileLocation, int, str]:
    """An output of another job, as its manifest describes it."""
    where = str(manifest.get("path"))
    try:
        with open(where, "rb") as source:
            content = source.read()
    except OSError as error:
        words = f"the manifest {where} cannot be read: {error.strerror}"
        raise StagingError("data-missing", words, error=symbol(error)) from error
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise StagingError("data-corrupt", f"{where} is not the manifest that was committed")
    for known in json.loads(content)["files"]:
        if known["path"] == path:
            return FileLocation("file", os.path.join(os.path.dirname(where), path)), known["bytes"], known["sha256"]
    raise StagingError("data-missing", "the job has no output of this name")


def _inside(folder: str, name: str) -> str:
    """Where an input goes; a server that names a place outside is not obeyed."""
    if not name or "\0" in name or os.path.isabs(name) or any(part in ("", ".", "..") for part in name.split("/")):
        raise StagingError("bad-input", f"{said(name)!r} is not a path inside the job's folder")
    return os.path.join(folder, name)
