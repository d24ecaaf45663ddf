"""The indexes: their searchable fields, and the settings on which durability depends.

Each index is accessed by an alias, and writes require one: a write can never create an index with guessed fields.

Fields that are not listed are stored in the document and cannot be searched (`dynamic: false`): a newer writer's
fields survive an older writer's rewriting, and the large parts (history, parameters, endings) cost no indexing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forestay.adapters.opensearch.hosts import Hosts
from forestay.ports.errors import Conflict, NotFound, Permanent
from forestay.ports.exceptions.incident_store import SORT_FIELDS as INCIDENT_NUMBERS
from forestay.ports.exceptions.incident_store import TEXT_FIELDS as INCIDENT_TEXTS
from forestay.ports.jobs.job_store import MAX_PAGE, NUMBER_FIELDS, TEXT_FIELDS

LABEL_FIELD = "label_pairs"
"""The labels as `key=value`, added to the stored document by this adapter and removed when it is read."""

_WORD = {"type": "keyword"}
_SHOWN = {"type": "keyword", "index": False}
"""For sorting only; the store finds ids by its own field."""
_NUMBER = {"type": "long"}
_BARE_NUMBER = {"type": "long", "index": False}

RANGES = frozenset({"created", "changed", "rank"})
"""Selective numbers that every job has. They have an index of their own; the others are
checked on the jobs that the rest of a query has found, which is cheaper for the hash slots of a window too.

The queue is not stored in the order of rank (`index.sort`): with a million jobs windows came somewhat sooner and merges
took 1.4 times as long; decision 11 has the measurements and their uncertainty.
"""

_INDEXED = RANGES | {"ended"}
"""Ended jobs of runs are searched by time again and again, among many more that have not ended."""

JOB_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(sorted(TEXT_FIELDS - {"id"}), _WORD),
    **{name: _NUMBER if name in _INDEXED else _BARE_NUMBER for name in sorted(NUMBER_FIELDS)},
    "id": _SHOWN,
    "tenant": _WORD,
    "state": _WORD,
    "held": {"type": "boolean"},
    LABEL_FIELD: {"type": "keyword", "doc_values": False},
}

FIELDS: Mapping[str, Mapping[str, Any]] = {
    "jobs": JOB_FIELDS,
    "specifications": {"id": _SHOWN, "tenant": _WORD, "used": _NUMBER},
    "records": {"id": _SHOWN, "tenant": _WORD, "kind": _WORD, "job": _WORD, "at": _NUMBER},
    "pilots": {"id": _SHOWN, "tenant": _WORD, "state": _WORD, "registered": _NUMBER},
    "heartbeats": {"heartbeat_page": _SHOWN, "server": _WORD},
    "documents": {"id": _SHOWN, "tenant": _WORD, "kind": _WORD},
    "incident_status": {
        "id": _SHOWN,
        **dict.fromkeys(sorted(INCIDENT_TEXTS), _WORD),
        **dict.fromkeys(sorted(INCIDENT_NUMBERS), _NUMBER),
        "second": {"type": "boolean"},
        "core_seconds": _BARE_NUMBER,
    },
    "papers": {"incident": _WORD, "kind": _WORD},
    "audit": {"tenant": _WORD, "number": _NUMBER, "last": _NUMBER},
}

SAFE_WITH_COPIES = (3, 7)
"""Older servers can acknowledge a write that no copy has when a copy fails at the wrong moment."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of copies and shards of the indexes; only the jobs are sharded, the rest is small."""

    prefix: str
    replicas: int
    shards: int

    def alias(self, kind: str) -> str:
        return f"{self.prefix}-{kind}"

    def index(self, kind: str) -> str:
        return f"{self.prefix}-{kind}-000001"

    def creation(self, kind: str) -> dict[str, Any]:
        return {
            "settings": {
                "index": {
                    "number_of_shards": self.shards if kind == "jobs" else 1,
                    "number_of_replicas": self.replicas,
                    # Set explicitly: by default an index that is not searched stops refreshing.
                    "refresh_interval": "1s",
                    # An acknowledged write is on disk.
                    "translog.durability": "request",
                    # One more than a page, to see whether there is another.
                    "max_result_window": MAX_PAGE + 1,
                }
            },
            "mappings": {"dynamic": False, "properties": dict(FIELDS[kind])},
            "aliases": {self.alias(kind): {"is_write_index": True}},
        }


async def make_indexes(hosts: Hosts, layout: Layout) -> None:
    """Create missing indexes, and refuse a cluster that could lose acknowledged writes."""
    await check_server(hosts, layout)
    await asyncio.gather(*(_make(hosts, layout, kind) for kind in FIELDS))


async def _make(hosts: Hosts, layout: Layout, kind: str) -> None:
    try:
        settings = await hosts.read(f"/{layout.alias(kind)}/_settings", method="GET", params={}, checking_setup=True)
    except NotFound:
        await _create(hosts, layout, kind)
        return
    for name, setting in settings.items():
        if setting["settings"]["index"].get("translog", {}).get("durability", "request") != "request":
            raise Permanent(f"index {name} must have translog.durability request: it may lose acknowledged writes")
    body = {"dynamic": False, "properties": dict(FIELDS[kind])}
    await hosts.read(f"/{layout.alias(kind)}/_mapping", body, method="PUT", params={}, checking_setup=True)


async def _create(hosts: Hosts, layout: Layout, kind: str) -> None:
    params = {"wait_for_active_shards": "1"}
    try:
        await hosts.read(
            f"/{layout.index(kind)}", layout.creation(kind), method="PUT", params=params, checking_setup=True
        )
    except (Permanent, Conflict) as error:
        # Another process was faster and created the same.
        if "resource_already_exists_exception" not in str(error):
            raise


async def check_server(hosts: Hosts, layout: Layout) -> None:
    version = (await hosts.read("/", method="GET", params={}, checking_setup=True)).get("version", {})
    number = str(version.get("number", "0.0"))
    if version.get("distribution") != "opensearch":
        raise Permanent(f"the store must be OpenSearch; the host reports {version.get('distribution')} {number}")
    if layout.replicas > 0 and tuple(int(part) for part in number.split(".")[:2]) < SAFE_WITH_COPIES:
        raise Permanent(
            f"OpenSearch {number} may acknowledge a write that no replica has; with replicas use "
            f"{'.'.join(map(str, SAFE_WITH_COPIES))} or newer, or run without replicas"
        )
