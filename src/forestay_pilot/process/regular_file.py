"""Files that others may have made: payloads, the pilots before this one, other jobs.

Such a name may lead to a pipe, which an ordinary open would wait for without end, to a device, which never ends, or by a link to somebody else's file.
"""

from __future__ import annotations

import errno
import os
import stat


class NotRegularError(OSError):
    """The name leads to something else than a file, or to a larger one than is allowed."""

    def __init__(self, words: str) -> None:
        super().__init__(errno.EINVAL, words)


def open_regular(path: str, *, links: bool = False) -> int:
    """The descriptor of a file to be read; raises NotRegularError for everything else. A link is refused unless ``links``."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotRegularError("it is a link or a socket") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError("it is not a regular file")
    return descriptor


def read_regular(path: str, most: int) -> bytes:
    """The content of a file; raises NotRegularError for everything else, and for more than ``most`` bytes."""
    with open(open_regular(path), "rb") as source:
        content = source.read(most + 1)
    if len(content) > most:
        raise NotRegularError(f"it has more than {most} bytes")
    return content
