"""Interprets OpenSearch's responses: vendor errors become port errors, the lines of a bulk response become results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opensearchpy.exceptions import ConnectionError as VendorConnectionError
from opensearchpy.exceptions import OpenSearchException, TransportError

from forestay.ports.errors import Conflict, NotFound, Permanent, PortError, Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Version, Written

_BY_STATUS: Mapping[int, type[PortError]] = {
    400: Permanent,
    401: Permanent,
    403: Permanent,
    404: NotFound,
    405: Permanent,
    406: Permanent,
    409: Conflict,
    413: Permanent,
}
"""The meaning of a status while the set-up is checked. Everything else (timeouts, 408, 429, 5xx) may succeed later."""

_BLOCKED = frozenset({"cluster_block_exception", "index_create_block_exception"})
"""Errors answered with 403 although they are temporary: a full disk, a cluster without a manager."""

_OF_THE_REQUEST = frozenset(
    {
        "action_request_validation_exception",
        "document_parsing_exception",
        "illegal_argument_exception",
        "mapper_parsing_exception",
        "number_format_exception",
        "parsing_exception",
        "too_many_clauses",
        "too_many_nested_clauses",
        "x_content_parse_exception",
    }
)
"""Answered with 400 because of the values of a request. Every other refusal (a missing or closed index, credentials, rights)
means that the cluster changed under the server: an operator repairs that, and the request was right."""
_OF_THE_SETUP = ("alias", "fielddata", "Fielddata", "write index", "mapper [")
"""Words of an `illegal_argument_exception` that concerns the indexes and not the request."""

_NOT_PARSED = re.compile(r"failed to parse field \[[^]]*\] of type \[(\w+)\](?:.*field's value: '(.*)')?", re.DOTALL)
_INTEGER = re.compile(r"-?\d+")
OUR_TYPES = frozenset({"keyword", "long", "boolean", "binary", "object"})
"""Field types in our mappings."""

_OTHER_HOST = frozenset({502, 503, 504})


def meaning(error: OpenSearchException, asked: str, *, checking_setup: bool = False) -> PortError:
    """The port error for an error of the client library.

    `Permanent` only if the error follows from the values of the request: a caller may discard what was refused for good. While
    the set-up itself is checked (at start, by `doctor`), an error of the set-up keeps the meaning of its status.
    """
    if isinstance(error, VendorConnectionError):
        return Transient(f"OpenSearch did not respond ({asked}): {_cause(error)}")
    if not isinstance(error, TransportError):
        return Transient(f"OpenSearch returned an unreadable response ({asked}): {type(error).__name__}")
    status = error.status_code if isinstance(error.status_code, int) else 0
    cause = _root_cause(error.info)
    reason = str(cause.get("reason", ""))
    if error.error in _BLOCKED:
        kind: type[PortError] = Transient
    elif checking_setup:
        kind = _BY_STATUS.get(status, Transient)
    else:
        kind = _at_run_time(status, str(cause.get("type") or error.error), reason)
    return kind(f"OpenSearch answered {status} {error.error} ({asked}){': ' if reason else ''}{reason}")


def _at_run_time(status: int, kind: str, reason: str) -> type[PortError]:
    if status == 409:
        return Conflict
    if status == 413:
        return Permanent  # a smaller request may pass, and only its sender can make one
    about_setup = kind == "illegal_argument_exception" and any(word in reason for word in _OF_THE_SETUP)
    about_setup = about_setup or _mapped_otherwise(reason)
    return Permanent if status == 400 and kind in _OF_THE_REQUEST and not about_setup else Transient


def _mapped_otherwise(reason: str) -> bool:
    """Whether a field could not be parsed because the index has another type for it: we never write text where we map numbers."""
    found = _NOT_PARSED.search(reason)
    if found is None:
        return False
    kind, value = found[1], found[2]
    if kind == "boolean":
        return value is not None and value not in ("true", "false")
    return kind not in OUR_TYPES or (kind == "long" and value is not None and _INTEGER.fullmatch(value) is None)


def host_failed(error: OpenSearchException) -> bool:
    """Whether the problem may be limited to that host, so that others should be tried."""
    return isinstance(error, TransportError) and (
        isinstance(error, VendorConnectionError) or error.status_code in _OTHER_HOST
    )


def _cause(error: VendorConnectionError) -> str:
    info = error.info
    return f"{type(info).__name__}: {error.error}" if isinstance(info, Exception) else str(error.error)


def _root_cause(info: object) -> Mapping[str, Any]:
    error = info.get("error") if isinstance(info, dict) else None
    if not isinstance(error, dict):
        return {}
    causes = error.get("root_cause") or [error]
    return causes[0] if isinstance(causes[0], dict) else {}


class Rejected(NamedTuple):
    """The store will never accept this document: its shape is wrong, which is a bug."""

    detail: str


BulkResult = Written | Conflicted | Unknown | Rejected


def bulk_results(answer: Any, asked: Sequence[str], copies: int) -> Sequence[BulkResult]:
    """One result for each line of a bulk request, in its order.

    A line was written only if no copy failed to store it and the required number of copies have it. A response that
    does not match the request proves nothing about any of its lines.
    """
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != len(asked):
        return [Unknown("the bulk response does not match the request")] * len(asked)
    results: list[BulkResult] = []
    for result, verb in zip(items, asked, strict=True):
        try:
            line = result[verb]
            status = line["status"]
            if status == 200 or status == 201:
                shards = line["_shards"]
                if shards["failed"] or shards["successful"] < copies:
                    results.append(Unknown(f"only {shards['successful']} of {shards['total']} copies have it"))
                else:
                    results.append(Written(Version(line["_seq_no"], line["_primary_term"])))
                continue
        except (KeyError, TypeError):
            results.append(Unknown("a line of the bulk response is unreadable"))
            continue
        results.append(_refusal(status, line.get("error")))
    return results


def _refusal(status: int, error: object) -> BulkResult:
    kind, reason = "", ""
    if isinstance(error, dict):
        kind, reason = str(error.get("type", "")), str(error.get("reason", ""))
    detail = f"{status} {kind}: {reason}"
    if status == 409:
        return Conflicted(detail)
    if _at_run_time(status, kind, reason) is Permanent:
        return Rejected(detail)
    return Unknown(detail)
