"""A file system view for one process: the folders of a task at the paths that the task uses, everything else as on the host.

It is made of bind mounts in a mount namespace of its own, for which Linux needs no rights where it lets users have user namespaces. The task's own root is the
new root; what the host has there, and the task has not, is bound into it.
"""

from __future__ import annotations

import ctypes
import os
from typing import Callable

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_MOST_ENTRIES = 4000

_libc = ctypes.CDLL(None, use_errno=True)


def possible() -> bool:
    """Whether a process of ours can have a view of its own here; tried by a child."""
    child = os.fork()
    if child == 0:
        try:
            _own_namespace()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def entering(root: str, *, private: list[str], workdir: str, keep: str) -> Callable[[], None]:
    """What a freshly forked child calls before it becomes the program.

    ``private`` are the folders that are the task's alone, under ``root`` as it calls them; ``keep`` is a folder of the host that must stay reachable.
    """

    def enter() -> None:
        _own_namespace()
        _merge("/", root, set(private), keep)
        os.chroot(root)
        os.chdir(workdir)

    return enter


def _own_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_NEWUSER | _NEWNS) == 0:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    elif _libc.unshare(_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "no mount namespace is available")
    _mount("none", "/", _REC | _PRIVATE)


def _merge(host: str, target: str, private: set[str], keep: str) -> None:
    """Show what the host has in a folder also in the task's, where the task has nothing of that name."""
    with os.scandir(host) as iterator:
        entries = list(iterator)
    if len(entries) > _MOST_ENTRIES:
        raise OSError(7, f"{host} has too many entries to be shown")
    for entry in entries:
        place = os.path.join(target, entry.name)
        own = os.path.lexists(place)
        if entry.path in private:
            continue
        if own and entry.is_dir(follow_symlinks=False) and os.path.isdir(place) and not os.path.islink(place):
            if any(folder.startswith(entry.path.rstrip("/") + "/") for folder in private) or os.listdir(place):
                _merge(entry.path, place, private, keep)
                continue
        elif own and not _is_stub(entry, place):
            continue
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), place)
        elif entry.is_dir():
            os.makedirs(place, exist_ok=True)
            _bind(entry.path, place)
        elif entry.is_file():
            open(place, "ab").close()  # something to bind it to, which stays behind empty
            _bind(entry.path, place)


def _is_stub(entry: os.DirEntry[str], place: str) -> bool:
    """Whether it is only what an earlier executor's view was bound to."""
    return entry.is_file(follow_symlinks=False) and not os.path.islink(place) and os.path.getsize(place) == 0


def _bind(source: str, target: str) -> None:
    _mount(source, target, _BIND | _REC)


def _mount(source: str, target: str, flags: int) -> None:
    if _libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{target} cannot be shown: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as sink:
        sink.write(text)
