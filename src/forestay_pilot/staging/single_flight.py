"""Single flight: of all jobs and pilots of a host that need the same file at the same time, one transfers it.

Whoever wants a file says so by a shared lock, and takes its turn by an exclusive one. The first fetches; the others find the file when their
turn comes, and the last one moves it away. Locks are those of the kernel, so that a dead leader's is free at once; the next one goes on with what the
dead one had. A failure is that of all who waited for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Callable

from forestay_pilot.staging.partial_file import disk_error
from forestay_pilot.staging.transfer import StagingError, StoppedError, TransferContext, TransferredFile, TransferTerms

if TYPE_CHECKING:
    from collections.abc import Iterator

FetchTo = Callable[[str], TransferredFile]
_LOOK = 0.02
_TIDY_WAIT = 0.5
_OLD = 24 * 3600


class SingleFlight:
    """The area that all pilots of a host (and user) share for files that are on their way."""

    def __init__(self, area: str) -> None:
        self._area = os.path.realpath(area)  # made when it is needed, and removed with the last file

    def obtain(self, key: str, target: str, fetch: FetchTo, transfer: TransferContext) -> TransferredFile:
        """Fetch a file to a path by one transfer for all processes that need it now. Each gets a copy of its own, to which it may write."""
        came = time.monotonic()
        folder = os.path.join(self._area, hashlib.sha256(key.encode()).hexdigest())
        file = os.path.join(folder, "file")
        try:
            with _interest(folder, transfer) as interest:
                with _turn(folder, transfer):
                    brought = self._bring(folder, fetch, came)
                    if interest.alone():
                        os.rename(file, target)
                        _clear(folder)
                        return brought
                    ready = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    _copy(ready, target, transfer)  # others may take theirs meanwhile
                finally:
                    os.close(ready)
                return brought
        except OSError as error:
            raise disk_error(error) from error
        finally:
            self._tidy(folder)

    def _bring(self, folder: str, fetch: FetchTo, came: float) -> TransferredFile:
        about = os.path.join(folder, "about")
        with contextlib.suppress(OSError, ValueError, TypeError):
            with open(about, encoding="utf-8") as source:
                document = json.load(source)
            if "reason" in document:
                if document["at"] >= came:
                    raise StagingError(
                        document["reason"], document["words"], error=document["error"], failed=tuple(document["failed"])
                    )
            elif os.path.exists(os.path.join(folder, "file")):
                file = TransferredFile(**{**document, "failed": tuple(document["failed"])})
                return replace(file, origin="neighbour", tries=0, failed=())
        try:
            brought = fetch(os.path.join(folder, "file"))
        except StagingError as error:
            fields = {"reason": error.reason, "words": str(error), "error": error.error, "failed": error.failed}
            _write(about, {**fields, "at": time.monotonic()})
            raise
        _write(about, asdict(brought))
        return brought

    def _tidy(self, folder: str) -> None:
        """The last process cleans up; later ones start again. A process that keeps the turn for longer cleans up at its own end."""
        until = time.monotonic() + _TIDY_WAIT
        transfer = TransferContext(TransferTerms(), lambda: time.monotonic() > until)
        try:
            with _turn(folder, transfer, make=False), _interest(folder, transfer, make=False) as interest:
                if interest.alone():
                    _clear(folder)
        except (OSError, StoppedError):
            return  # it is cleared already, or someone else is at it

    def clear_old(self) -> None:
        """Remove what dead pilots left a day ago, unless someone uses it just now."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._area):
                folder = os.path.join(self._area, name)
                with contextlib.suppress(OSError):
                    if time.time() - os.stat(folder).st_mtime > _OLD:
                        self._tidy(folder)


class _Interest:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def alone(self) -> bool:
        """Whether no other process needs the file; if so, none can request it until this one releases the lock."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


@contextlib.contextmanager
def _interest(folder: str, transfer: TransferContext, *, make: bool = True) -> Iterator[_Interest]:
    descriptor = _locked(os.path.join(folder, "interest"), fcntl.LOCK_SH, transfer, make=make)
    try:
        yield _Interest(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _turn(folder: str, transfer: TransferContext, *, make: bool = True) -> Iterator[None]:
    descriptor = _locked(os.path.join(folder, "turn"), fcntl.LOCK_EX, transfer, make=make)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: str, kind: int, transfer: TransferContext, *, make: bool) -> int:
    """A descriptor that holds the lock of a file which still has its name; waits for it."""
    while True:
        try:
            if make:
                folder = os.path.dirname(path)
                os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
                os.makedirs(folder, mode=0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            if not make:
                raise
            continue  # its folder was cleared just now
        try:
            while True:
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    transfer.go_on()
                    time.sleep(_LOOK)
            with contextlib.suppress(FileNotFoundError):
                if _same(descriptor, path):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        if not make:
            raise FileNotFoundError(path)


def _same(descriptor: int, path: str) -> bool:
    here, there = os.fstat(descriptor), os.stat(path)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _clear(folder: str) -> None:
    """Remove a folder whose locks this process holds, the turn last: until then no other process uses it."""
    for name in ("file", "file.staging", "about", "about.new", "interest", "turn"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    with contextlib.suppress(OSError):
        os.rmdir(folder)
        os.rmdir(os.path.dirname(folder))


def _copy(source: int, target: str, transfer: TransferContext) -> None:
    """Copy a whole file on this disk; where the file system can, without moving its bytes."""
    partial_file = target + ".staging"
    sink = os.open(partial_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        left, at = os.fstat(source).st_size, 0
        while left:
            transfer.go_on()
            count = os.sendfile(sink, source, at, min(left, 1 << 26))
            if not count:
                raise OSError(5, "the file became shorter while it was copied")
            left, at = left - count, at + count
    finally:
        os.close(sink)
    os.rename(partial_file, target)


def _write(path: str, document: dict[str, object]) -> None:
    partial_file = path + ".new"
    with open(partial_file, "w", encoding="utf-8") as sink:
        json.dump(document, sink)
    os.rename(partial_file, path)
