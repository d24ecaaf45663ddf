"""Files that the pilot accesses by a path: local disks, and shared file systems of a site."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from forestay_pilot.process.regular_file import NotRegularError, open_regular
from forestay_pilot.process.slot_end import symbol
from forestay_pilot.staging.transfer import StagingError

if TYPE_CHECKING:
    from forestay_pilot.staging.partial_file import PartialFile
    from forestay_pilot.staging.transfer import FileLocation, TransferContext

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM)


def fetch(place: FileLocation, partial_file: PartialFile, transfer: TransferContext) -> None:
    """Add to a draft what it lacks of a file."""
    try:
        source = open_regular(place.at, links=True)  # sites have links to their data
    except NotRegularError as error:
        raise StagingError("data-missing", f"{place.at}: {error.strerror}", error=symbol(error)) from error
    except (OSError, ValueError) as error:
        raise _error(error) from error
    try:
        if not partial_file.wanted_sha256:
            partial_file.restart()
        partial_file.mixed = partial_file.size > 0
        os.lseek(source, partial_file.size, os.SEEK_SET)
        partial_file.take(lambda buffer: os.readv(source, [buffer]), transfer)
    except OSError as error:
        raise _error(error) from error
    finally:
        os.close(source)


def _error(error: OSError | ValueError) -> StagingError:
    if isinstance(error, ValueError):
        return StagingError("data-missing", str(error))
    words = error.strerror or str(error)
    if error.errno in _NOT_THERE:
        return StagingError("data-missing", words, error=symbol(error))
    return StagingError("transfer", words, again=True, error=symbol(error))
