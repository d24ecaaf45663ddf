"""Lists files on a file system that orchestrators and pilots share."""

from __future__ import annotations

import asyncio
import glob
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate
from pathlib import Path

from forestay.adapters.system.regular_file import open_regular
from forestay.ports.data.file_lists import MAX_LISTED
from forestay.ports.errors import Permanent

MAX_BYTES = 64 << 20
"""Of a file whose lines are a listing."""


class SharedFiles:
    """Implements the port `FileLists`. A flow may read only under the folders that an administrator configures, and never Forestay's own files."""

    def __init__(self, roots: Sequence[Path], *, hidden: Sequence[Path] = (), most: int = MAX_LISTED) -> None:
        self.roots = [os.path.realpath(root) for root in roots]
        self.hidden = [os.path.realpath(path) for path in hidden]
        self.most = most

    async def files(self, pattern: str) -> list[str]:
        return await asyncio.to_thread(self._files, pattern)

    async def lines(self, path: str) -> list[str]:
        return await asyncio.to_thread(self._lines, path)

    async def there(self, path: str) -> bool:
        return await asyncio.to_thread(lambda: os.path.exists(self._allowed(path)))

    def _files(self, pattern: str) -> list[str]:
        whole = self._whole(pattern)
        folders, _, last = whole.rpartition("/")
        name = re.compile(translate(last))
        paths: list[str] = []
        for folder in self._folders(folders or "/"):
            for entry in _entries(folder):
                if entry.name.startswith(".") and not last.startswith("."):
                    continue
                if name.match(entry.name) and _is_file(entry):
                    paths.append(entry.path)
                    if len(paths) > self.most:
                        raise Permanent(f"more than {self.most} files match {pattern}")
        return sorted(paths)

    def _folders(self, pattern: str) -> Iterator[str]:
        """The folders that match; those that a link moves outside are left out."""
        if not glob.has_magic(pattern):
            yield self._allowed(pattern)
            return
        # The part before the first wildcard must itself be allowed: no pattern may reveal what is outside.
        fixed = re.split(r"[*?[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        self._allowed(fixed or "/")
        yield from (folder for folder in glob.iglob(pattern) if self._inside(folder))

    def _lines(self, path: str) -> list[str]:
        place = self._allowed(path)
        try:
            file = open_regular(place)
        except OSError as error:
            raise Permanent(f"{path} cannot be read: {error.strerror}") from error
        with file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise Permanent(f"{path} has more than {MAX_BYTES} bytes")
            text = file.read(MAX_BYTES)
        try:
            lines = [line for line in text.decode().splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise Permanent(f"{path} is not UTF-8 text") from error
        if len(lines) > self.most:
            raise Permanent(f"{path} has more than {self.most} lines")
        return lines

    def _whole(self, path: str) -> str:
        if "\0" in path or ".." in path.split("/"):
            raise Permanent(f"{path!r} is not a valid path: .. is not allowed")
        if not self.roots:
            raise Permanent("no files may be listed here; an administrator can set flow_files")
        return path if path.startswith("/") else os.path.join(self.roots[0], path)

    def _allowed(self, path: str) -> str:
        place = os.path.realpath(self._whole(path))
        if not self._inside(place):
            raise Permanent(f"{path} is not in a folder that flows may read; an administrator can set flow_files")
        return place

    def _inside(self, place: str) -> bool:
        real = os.path.realpath(place)
        return any(_under(real, root) for root in self.roots) and not any(_under(real, root) for root in self.hidden)


def _under(place: str, root: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as error:
        raise Permanent(f"{folder} cannot be read: {error.strerror}") from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False
