"""Which files are on disks of this host.

A network file system may not answer for hours, and whoever opens a file there waits. A guard must never wait.
"""

from __future__ import annotations

import functools
import os

_LOCAL = frozenset(b"btrfs erofs ext2 ext3 ext4 f2fs overlay ramfs rootfs squashfs tmpfs xfs zfs".split())
_MOUNTS = "/proc/self/mountinfo"
_SCRIPT = b"#!"
_MOST = 256


def is_local_folder(path: str) -> bool:
    """Whether a folder is on such a disk."""
    try:
        return _is_local(path, os.stat(path).st_dev)
    except OSError:
        return False


def is_local_program(path: str) -> bool:
    """Whether a program is on such a disk and has no interpreter, which may be elsewhere."""
    try:
        seen = os.stat(path)
        return _is_local(path, seen.st_dev) and _is_binary(path, seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns)
    except OSError:
        return False


@functools.lru_cache(maxsize=_MOST)
def _is_local(_path: str, device: int) -> bool:
    return device in _local_devices()


@functools.lru_cache(maxsize=_MOST)
def _is_binary(path: str, _inode: int, _modified: int, _changed: int) -> bool:
    """For one state of a file: most jobs run the same few programs."""
    with open(path, "rb", buffering=0) as source:
        return source.read(len(_SCRIPT)) != _SCRIPT


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
