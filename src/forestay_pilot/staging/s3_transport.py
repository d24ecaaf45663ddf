"""Files in an S3 store, by URLs that the servers signed: the pilot holds no key. The store's error responses are interpreted here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from forestay_pilot.staging import web_transport
from forestay_pilot.staging.transfer import StagingError

if TYPE_CHECKING:
    from forestay_pilot.staging.partial_file import PartialFile
    from forestay_pilot.staging.transfer import FileLocation, TransferContext

_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,40})</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,300})</Message>")
_GONE = ("NoSuchKey", "NoSuchBucket", "NoSuchVersion")
_FULL = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "EntityTooLarge")
EXPIRED = "S3 RequestExpired"
"""The signed URL has expired; the next claim contains a new one."""


def fetch(place: FileLocation, partial_file: PartialFile, transfer: TransferContext) -> None:
    """Add to a draft what it lacks of an object."""
    web_transport.fetch_judged(place, partial_file, transfer, judge)


def store(path: str, size: int, place: FileLocation, transfer: TransferContext) -> None:
    """Bring a local file to a signed address."""
    web_transport.store_judged(path, size, place, transfer, judge)


def judge(status: int, body: bytes) -> StagingError:
    """What the answer of an S3 store means."""
    match, match_data = _CODE.search(body), _MESSAGE.search(body)
    if match is None:
        return web_transport.judge(status, body)
    code = match[1].decode()
    message = match_data[1].decode(errors="replace") if match_data else ""
    words = f"the store answered {status} {code}" + (f": {message}" if message else "")
    if (status == 403 and "expired" in message.lower()) or code in ("ExpiredToken", "RequestExpired"):
        return StagingError("transfer", words, error=EXPIRED)
    if code in _GONE:
        return StagingError("data-missing", words, error=f"S3 {code}")
    if code in _FULL:
        return StagingError("disk", words, error=f"S3 {code}")
    return StagingError("transfer", words, again=status >= 500 or status in (408, 429), error=f"S3 {code}")
