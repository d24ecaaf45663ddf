"""Documents as rows, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from holdfast.adapters.sql.tables import DERIVED_NUMBERS, DERIVED_TEXT, OWN_NUMBERS, OWN_TEXT
from holdfast.domain.jobs.job_document import JobDocument, search_fields
from holdfast.formats.job_json import job_from_json, own_fields
from holdfast.ports.errors import Permanent
from holdfast.ports.job_store import Stored, Version

Row = tuple[Any, ...]
"""The values of one row, in the order of its table's columns."""

TERM = 1
"""A SQL store has one history, so all its versions are of one term."""

_ESCAPE = "\ue000"
LARGEST = 2**63 - 1
_MAX_KEY = 1000
"""Bytes of a text that an index holds; PostgreSQL takes about 2,700 for all columns of an index together."""

_Text = TypeVar("_Text", str, str | None)


def escaped(value: _Text) -> _Text:
    """A text without the null character, which PostgreSQL's text cannot hold; no two texts become the same."""
    if value is None or ("\0" not in value and _ESCAPE not in value):
        return value
    return value.replace(_ESCAPE, _ESCAPE + "e").replace("\0", _ESCAPE + "0")


def unescaped(value: str) -> str:
    if _ESCAPE not in value:
        return value
    return value.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "e", _ESCAPE)


def to_json(value: object, what: str) -> bytes:
    """The bytes of a document; `Permanent` for what JSON cannot say, such as half a character or a huge number."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise Permanent(f"{what} cannot be stored: {error}") from error


def job_row(document: JobDocument, version: int) -> Row:
    """A job's row at its new version."""
    data = own_fields(document)
    derived: dict[str, Any] = search_fields(document)
    body = to_json(data, f"job {document.id!r}")
    get, find = data.get, derived.get
    texts = [*map(get, OWN_TEXT), *map(find, DERIVED_TEXT)]
    if b"\\u0000" in body or b"\xee\x80\x80" in body:  # the escape, or what must be escaped, is somewhere in it
        texts = [escaped(text) for text in texts]
    numbers = [*map(get, OWN_NUMBERS), *map(find, DERIVED_NUMBERS)]
    for number in numbers:
        if number is not None and not -LARGEST <= number <= LARGEST:
            raise Permanent(f"job {document.id!r} has a number beyond 64 bits: {number}")
    for key in (document.id, document.specification, find("lane"), find("pilot"), find("case")):
        check_key(key, document.id)
    labels = None
    if document.labels:
        labels = orjson.dumps([label(key, value) for key, value in document.labels.items()]).decode()
    return (escaped(document.id), version, *texts, *numbers, derived["held"], labels, body)


def check_key(key: str | None, what: str) -> None:
    """Refuse a text that is too long for an index."""
    if key is not None and len(key) > _MAX_KEY // 4 and len(key.encode()) > _MAX_KEY:
        raise Permanent(f"{what[:80]!r}: {key[:80]!r}… is longer than {_MAX_KEY} bytes")


def label(key: str, value: str) -> str:
    """A label as one text: the pair in JSON, so that no two pairs look the same."""
    return to_json([key, value], "a label").decode()


def stored_job(version: int, document: bytes) -> Stored:
    """A job's document as it was read."""
    return Stored(job_from_json(orjson.loads(document)), Version(version, TERM))


def body_of(body: bytes) -> Mapping[str, object]:
    found: Mapping[str, object] = orjson.loads(body)
    return found
