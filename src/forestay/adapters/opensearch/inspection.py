"""Inspects a cluster without changing it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from forestay.adapters.opensearch.cluster import Cluster
from forestay.adapters.opensearch.indexes import FIELDS, check_server
from forestay.ports.errors import NotFound, Permanent
from forestay.ports.inspections import StoreInspection

NEARLY_FULL = 0.10
"""The share of free disk that is reported; at 5 % OpenSearch accepts no more writes, by its own default."""


async def inspect_cluster(cluster: Cluster) -> StoreInspection:
    """Version, health, indexes, durability, disks and clocks."""
    ask = cluster.ask
    number = str((await ask("/")).get("version", {}).get("number", "?"))
    wrong: list[str] = []
    notes: list[str] = []
    try:
        await check_server(cluster.hosts, cluster.layout)
    except Permanent as error:
        wrong.append(str(error))
    lacking: list[str] = []
    for kind in FIELDS:
        alias = cluster.layout.alias(kind)
        try:
            index = await ask(f"/{alias}")
        except NotFound:
            lacking.append(alias)
            continue
        for name, other_index in index.items():
            wrong += _index(name, other_index, FIELDS[kind])
    health = await ask("/_cluster/health")
    if health["status"] == "red":
        wrong.append("the cluster is red: a part of an index has no readable copy")
    elif health["status"] == "yellow":
        notes.append("the cluster is yellow: some replicas are missing; with one node set replicas=0")
    stats = (await ask("/_nodes/stats/fs"))["nodes"]
    before = time.time()
    for node in stats.values():
        disk = node.get("fs", {}).get("total", {})
        if disk.get("total_in_bytes") and disk["available_in_bytes"] / disk["total_in_bytes"] < NEARLY_FULL:
            notes.append(f"node {node['name']} has {disk['available_in_bytes'] >> 20:,} MiB left on its disk")
    aheads = [node["timestamp"] / 1000 - before for node in stats.values() if "timestamp" in node]
    ahead = max(aheads, key=abs) if aheads else None
    return StoreInspection(f"OpenSearch {number}", tuple(lacking), tuple(wrong), tuple(notes), ahead)


def _index(name: str, index: Mapping[str, Any], fields: Mapping[str, Any]) -> list[str]:
    wrong = []
    settings = index["settings"]["index"]
    if settings.get("translog", {}).get("durability", "request") != "request":
        wrong.append(
            f"index {name} has translog.durability {settings['translog']['durability']}: acknowledged writes may be lost"
        )
    if settings.get("verified_before_close") == "true":
        wrong.append(f"index {name} is closed")
    blocks = settings.get("blocks", {})
    if blocks.get("read_only_allow_delete") == "true":
        wrong.append(f"index {name} is read-only: its disk is or was full")
    elif "true" in (blocks.get("read_only"), blocks.get("write")):
        wrong.append(f"index {name} is read-only by a setting")
    known = index["mappings"].get("properties", {})
    differing = sorted(field for field, kind in fields.items() if known.get(field, kind).get("type") != kind["type"])
    if differing:
        wrong.append(f"index {name} has {', '.join(differing)} mapped with another type: another program created it")
    return wrong
