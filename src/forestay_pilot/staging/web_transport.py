"""Files on web servers. An interrupted transfer is continued if the server still has the same file.

No redirect is followed: it could lead anywhere.
"""

from __future__ import annotations

import http.client
import re
import socket
from typing import TYPE_CHECKING, Callable

from forestay_pilot.process.regular_file import open_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.outbound import StorageCall
from forestay_pilot.staging.transfer import StagingError

if TYPE_CHECKING:
    from forestay_pilot.staging.partial_file import PartialFile
    from forestay_pilot.staging.transfer import FileLocation, TransferContext

Judge = Callable[[int, bytes], StagingError]
"""What an answer that is not a good one means: its status, and the beginning of its body."""

_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_WORDS = 4096
_READ = 1 << 18
_LONGEST_WAIT = 30.0


def fetch(place: FileLocation, partial_file: PartialFile, transfer: TransferContext) -> None:
    """Add to a draft what it lacks of a file on a web server."""
    fetch_judged(place, partial_file, transfer, judge)


def fetch_judged(place: FileLocation, partial_file: PartialFile, transfer: TransferContext, judged: Judge) -> None:
    """The same, with the caller's own understanding of bad answers."""
    before = partial_file.size
    try:
        with StorageCall(place, transfer) as call:
            headers = {**call.headers, "Accept-Encoding": "identity"}
            if partial_file.resumable:
                # A known end is sent: some servers (XRootD 5.5) answer an open range with nothing.
                whole = partial_file.wanted_size or partial_file.announced
                headers["Range"] = (
                    f"bytes={partial_file.size}-{whole - 1 if whole and whole > partial_file.size else ''}"
                )
                if partial_file.mark:
                    headers["If-Range"] = partial_file.mark
            else:
                partial_file.restart()
            call.connection.request("GET", call.target, headers=headers)
            answer = call.answer()
            length = _accept(answer, partial_file, judged)
            begun = partial_file.size
            partial_file.take(_Body(answer).fill, transfer)
    except http.client.IncompleteRead as error:
        raise StagingError(
            "transfer", f"the transfer was interrupted after {partial_file.size} bytes", again=True
        ) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        name = symbol(error) if isinstance(error, OSError) else ""
        if isinstance(error, socket.timeout) and not name:  # of its own kind in Python 3.9
            name = "ETIMEDOUT"
        after = f" after {partial_file.size} bytes" if partial_file.size > before else ""
        words = f"{type(error).__name__}: {error}{after}"
        raise StagingError("transfer", words, again=True, error=name) from error
    if length is not None and partial_file.size - begun != length:
        whole = begun + length
        raise StagingError(
            "transfer", f"the transfer was interrupted after {partial_file.size} of {whole} bytes", again=True
        )


class _Body:
    """Fills buffers with a response's data. Data received before an error are delivered first, so that they are not fetched again."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self._error: Exception | None = None

    def fill(self, buffer: memoryview) -> int:
        if self._error is not None:
            raise self._error
        filled = 0
        while filled < len(buffer):
            try:
                count = self._answer.readinto(buffer[filled : filled + _READ])
            except (OSError, http.client.HTTPException) as error:
                if not filled:
                    raise
                self._error = error
                break
            if not count:
                break
            filled += count
        return filled


def _accept(answer: http.client.HTTPResponse, partial_file: PartialFile, judged: Judge) -> int | None:
    """Make the draft ready for an answer; gives how many bytes it announces."""
    if answer.status == 206:
        match = _RANGE.fullmatch(answer.getheader("Content-Range") or "")
        if match is None or int(match[1]) != partial_file.size:
            partial_file.restart()
            raise StagingError("transfer", "the server sent another range than requested", again=True)
        partial_file.mixed = True
    elif answer.status == 200:
        partial_file.restart()
    elif answer.status == 416 and partial_file.size:
        # Nothing is left to send, or it is another file by now: either way the next look begins at the front.
        partial_file.restart()
        raise StagingError("transfer", "the server has no more data", again=True, error="HTTP 416")
    else:
        raise _refusal(answer, judged)
    partial_file.mark = mark_of(answer)
    length = answer.getheader("Content-Length")
    if length is None or not length.isdigit():
        return None
    partial_file.announced = partial_file.size + int(length)
    return int(length)


def _refusal(answer: http.client.HTTPResponse, judged: Judge) -> StagingError:
    try:
        body = answer.read(_WORDS)
    except (OSError, http.client.HTTPException):
        body = b""
    error = judged(answer.status, body)
    error.wait = wait_of(answer)
    return error


def mark_of(answer: http.client.HTTPResponse) -> str:
    """What the server calls this version of the file, if it promises that equal marks mean equal bytes."""
    mark = answer.getheader("ETag") or ""
    return mark if mark.startswith('"') else ""


def wait_of(answer: http.client.HTTPResponse) -> float:
    """The seconds that the server asks to wait."""
    asked = answer.getheader("Retry-After") or ""
    return min(_LONGEST_WAIT, float(asked)) if asked.isdigit() else 0.0


def judge(status: int, _body: bytes) -> StagingError:
    """What the answer of a plain web server means."""
    words, name = f"the server answered {status}", f"HTTP {status}"
    if status in (404, 410):
        return StagingError("data-missing", words, error=name)
    if status == 507:
        return StagingError("disk", f"{words}: it has no space", error=name)
    return StagingError("transfer", words, again=status >= 500 or status in (408, 429), error=name)


def store(path: str, size: int, place: FileLocation, transfer: TransferContext) -> None:
    """Bring a local file to a web server."""
    store_judged(path, size, place, transfer, judge)


def store_judged(path: str, size: int, place: FileLocation, transfer: TransferContext, judged: Judge) -> None:
    """The same, with the caller's own understanding of bad answers."""
    sent = 0
    try:
        with StorageCall(place, transfer) as call, open(open_regular(path), "rb", buffering=0) as source:
            connection = call.connection
            connection.putrequest("PUT", call.target, skip_host=True, skip_accept_encoding=True)
            for name, value in {**call.headers, "Content-Length": str(size), "Content-Type": _KIND}.items():
                connection.putheader(name, value)
            connection.endheaders()
            buffer = memoryview(bytearray(min(transfer.terms.piece, max(1, size))))
            broken: OSError | None = None
            while sent < size:
                transfer.go_on()
                count = source.readinto(buffer[: min(len(buffer), size - sent)])
                if not count:
                    raise StagingError("output-failed", "the file became shorter while it was sent")
                try:
                    connection.sock.sendall(buffer[:count])
                except OSError as error:
                    broken = error  # a server that refuses may say why before it has read all
                    break
                sent += count
            try:
                answer = call.answer()
            except (OSError, http.client.HTTPException):
                if broken is not None:
                    raise broken from None
                raise
            if not 200 <= answer.status < 300:
                raise _refusal(answer, judged)
            answer.read(_WORDS)
    except (OSError, http.client.HTTPException, ValueError) as error:
        name = symbol(error) if isinstance(error, OSError) else ""
        if isinstance(error, socket.timeout) and not name:  # of its own kind in Python 3.9
            name = "ETIMEDOUT"
        words = f"{type(error).__name__}: {error} after {sent} of {size} bytes"
        raise StagingError("transfer", words, again=True, error=name) from error


_KIND = "application/octet-stream"
