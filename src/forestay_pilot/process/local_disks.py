"""Which files are on disks of this host.

A network file system may not answer for hours, and whoever opens a file there waits. A guard must never wait.
"""

from __future__ import annotations

import functools
import os
import struct

_LOCAL = frozenset(b"btrfs erofs ext2 ext3 ext4 f2fs overlay ramfs rootfs squashfs tmpfs xfs zfs".split())
_MOUNTS = "/proc/self/mountinfo"
_MOST = 256
_ELF = b"\x7fELF\2"  # of 64 bits
_HEADER = struct.Struct("<32xQ14xHH")  # where its segments are told, in what size, and how many
_SEGMENT = struct.Struct("<I4xQ16xQ")  # its kind, where it begins, and how long it is
_INTERPRETER = 3
_HEAD = 4096  # bytes of a program that tell what else is needed to start it


def is_local_folder(path: str) -> bool:
    """Whether a folder, or a file, is on such a disk."""
    try:
        return _is_local(path, os.stat(path).st_dev)
    except OSError:
        return False


def is_local_program(path: str) -> bool:
    """Whether a program, and what starts it, is on such disks."""
    try:
        seen = os.stat(path)
        return _is_local(path, seen.st_dev) and _starts_here(path, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns)
    except OSError:
        return False


@functools.lru_cache(maxsize=_MOST)
def _is_local(_path: str, device: int) -> bool:
    return device in _local_devices()


@functools.lru_cache(maxsize=_MOST)
def _starts_here(path: str, _inode: int, _modified: int, _changed: int) -> bool:
    """For one state of a file: most jobs run the same few programs.

    The way to it must not lead through other disks by a link. Of programs only those of this machine's own kind count: a script, or
    a format that somebody has registered, has an interpreter that may be anywhere.
    """
    folders = {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}
    with open(path, "rb", buffering=0) as source:
        head = source.read(_HEAD)
    if not head.startswith(_ELF):
        return False
    interpreter = _interpreter(head)
    if interpreter is None:
        return False
    if interpreter:
        if not is_local_folder(interpreter):
            return False
        folders |= {os.path.dirname(interpreter), os.path.dirname(os.path.realpath(interpreter))}
    return all(is_local_folder(folder) for folder in folders)


def _interpreter(head: bytes) -> str | None:
    """What loads a program, as its first bytes name it; empty for one that needs nothing, None where they do not tell."""
    try:
        at, size, count = _HEADER.unpack_from(head)
        for number in range(count):
            kind, begin, length = _SEGMENT.unpack_from(head, at + number * size)
            if kind == _INTERPRETER:
                name = head[begin : begin + length]
                return os.fsdecode(name[:-1]) if len(name) == length and name.endswith(b"\0") else None
    except struct.error:
        return None
    return ""


def _local_devices() -> set[int]:
    """The numbers of the file systems that are kept by this host itself."""
    devices = set()
    with open(_MOUNTS, "rb") as source:
        for line in source:
            words = line.split()
            try:
                kind = words[words.index(b"-", 6) + 1]
                major, _, minor = words[2].partition(b":")
                if kind in _LOCAL:
                    devices.add(os.makedev(int(major), int(minor)))
            except (ValueError, IndexError):
                continue
    return devices
