"""Gathers what is known of a case, for those who want to keep or publish how a result came about."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from forestay.client.api.answers import IncidentJson
from forestay.client.api.forestay_client import ForestayClient
from forestay.formats.provenance.ro_crate import crate, flow_file

MOST = 50_000
"""Jobs of one crate: a document with more is read by nothing."""


class TooLarge(ValueError):
    """A case has more jobs than a crate can tell of."""


def ro_crate(
    client: ForestayClient, case: str, *, licence: str, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> dict[str, bytes]:
    """The files of a crate by their names."""
    whole = client.case(case)
    many = sum(client.count_jobs(filters={"case": case}).values())
    if many > MOST:
        raise TooLarge(f"the case has {many:,} jobs; a crate can describe {MOST:,} at most")
    jobs = list(client.all_jobs({"case": case}))
    again = [job["id"] for job in jobs if job["attempt"] > 1]
    stories: dict[str, Any] = {}
    for place, job in enumerate(again):
        stories[job] = client.story(job)["story"]
        progress(place + 1, len(again))
    flow = client.flow(whole["version"])
    made = client.now().strftime("%Y-%m-%dT%H:%M:%S+00:00")
    told = crate(
        whole, flow, jobs, stories, _incidents(client, case), version=version("forestay"), made=made, licence=licence
    )
    return {
        "ro-crate-metadata.json": json.dumps(told, indent=2, ensure_ascii=False).encode() + b"\n",
        flow_file(flow): str(flow.get("text") or "").encode(),
    }


def _incidents(client: ForestayClient, case: str) -> list[Any]:
    found: list[IncidentJson] = []
    cursor: str | None = None
    while True:
        page = client.find_incidents({"case": case}, limit=1000, cursor=cursor)
        found += page.incidents
        cursor = page.cursor
        if cursor is None:
            return [client.incident(one["id"]) for one in found]
