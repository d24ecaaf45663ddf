"""An area: one pilot's folder of cached files, open to the other pilots of its host.

``files`` holds the files under their SHA-256, read-only; ``index`` tells which logical names they have. The index only grows, a line
for each file that comes or goes, so a neighbour that looks again reads what is new and nothing else; now and then it is written anew
under another inode. A file is in place before its line is written and its line is taken back before it goes: whatever the moment at
which a pilot dies, no line names a file that is half there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from forestay_pilot.process.work_folder import is_ours, remove_folder, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX = "area-"
_INDEX = "index"
_FILES = "files"
_PIECE = 1 << 20
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.EACCES)


class CachedFile(NamedTuple):
    """A cached file as listed in an index."""

    name: str
    sha256: str
    size: int
    stamp: int  # when it was last written, in nanoseconds: it never changes again unless a payload spoils it
    brought: bool  # by this pilot, and not linked from another's area


class IndexChanges(NamedTuple):
    """The changes of an index since it was last read."""

    whole: bool  # it was read from its beginning: what was known before is to be forgotten
    lines: list[tuple[CachedFile | None, str]]  # a file that came, or none and the name of one that went


class Area:
    """The area of this pilot."""

    def __init__(self, shared: str) -> None:
        os.makedirs(shared, mode=0o700, exist_ok=True)
        self._lock: int | None = None
        while self._lock is None:
            self.path = tempfile.mkdtemp(prefix=PREFIX, dir=os.path.realpath(shared))
            self._lock = try_lock(self.path, new=True)
        self._files = os.path.join(self.path, _FILES)
        self._drafts = os.path.join(self.path, "drafts")
        os.mkdir(self._files, 0o700)
        os.mkdir(self._drafts, 0o700)
        self._lines = 0
        self._index = self._open_index(os.path.join(self.path, _INDEX))

    @staticmethod
    def _open_index(path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def place(self, sha256: str) -> str:
        """Where a file is, or would be."""
        return os.path.join(self._files, sha256)

    def draft(self, source: str) -> str:
        """A second name for a file, in the area but not yet part of it; a copy where it cannot be linked."""
        path = os.path.join(self._drafts, os.urandom(12).hex())
        link_or_copy(source, path)
        return path

    def accept(self, draft: str, sha256: str) -> int:
        """Give a draft its place, read-only; gives its stamp."""
        place = self.place(sha256)
        os.chmod(draft, 0o444)
        stamp = os.stat(draft).st_mtime_ns
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)  # a rename onto another name of the same file would do nothing
        os.rename(draft, place)
        return stamp

    def note(self, lines: Iterable[CachedFile | str]) -> None:
        """Write into the index what came, and the names of what went."""
        rows = [list(line) if isinstance(line, CachedFile) else [line] for line in lines]
        self._lines += len(rows)
        if rows:
            _write(self._index, b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def tidy(self, known: Iterable[CachedFile], count: int) -> None:
        """Rewrite the index when most of its lines are obsolete."""
        if self._lines < 1000 or self._lines < 4 * count:
            return
        draft = os.path.join(self.path, _INDEX + ".new")
        descriptor = self._open_index(draft)
        rows = [json.dumps(list(file)).encode() + b"\n" for file in known]
        _write(descriptor, b"".join(rows))
        os.rename(draft, os.path.join(self.path, _INDEX))
        os.close(self._index)
        self._index, self._lines = descriptor, len(rows)

    def drop(self, sha256: str) -> bool:
        """Remove a file; whether that was its last link on this host."""
        place = self.place(sha256)
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(place)
            return False  # unknown; the process that unlinked it has reported it
        try:
            os.unlink(place)
            # Asked after the deed: of two pilots that unlink at once, one at least sees that none is left.
            return os.fstat(descriptor).st_nlink == 0
        except FileNotFoundError:
            return False
        finally:
            os.close(descriptor)

    def free_space(self) -> int:
        """What the disk has left for this user."""
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def orphans(self) -> Iterator[tuple[str, list[CachedFile]]]:
        """The neighbouring areas of dead pilots, with their files; each is removed when the next is requested."""
        shared = os.path.dirname(self.path)
        for name in sorted(os.listdir(shared)):
            folder = os.path.join(shared, name)
            if not name.startswith(PREFIX) or folder == self.path or not is_ours(folder):
                continue
            lock = try_lock(folder)
            if lock is None:
                continue
            try:
                with contextlib.suppress(OSError):
                    yield folder, list(AreaIndex(folder).all())
                remove_folder(folder)
            finally:
                os.close(lock)

    def close(self) -> None:
        """Remove the area; neighbours keep what they have linked."""
        os.close(self._index)
        remove_folder(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class AreaIndex:
    """The index of another pilot's area, read bit by bit."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._inode = 0
        self._offset = 0

    def place(self, sha256: str) -> str:
        """Where a file of that area is."""
        return os.path.join(self.path, _FILES, sha256)

    def news(self) -> IndexChanges:
        """What came and went since the last look. Raises OSError when the area cannot be reached."""
        index = os.path.join(self.path, _INDEX)
        about = os.stat(index)
        if about.st_ino == self._inode and about.st_size == self._offset:
            return IndexChanges(False, [])  # noqa: FBT003
        with open(index, "rb") as source:
            inode = os.fstat(source.fileno()).st_ino
            whole = inode != self._inode
            if whole:
                self._inode, self._offset = inode, 0
            source.seek(self._offset)
            content = source.read()
        end = content.rfind(b"\n") + 1  # a line being written is read next time
        self._offset += end
        return IndexChanges(
            whole, [line for row in content[:end].splitlines() if (line := _read_line(row)) is not None]
        )

    def all(self) -> Iterable[CachedFile]:
        """What the area holds, oldest first."""
        held: dict[str, CachedFile] = {}
        for known, name in self.news().lines:
            held.pop(name, None)
            if known is not None:
                held[name] = known
        return held.values()


def _read_line(row: bytes) -> tuple[CachedFile | None, str] | None:
    """One line of an index; none for one that makes no sense."""
    try:
        fields = json.loads(row)
        if len(fields) == 1:
            return None, str(fields[0])
        name, sha256, size, stamp, brought = fields
        known = CachedFile(str(name), str(sha256), int(size), int(stamp), bool(brought))
    except (ValueError, TypeError, KeyError):
        return None
    if len(known.sha256) != 64 or not known.sha256.isalnum() or known.size < 0:
        return None  # it would be part of a path
    return known, known.name


def untouched(place: str, size: int, stamp: int) -> bool:
    """Whether a cached file is as it was when it came: payloads have links to it, and may be able to write."""
    try:
        about = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size == size and about.st_mtime_ns == stamp


def digest_of(place: str) -> str:
    """The SHA-256 of a file; empty when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(place, "rb", buffering=0) as source:
            while True:
                piece = source.read(_PIECE)
                if not piece:
                    return digest.hexdigest()
                digest.update(piece)
    except OSError:
        return ""


def link_or_copy(source: str, target: str) -> bool:
    """Give a file a second name; where that cannot be, copy it. Whether it is a link."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(source, target, follow_symlinks=False)
        about = os.stat(source)
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
        return False
    return True


def link_into(place: str, target: str) -> bool:
    """Link a file to the path that a job needs, or copy it: False. Usually the folder exists and the name is free."""
    try:
        return link_or_copy(place, target)
    except FileExistsError:
        os.unlink(target)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(target), exist_ok=True)
    return link_or_copy(place, target)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
