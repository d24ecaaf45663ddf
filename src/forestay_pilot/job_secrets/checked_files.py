"""Files that contain secrets: opened below a folder without leaving it, and only if nobody else can read or change them."""

from __future__ import annotations

import contextlib
import os
import stat

from forestay_pilot.job_secrets.secret_error import INSECURE, NOT_FOUND, UNFIT, SecretError

MAX_VALUE = 64 * 1024
"""Bytes of one secret."""
_MOST_LINKS = 8
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def read_below(folder: str, name: str) -> bytes:
    """The content of a file in a folder, by a name that `references.name_fits` allows; raises SecretError.

    Links are followed as long as they stay in the folder: Kubernetes replaces a mounted secret by changing one.
    """
    try:
        at = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError as error:
        raise SecretError(INSECURE, f"the folder of secrets cannot be opened: {error.strerror}") from error
    try:
        _check_owner(os.fstat(at), "the folder of secrets", read_only=_read_only(at))
        parts, links = name.split("/"), 0
        while True:
            part = parts.pop(0)
            try:
                descriptor = os.open(part, _OPEN | (os.O_DIRECTORY if parts else 0), dir_fd=at)
            except OSError as error:
                link = _link(at, part)
                if link is None:
                    raise _no_file(error) from error
                links += 1
                if links > _MOST_LINKS or link.startswith("/") or ".." in link.split("/"):
                    raise SecretError(INSECURE, "a link in the folder of secrets leads out of it") from error
                parts = [step for step in link.split("/") if step not in ("", ".")] + parts
                continue
            if not parts:
                return _read(descriptor, read_only=_read_only(at))
            os.close(at)
            at = descriptor
            _check_owner(os.fstat(at), "a folder of secrets", read_only=_read_only(at))
    finally:
        os.close(at)


def read_alone(path: str, what: str, most: int = MAX_VALUE) -> bytes:
    """The content of a file that only its owner, root or a group can read; raises SecretError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(INSECURE, f"{what} cannot be opened: {error.strerror}") from error
    return _read(descriptor, what=what, most=most, read_only=_read_only(descriptor))


def _read(descriptor: int, *, what: str = "the file of the secret", most: int = MAX_VALUE, read_only: bool) -> bytes:
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise SecretError(INSECURE, f"{what} is not a regular file")
    with open(descriptor, "rb") as source:
        _check_owner(about, what, read_only=read_only)
        if about.st_mode & stat.S_IROTH:
            raise SecretError(INSECURE, f"{what} can be read by others; run: chmod o= on it")
        try:
            content = source.read(most + 1)
        except OSError as error:
            raise SecretError(INSECURE, f"{what} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise SecretError(UNFIT, f"{what} has more than {most} bytes")
    return content


def _check_owner(about: os.stat_result, what: str, *, read_only: bool) -> None:
    """Raises SecretError for what another user can change."""
    if about.st_uid not in (0, os.getuid()):
        raise SecretError(INSECURE, f"{what} belongs neither to root nor to the pilot's user")
    # Kubernetes mounts a secret with mode 1777, and read-only.
    if about.st_mode & 0o022 and not read_only:
        raise SecretError(INSECURE, f"{what} can be changed by others; run: chmod go-w on it")


def _read_only(descriptor: int) -> bool:
    try:
        return bool(os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _link(folder: int, name: str) -> str | None:
    with contextlib.suppress(OSError):
        return os.readlink(name, dir_fd=folder)
    return None


def _no_file(error: OSError) -> SecretError:
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return SecretError(NOT_FOUND, "there is no such secret in the site's folder")
    return SecretError(INSECURE, f"the file of the secret cannot be opened: {error.strerror}")
