"""Stages one file: its sources are tried in order, each a few times, and a partial transfer is continued."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING, Callable

from forestay_pilot.staging import file_transport, root_transport, s3_transport, web_transport
from forestay_pilot.staging.partial_file import PartialFile, disk_error
from forestay_pilot.staging.transfer import FileLocation, StagingError, TransferContext, TransferredFile

if TYPE_CHECKING:
    from collections.abc import Sequence

FetchBy = Callable[[FileLocation, PartialFile, TransferContext], None]
"""Completes a partial file. Raises StagingError, and StoppedError when the file is no longer needed."""

FETCH: dict[str, FetchBy] = {
    "file": file_transport.fetch,
    "http": web_transport.fetch,
    "peer": web_transport.fetch,
    "s3": s3_transport.fetch,
    "root": root_transport.fetch,
}

_FIRST_WAIT = 0.2
_MOST = 10  # times the tries, for a transfer that gets on each time before it breaks
# If several places failed differently, the most helpful error counts: a retryable one comes first.
_WEIGHT = ("transfer", "data-corrupt", "data-missing", "policy")


def bring(
    places: Sequence[FileLocation],
    target: str,
    transfer: TransferContext,
    *,
    size: int | None = None,
    sha256: str | None = None,
) -> TransferredFile:
    """Bring a file to a path, from the first place that gives it whole and as it should be.

    Raises StagingError with the errors of all places; it stops at the first when this disk is full.
    """
    began = time.monotonic()
    partial_file = PartialFile(target + ".staging", size=size, sha256=sha256)
    partial_file.adopt(transfer)
    errors: list[tuple[FileLocation, StagingError]] = []
    tries = 0
    for place in places:
        try:
            tries += _try_place(place, partial_file, transfer, errors)
        except StagingError as error:
            errors.append((place, error))
            tries += 1
            if error.reason == "disk":
                break
            if not (partial_file.wanted_sha256 and error.reason == "transfer"):
                partial_file.restart()  # what another place has may be another file
            partial_file.mark = ""
            continue
        try:
            os.rename(partial_file.path, target)
        except OSError as error:
            raise disk_error(error) from error
        return TransferredFile(
            sha256=partial_file.sha256,
            bytes=partial_file.size,
            kind=place.kind,
            element=place.element,
            seconds=time.monotonic() - began,
            tries=tries,
            failed=_failures(errors),
            origin="peer" if place.kind == "peer" else "element",
        )
    raise _verdict(errors, several=len(places) > 1)


def _try_place(
    place: FileLocation,
    partial_file: PartialFile,
    transfer: TransferContext,
    errors: list[tuple[FileLocation, StagingError]],
) -> int:
    """Try one place as often as the terms say; a try that got on is not held against it. Gives how many it took."""
    terms = transfer.terms
    fetch = FETCH.get(place.kind)
    if fetch is None:
        raise StagingError("transfer", f"this pilot does not support sources of kind {said(place.kind)!r}")
    wait, idle, begun_anew = _FIRST_WAIT, 0, False
    for tried in range(1, terms.tries * _MOST + 1):
        transfer.go_on()
        before = partial_file.size
        try:
            fetch(place, partial_file, transfer)
            _check(partial_file, begun_anew=begun_anew)
        except StagingError as error:
            if error.reason == "data-corrupt" and error.again:
                begun_anew = True
                partial_file.restart()
            elif not error.again:
                raise
            elif partial_file.size > before:
                idle, wait = 0, _FIRST_WAIT
            else:
                idle += 1
            if idle >= terms.tries or tried >= terms.tries * _MOST:
                raise
            errors.append((place, error))
            transfer.pause(max(error.wait, wait * random.uniform(0.5, 1.0)))  # noqa: S311 - spreads load, guards nothing
            wait = min(wait * 4, 30.0)
        else:
            return tried
    raise AssertionError("the last try raises")


def _check(partial_file: PartialFile, *, begun_anew: bool) -> None:
    try:
        partial_file.check()
    except StagingError as error:
        # One that was put together from parts of several tries is fetched once more in one piece before it is called bad.
        error.again = partial_file.mixed and not begun_anew
        raise


def _verdict(errors: list[tuple[FileLocation, StagingError]], *, several: bool) -> StagingError:
    if not errors:
        return StagingError("data-missing", "no source for it is known")
    last = _last_of_each(errors)
    by_weight = {reason: weight for weight, reason in enumerate(_WEIGHT)}
    # A full disk was the last error, and is reported alone.
    place, error = (
        last[-1] if last[-1][1].reason == "disk" else min(last, key=lambda attempt: by_weight.get(attempt[1].reason, 0))
    )
    words = "; ".join(f"{where}: {staging_error}" for where, staging_error in last) if several else str(error)
    if not several and place.element:
        words = f"{place}: {words}"
    return StagingError(error.reason, words, error=error.error, again=error.again, failed=_failures(errors))


def _last_of_each(errors: list[tuple[FileLocation, StagingError]]) -> list[tuple[FileLocation, StagingError]]:
    last: dict[str, tuple[FileLocation, StagingError]] = {}
    for place, error in errors:
        last.pop(place.at, None)
        last[place.at] = (place, error)
    return list(last.values())


def _failures(errors: list[tuple[FileLocation, StagingError]]) -> tuple[str, ...]:
    return tuple(said(f"{place.element or place.kind}: {error}") for place, error in errors)[-20:]


def said(words: str) -> str:
    """Text in the form that a completion may contain."""
    return "".join(letter if letter.isprintable() else " " for letter in words)[:300]
