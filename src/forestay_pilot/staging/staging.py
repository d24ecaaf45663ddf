"""Stages in the inputs of a job, into its folder before it starts.

Every file is checked against the size and digest that are known of it, by whoever asked for the job or by the manifest of the
job that made it. It may be had from several places, which are tried in their order. What goes wrong is told by file and by cause: not there, not
as it should be, not to be reached, no space.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.process.regular_file import read_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.bring import bring, said
from forestay_pilot.staging.outputs import MAX_MANIFEST
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
"""Receives the report on one input for the job's completion."""


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
    """Stage all inputs into the folder; raises StagingError for the first in order that cannot be staged."""
    given_up = threading.Event()

    def one(spec: dict[str, Any]) -> None:
        try:
            context = TransferContext(
                TransferTerms.read(spec.get("transfer")), lambda: given_up.is_set() or stopped(), ca_file
            )
            transfer = Transfer(spec, folder, context, flight=flight, peers=cache is None)
            if cache is None or spec.get("refused") or spec.get("missing"):
                transfer.run()
            else:
                transfer.where = cache(spec, transfer.target, transfer.run)
        except StagingError as error:
            given_up.set()
            if note is not None:
                note(_told(spec, None, "", error.failed))
            raise
        except BaseException:
            given_up.set()
            raise
        if note is not None:
            fields = _told(spec, transfer.brought, transfer.where, ())
            with contextlib.suppress(OSError):
                fields.setdefault("bytes", os.path.getsize(transfer.target))
            note(fields)

    if sequential or len(inputs) == 1:
        for input_ in inputs:
            one(input_)
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="staging") as pool:
        errors = [future.exception() for future in [pool.submit(one, input_) for input_ in inputs]]
    matching_errors = [error for error in errors if error is not None]
    # One that was given up because another failed is not the cause.
    for error in sorted(matching_errors, key=lambda other_error: isinstance(other_error, StoppedError)):
        raise error


def most_telling(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many reports as a completion may contain: failures before successes."""
    return sorted(reports, key=lambda report: (bool(report.get("from")), not report.get("failed")))[:_MOST_TOLD]


def _told(spec: dict[str, Any], brought: TransferredFile | None, where: str, failed: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {"file": str(spec.get("file") or ""), "name": str(spec.get("name"))[:1000]}
    if where:
        fields["from"] = where
    if brought is not None:
        fields.update(
            kind=brought.kind,
            element=brought.element,
            bytes=brought.bytes,
            seconds=round(brought.seconds, 6),
            tries=brought.tries,
        )
        failed = brought.failed
    if failed:
        fields["failed"] = list(failed)[-20:]
    return {name: value for name, value in fields.items() if value != ""}


class Transfer:
    """One input on its way; needs no job."""

    def __init__(
        self,
        spec: dict[str, Any],
        folder: str,
        context: TransferContext,
        *,
        flight: SingleFlight | None = None,
        peers: bool = True,
    ) -> None:
        self._given = spec
        self._transfer = context
        self._flight = flight
        self._peers = peers  # whether other hosts' caches have yet to be tried
        self._name = str(spec.get("name"))
        self._source = str(spec.get("source"))
        self.target = inside(folder, self._name)
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
        spec = self._given
        if spec.get("refused"):
            raise StagingError("policy", str(spec["refused"]))
        if spec.get("missing"):
            raise StagingError("data-missing", str(spec["missing"]))
        places, size, sha256 = self._places()

        def fetch(target: str) -> TransferredFile:
            return bring(places, target, self._transfer, size=size, sha256=sha256)

        try:
            os.makedirs(os.path.dirname(self.target), exist_ok=True)
        except OSError as error:
            raise StagingError("disk", str(error), error=symbol(error)) from error
        file = spec.get("file")
        if self._flight is None or not isinstance(file, str) or not file:
            return fetch(self.target)
        key = f"{file}\n{sha256 or ''}"
        return self._flight.obtain(key, self.target, fetch, self._transfer)

    def _places(self) -> tuple[list[FileLocation], int | None, str | None]:
        """Where it can be had from, in order, and what is known of it."""
        spec = self._given
        size, digest = spec.get("bytes"), spec.get("sha256")
        size = size if isinstance(size, int) else None
        digest = digest if isinstance(digest, str) else None
        named = spec.get("from")
        places = (
            [FileLocation.read(location) for location in named if isinstance(location, dict)]
            if isinstance(named, list)
            else []
        )
        if not self._peers:
            places = [location for location in places if location.kind != "peer"]
        if isinstance(spec.get("manifest"), dict):
            try:
                place, size, digest = _by_manifest(spec["manifest"], str(spec.get("path")))
                places.append(place)
            except StagingError:
                if not places or digest is None:
                    raise
        elif not places:
            places = [FileLocation.of_source(self._source, private=spec.get("private") is True)]
        first = self._transfer.terms.protocol
        return sorted(places, key=lambda location: bool(first) and location.kind != first), size, digest


def _by_manifest(manifest: dict[str, Any], path: str) -> tuple[FileLocation, int, str]:
    """An output of another job, as its manifest describes it."""
    where = str(manifest.get("path"))
    try:
        content = read_regular(where, MAX_MANIFEST)
    except OSError as error:
        words = f"the manifest {where} cannot be read: {error.strerror}"
        raise StagingError("data-missing", words, error=symbol(error)) from error
    if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
        raise StagingError("data-corrupt", f"{where} is not the manifest that was committed")
    for known in json.loads(content)["files"]:
        if known["path"] == path:
            return FileLocation("file", os.path.join(os.path.dirname(where), path)), known["bytes"], known["sha256"]
    raise StagingError("data-missing", "the job has no output of this name")


def inside(folder: str, name: str) -> str:
    """Where an input goes; a server that names a place outside is not obeyed."""
    if not name or "\0" in name or os.path.isabs(name) or any(part in ("", ".", "..") for part in name.split("/")):
        raise StagingError("bad-input", f"{said(name)!r} is not a path inside the job's folder")
    return os.path.join(folder, name)
