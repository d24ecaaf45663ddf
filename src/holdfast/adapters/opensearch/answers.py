"""What OpenSearch's answers mean: vendor errors as port errors, and the lines of a bulk answer as results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from opensearchpy.exceptions import ConnectionError as VendorConnectionError
from opensearchpy.exceptions import OpenSearchException, TransportError

from holdfast.ports.errors import Conflict, NotFound, Permanent, PortError, Transient
from holdfast.ports.job_store import Conflicted, Unknown, Version, Written

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
"""Everything else (timeouts, 408, 429, 5xx) may go through later."""

_BLOCKED = frozenset({"cluster_block_exception", "index_create_block_exception"})
"""Answered with 403 although it passes: a full disk, a cluster without a manager."""

_OTHER_HOST = frozenset({502, 503, 504})


def meaning(error: OpenSearchException, asked: str) -> PortError:
    """The port error for an error of the client library."""
    if isinstance(error, VendorConnectionError):
        return Transient(f"OpenSearch did not answer ({asked}): {_cause(error)}")
    if not isinstance(error, TransportError):
        return Transient(f"OpenSearch answered with something unreadable ({asked}): {type(error).__name__}")
    status = error.status_code if isinstance(error.status_code, int) else 0
    kind = Transient if error.error in _BLOCKED else _BY_STATUS.get(status, Transient)
    return kind(f"OpenSearch answered {status} {error.error} ({asked}){_reason(error.info)}")


def host_failed(error: OpenSearchException) -> bool:
    """Whether the trouble may be with that one host, so that others should be asked."""
    return isinstance(error, TransportError) and (
        isinstance(error, VendorConnectionError) or error.status_code in _OTHER_HOST
    )


def _cause(error: VendorConnectionError) -> str:
    info = error.info
    return f"{type(info).__name__}: {error.error}" if isinstance(info, Exception) else str(error.error)


def _reason(info: object) -> str:
    if isinstance(info, dict) and isinstance(info.get("error"), dict):
        cause = info["error"].get("root_cause") or [info["error"]]
        return f": {cause[0].get('reason', '')}"
    return ""


class Rejected(NamedTuple):
    """The store will never take this document: its shape is wrong, which is a mistake of ours."""

    detail: str


ItemResult = Written | Conflicted | Unknown | Rejected


def item_results(answer: Any, asked: Sequence[str], copies: int) -> Sequence[ItemResult]:
    """One result for each line of a bulk request, in its order.

    A line was written only if no copy failed to take it and as many copies as we wait for have it. An answer that
    does not fit the request says nothing about any of its lines.
    """
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != len(asked):
        return [Unknown("the bulk answer does not fit the request")] * len(asked)
    results: list[ItemResult] = []
    for item, verb in zip(items, asked, strict=True):
        try:
            line = item[verb]
            status = line["status"]
            if status == 200 or status == 201:
                shards = line["_shards"]
                if shards["failed"] or shards["successful"] < copies:
                    results.append(Unknown(f"only {shards['successful']} of {shards['total']} copies have it"))
                else:
                    results.append(Written(Version(line["_seq_no"], line["_primary_term"])))
                continue
        except (KeyError, TypeError):
            results.append(Unknown("a line of the bulk answer is not readable"))
            continue
        results.append(_refusal(status, line.get("error")))
    return results


def _refusal(status: int, error: object) -> ItemResult:
    kind, reason = "", ""
    if isinstance(error, dict):
        kind, reason = str(error.get("type", "")), str(error.get("reason", ""))
    detail = f"{status} {kind}: {reason}"
    if status == 409:
        return Conflicted(detail)
    if _BY_STATUS.get(status, Transient) is Permanent and kind not in _BLOCKED:
        return Rejected(detail)
    return Unknown(detail)
