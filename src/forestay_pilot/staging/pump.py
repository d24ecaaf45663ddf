"""Moves bytes: reads, writes and hashes at the same time.

One thread reads and writes, one hashes, over a few buffers that are used again and again; of large files a third one asks the kernel to
write out what has come, so that the disk works meanwhile and little is left to wait for when the file is synced.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Callable

from forestay_pilot.process import libc

Fill = Callable[[memoryview], int]
"""Puts the next bytes into a buffer and returns their number; 0 at the end."""

_BUFFERS = 4
_FLUSH = 1 << 23
_LARGE = 1 << 26


class SinkError(Exception):
    """Writing failed; the source of the data raises its own errors."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def pump(
    fill: Fill,
    sink: int,
    update: Callable[[memoryview], object],
    *,
    piece: int,
    at: int = 0,
    moved: Callable[[int], None],
) -> None:
    """Write all data of a source to a descriptor, and hash them; ``moved`` is called for every written piece, before the next is read.

    Whatever ends it, what was told as moved is hashed when it returns. Raises SinkError, and what ``fill`` and ``moved`` raise.
    """
    with _Hashing(update, piece) as hashing, _Flushing(sink, at) as flushing:
        while True:
            buffer = hashing.buffer()
            count = fill(buffer)
            if not count:
                return
            try:
                left = buffer[:count]
                while left:
                    left = left[os.write(sink, left) :]
            except OSError as error:
                raise SinkError(error) from error
            hashing.hand_on(buffer, count)
            flushing.wrote(count)
            moved(count)


class _Hashing:
    """Hashes buffers in their order beside whoever fills them; done with all when left. A small file needs no second thread."""

    def __init__(self, update: Callable[[memoryview], object], piece: int) -> None:
        self._update = update
        self._piece = piece
        self._made = 0
        self._free: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[memoryview, int] | None] = queue.SimpleQueue()
        self._first: tuple[memoryview, int] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> _Hashing:
        return self

    def buffer(self) -> memoryview:
        """An unused buffer; waits for one when all are full."""
        if self._made < _BUFFERS and self._free.empty():
            self._made += 1
            return memoryview(bytearray(self._piece))
        return self._free.get()

    def hand_on(self, buffer: memoryview, count: int) -> None:
        """Hash the first bytes of a buffer, then make it free."""
        if self._thread is None:
            if self._first is None:
                self._first = (buffer, count)  # if it is the only one, no thread is needed
                return
            self._full.put(self._first)
            self._thread = threading.Thread(target=self._run, name="hashing", daemon=True)
            self._thread.start()
        self._full.put((buffer, count))

    def _run(self) -> None:
        while True:
            chunk = self._full.get()
            if chunk is None:
                return
            self._update(chunk[0][: chunk[1]])
            self._free.put(chunk[0])

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._full.put(None)
            self._thread.join()
        elif self._first is not None:
            self._update(self._first[0][: self._first[1]])


class _Flushing:
    """Writes a large file to disk while it arrives. Nothing waits for it, and it may fail: callers that need the file on disk sync it."""

    def __init__(self, sink: int, at: int) -> None:
        self._sink = sink
        self._begun = self._asked = self._end = at
        self._ranges: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._over = False

    def __enter__(self) -> _Flushing:
        return self

    def wrote(self, count: int) -> None:
        """More has been written."""
        self._end += count
        if self._end - self._asked < _FLUSH or self._end - self._begun < _LARGE:
            return
        if self._thread is None:
            own = os.dup(self._sink)  # it may be at work still when the file is closed
            self._thread = threading.Thread(target=self._run, args=(own,), name="flushing", daemon=True)
            self._thread.start()
        self._ranges.put((self._asked, self._end - self._asked))
        self._asked = self._end

    def _run(self, own: int) -> None:
        try:
            while True:
                part = self._ranges.get()
                if part is None or self._over:
                    return
                libc.begin_write_out(own, *part)
        finally:
            os.close(own)

    def __exit__(self, *_: object) -> None:
        self._over = True  # parts not begun by now are left to the kernel
        self._ranges.put(None)
