"""Files that others may have made: users, pilots, payloads.

Such a name may lead to a pipe, which an ordinary open would wait for without end, to a device, which never ends, or by a link to a file that only we may read.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """A file, opened to be read; `OSError` for anything else, a link too."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")
