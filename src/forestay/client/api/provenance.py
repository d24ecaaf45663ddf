"""Collects what is known of a run, for storing or publishing how a result was produced."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from forestay.client.api.forestay_client import ForestayClient
from forestay.formats.provenance.ro_crate import crate, flow_file

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentJson

MOST = 50_000
"""Jobs of one crate: a document with more is read by nothing."""


class TooLarge(ValueError):
    """The run has more jobs than a crate can describe."""


def ro_crate(
    client: ForestayClient, run: str, *, licence: str, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> dict[str, bytes]:
    """The files of a crate by their names."""
    whole = client.run(run)
    many = sum(client.count_jobs(filters={"run": run}).values())
    if many > MOST:
        raise TooLarge(f"the run has {many:,} jobs; a crate can describe {MOST:,} at most")
    jobs = list(client.all_jobs({"run": run}))
    again = [job["id"] for job in jobs if job["attempt"] > 1]
    stories: dict[str, Any] = {}
    for place, job in enumerate(again):
        stories[job] = client.story(job)["story"]
        progress(place + 1, len(again))
    flow = client.flow(whole["version"])
    made = client.now().strftime("%Y-%m-%dT%H:%M:%S+00:00")
    returned_crate = crate(
        whole, flow, jobs, stories, _incidents(client, run), version=version("forestay"), made=made, licence=licence
    )
    return {
        "ro-crate-metadata.json": json.dumps(returned_crate, indent=2, ensure_ascii=False).encode() + b"\n",
        flow_file(flow): str(flow.get("text") or "").encode(),
    }


def _incidents(client: ForestayClient, run: str) -> list[Any]:
    incidents: list[IncidentJson] = []
    cursor: str | None = None
    while True:
        page = client.find_incidents({"run": run}, limit=1000, cursor=cursor)
        incidents += page.incidents
        cursor = page.cursor
        if cursor is None:
            return [client.incident(incident["id"]) for incident in incidents]
