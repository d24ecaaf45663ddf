"""The files in which completions are kept until servers have settled them.

To make a file and to remove it costs more than the rest of a short job's end. So one file takes many ends, one after the other, and goes
when the last of them is settled. It is a JSON list and stays one: what is added takes the place of the bracket at its end, in one write.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from typing import Any

# Bytes. What is settled stays in a file as long as one of its ends is not, and would be sent again with it.
_ENOUGH = 64 * 1024
_END = b"]"


class CompletionFile:
    """One file with ends."""

    def __init__(self, path: str, ends: int) -> None:
        self.path = path
        self.ends = ends  # that are not settled


class _OpenFile(CompletionFile):
    """One that is being written."""

    def __init__(self, folder: str) -> None:
        # A name that no payload can have guessed, and that no other pilot's file has, which may come here when that one dies.
        super().__init__(os.path.join(folder, os.urandom(16).hex() + ".json"), 0)
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self.size = 0

    def add(self, documents: list[dict[str, Any]]) -> None:
        """Write ends, all or none: OSError."""
        content = json.dumps(documents).encode()
        if self.size:
            content = b"," + content[1:]
        at = max(0, self.size - len(_END))
        written = 0
        try:
            written = os.pwrite(self._descriptor, content, at)
        finally:
            if written < len(content):
                self._restore(at)
        if written < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.size = at + written
        self.ends += len(documents)

    def _restore(self, at: int) -> None:
        """Make it what it was before a write that failed."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self.size)
            os.pwrite(self._descriptor, _END[: self.size], at)

    def close(self) -> None:
        os.close(self._descriptor)


class CompletionFiles:
    """The files of one pilot, for all its threads."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._open: _OpenFile | None = None

    def keep(self, documents: list[dict[str, Any]]) -> CompletionFile:
        """Write ends to disk; raises OSError."""
        with self._lock:
            if self._open is None:
                self._open = _OpenFile(self._folder)
            file = self._open
            try:
                file.add(documents)
            finally:
                if file.size >= _ENOUGH or not file.size:
                    self._close(file)
            return file

    def settle(self, file: CompletionFile) -> None:
        """One of its ends is settled."""
        with self._lock:
            file.ends -= 1
            if file.ends <= 0:
                self._close(file)

    def _close(self, file: CompletionFile) -> None:
        """Write no more to a file, and remove it if nothing is left in it."""
        if file is self._open:
            self._open.close()
            self._open = None
        if file.ends <= 0:
            with contextlib.suppress(OSError):
                os.unlink(file.path)


def write_completions(path: str, documents: list[dict[str, Any]]) -> None:
    """Write a whole file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as sink:
        sink.write(json.dumps(documents))


def parse_completions(content: bytes) -> list[Any]:
    """What is in such a file, with None for a rest that cannot be read: a pilot may have died in the midst of a write. ValueError where nothing can."""
    try:
        documents = json.loads(content)
    except ValueError:
        documents = _before_damage(content.decode(errors="replace"))
        if not documents:
            raise
        return [*documents, None]
    return documents if isinstance(documents, list) else [documents]  # as earlier pilots kept one


def _before_damage(text: str) -> list[Any]:
    decoder = json.JSONDecoder()
    documents: list[Any] = []
    at = 0
    with contextlib.suppress(ValueError):
        while text[at : at + 1] == ("," if documents else "["):
            at += 1
            while text[at : at + 1] == " ":
                at += 1
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
    return documents
