"""A file during its transfer: what has arrived is on disk, and its digest is computed meanwhile.

An interrupted partial file is kept, so that the next attempt can resume it; also the next process, which then hashes the existing part.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.pump import Fill, SinkError, pump
from forestay_pilot.staging.transfer import FULL, StagingError

if TYPE_CHECKING:
    from forestay_pilot.staging.transfer import TransferContext


class PartialFile:
    """The received part of one file. Not thread-safe."""

    def __init__(self, path: str, *, size: int | None = None, sha256: str | None = None) -> None:
        self.path = path
        self.wanted_size = size
        self.wanted_sha256 = sha256
        self.mark = ""  # the server's identifier of this version of the file
        self.announced: int | None = None  # its size according to the server
        self.mixed = False  # whether it was made in more than one go
        self.size = 0
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The digest of what has come."""
        return self._digest.hexdigest()

    @property
    def resumable(self) -> bool:
        """Whether the transfer can be resumed without the risk of an undetected wrong file."""
        return self.size > 0 and bool(self.wanted_sha256 or self.mark)

    def restart(self) -> None:
        """Forget what has come."""
        self.size, self.mark, self.mixed, self.announced = 0, "", False, None
        self._digest = hashlib.sha256()

    def adopt(self, transfer: TransferContext) -> None:
        """Resume from an earlier process's partial file; only if the digest is known, which then proves the result."""
        if self.wanted_sha256 is None or self.size:
            return
        with contextlib.suppress(OSError), open(self.path, "rb", buffering=0) as left:
            if self.wanted_size is not None and os.fstat(left.fileno()).st_size > self.wanted_size:
                return
            buffer = memoryview(bytearray(transfer.terms.piece))
            while True:
                transfer.go_on()
                count = left.readinto(buffer)
                if not count:
                    break
                self._digest.update(buffer[:count])
                self.size += count
            self.mixed = self.size > 0

    def take(self, fill: Fill, transfer: TransferContext) -> None:
        """Add what a source gives, to its end. What the source raises passes; an error of this disk is a StagingError."""
        piece = transfer.terms.piece
        if self.wanted_size is not None:
            piece = min(piece, max(1 << 14, self.wanted_size - self.size + 1))

        def moved(count: int) -> None:
            self.size += count
            transfer.go_on()

        transfer.go_on()
        try:
            with _Sink(self.path, self.size) as sink:
                pump(fill, sink.descriptor, self._digest.update, piece=piece, at=self.size, moved=moved)
        except SinkError as error:
            raise disk_error(error.error) from error

    def follow(self, size: int, transfer: TransferContext) -> None:
        """Hash what another program has written into the draft by now."""
        with open(self.path, "rb", buffering=0) as source:
            source.seek(self.size)
            buffer = memoryview(bytearray(min(transfer.terms.piece, max(1, size - self.size))))
            while self.size < size:
                transfer.go_on()
                count = source.readinto(buffer[: min(len(buffer), size - self.size)])
                if not count:
                    return
                self._digest.update(buffer[:count])
                self.size += count

    def check(self) -> None:
        """Check the file against the requested size and digest; raises StagingError."""
        if self.wanted_size is not None and self.size != self.wanted_size:
            raise StagingError("data-corrupt", f"it has {self.size} bytes, {self.wanted_size} were expected")
        if self.wanted_sha256 is not None and self.sha256 != self.wanted_sha256:
            words = f"its SHA-256 is {self.sha256}, {self.wanted_sha256} was expected"
            raise StagingError("data-corrupt", words)


def disk_error(error: OSError) -> StagingError:
    """What this disk refused."""
    if error.errno in FULL:
        return StagingError("disk", f"no space for it: {error.strerror}", error=symbol(error))
    return StagingError("transfer", str(error), again=True, error=symbol(error))


class _Sink:
    """The draft opened for writing where its good part ends."""

    def __init__(self, path: str, size: int) -> None:
        try:
            self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            try:
                os.ftruncate(self.descriptor, size)
                os.lseek(self.descriptor, size, os.SEEK_SET)
            except BaseException:
                os.close(self.descriptor)
                raise
        except OSError as error:
            raise SinkError(error) from error

    def __enter__(self) -> _Sink:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)
