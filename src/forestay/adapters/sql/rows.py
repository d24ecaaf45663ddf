"""Documents as rows, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import is_, itemgetter
from typing import Any, TypeVar

import orjson

from forestay.adapters.sql.tables import DERIVED_NUMBERS, DERIVED_TEXT, OWN_NUMBERS, OWN_TEXT
from forestay.domain.jobs.hash_slots import hash_slot_of
from forestay.domain.jobs.job_document import FIELDS, JobDocument, rank, search_fields
from forestay.formats.jobs.job_json import flow_ref_to_json, job_from_json, own_fields
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import Stored, Version

Row = tuple[Any, ...]
"""The values of one row, in the order of its table's columns."""

TERM = 1
"""A SQL store has one history, so all its versions are of one term."""

_ESCAPE = "\ue000"
LARGEST = 2**63 - 1
_MAX_KEY = 1000
"""The most bytes of an indexed text; PostgreSQL allows about 2,700 for all columns of an index together."""

_Text = TypeVar("_Text", str, str | None)


def escaped(value: _Text) -> _Text:
    """A text without the null character, which PostgreSQL's text cannot hold; different texts remain different."""
    if value is None or ("\0" not in value and _ESCAPE not in value):
        return value
    return value.replace(_ESCAPE, _ESCAPE + "e").replace("\0", _ESCAPE + "0")


def unescaped(value: str) -> str:
    if _ESCAPE not in value:
        return value
    return value.replace(_ESCAPE + "0", "\0").replace(_ESCAPE + "e", _ESCAPE)


def to_json(value: object, what: str) -> bytes:
    """The bytes of a document; `Permanent` for values that JSON cannot represent, such as half a surrogate pair or a huge number."""
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
    if _has_escapes(body):
        texts = [escaped(text) for text in texts]
    numbers = [*map(get, OWN_NUMBERS), *map(find, DERIVED_NUMBERS)]
    for number in numbers:
        if number is not None and not -LARGEST <= number <= LARGEST:
            raise Permanent(f"job {document.id!r} has a number beyond 64 bits: {number}")
    for key in (document.id, document.specification, find("lane"), find("pilot"), find("run")):
        check_key(key, document.id)
    labels = None
    if document.labels:
        labels = orjson.dumps([label(key, value) for key, value in document.labels.items()]).decode()
    return (escaped(document.id), version, *texts, *numbers, derived["held"], labels, body)


OWN = frozenset({"id", "index", "parameters", "flow_ref"})
"""The fields in which the jobs of one scatter differ; all others are identical objects."""
_shared = itemgetter(*sorted(FIELDS - OWN))
_AT = {name: 2 + place for place, name in enumerate((*OWN_TEXT, *DERIVED_TEXT, *OWN_NUMBERS, *DERIVED_NUMBERS))}
_INDEX, _RANK, _SLOT = _AT["index"], _AT["rank"], _AT["slot"]


def new_rows(documents: Iterable[JobDocument]) -> list[Row]:
    """The rows of new jobs. The common part of one scatter's jobs is computed once: there may be a million at a time."""
    rows: list[Row] = []
    pattern: _Pattern | None = None
    for document in documents:
        row = pattern.row(document) if pattern is not None else None
        if row is None:
            row = job_row(document, 1)
            pattern = None if document.flow_ref is None or document.index is None else _Pattern(document, row)
        rows.append(row)
    return rows


class _Pattern:
    """A job of a scatter, used as a pattern for the rows of the others."""

    def __init__(self, first: JobDocument, row: Row) -> None:
        self.shared = _shared(first.__dict__)
        self.flow_ref = first.flow_ref
        self.values = list(row)
        body = orjson.dumps({name: value for name, value in own_fields(first).items() if name not in OWN})
        self.odd = first.final or _has_escapes(body)
        self.body = body[:-1]

    def row(self, document: JobDocument) -> Row | None:
        """The row of a new job; None if it does not match the pattern."""
        flow_ref, before, name, index = document.flow_ref, self.flow_ref, document.id, document.index
        if self.odd or flow_ref is None or before is None or flow_ref[:2] != before[:2] or index is None:
            return None
        if (
            not 0 <= index <= LARGEST
            or len(name) > _MAX_KEY // 4
            or not all(map(is_, _shared(document.__dict__), self.shared))
        ):
            return None
        own: dict[str, object] = {"id": name, "index": index, "flow_ref": flow_ref_to_json(flow_ref)}
        if document.parameters:
            own["parameters"] = document.parameters
        body = to_json(own, f"job {name!r}")
        if _has_escapes(body):
            return None
        values = self.values.copy()
        values[0], values[_INDEX], values[_RANK], values[_SLOT] = name, index, rank(document), hash_slot_of(name)
        values[-1] = self.body + b"," + body[1:]
        return tuple(values)


def _has_escapes(body: bytes) -> bool:
    """Whether it contains the escape character or a character that must be escaped."""
    return b"\\u0000" in body or b"\xee\x80\x80" in body


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
    document: Mapping[str, object] = orjson.loads(body)
    return document
