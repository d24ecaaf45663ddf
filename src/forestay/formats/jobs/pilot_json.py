"""Pilots and heartbeat pages as JSON, for the stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.domain.pilots.pilot import Heartbeat, HeartbeatPage, Pilot, PilotState
from forestay.formats.jobs.job_json import Json, resources_from_json, resources_to_json


def pilot_to_json(pilot: Pilot) -> Json:
    return (
        dict(pilot.extra)
        | {
            "id": pilot.id,
            "tenant": pilot.tenant,
            "host": pilot.host,
            "site": pilot.site,
            "slots": pilot.slots,
            "resources": resources_to_json(pilot.resources),
            "lease": pilot.lease,
            "registered": pilot.registered,
            "state": pilot.state.value,
            "changed": pilot.changed,
            "batch_job": pilot.batch_job,
            "version": pilot.version,
            "note": pilot.note,
        }
        | {
            name: text
            for name, text in (
                ("launch", pilot.launch),
                ("owner", pilot.owner),
                ("drain", pilot.drain),
                ("revoked", pilot.revoked),
            )
            if text
        }
    )


_PILOT_KNOWN = frozenset(
    {
        "id", "tenant", "host", "site", "slots", "resources", "lease", "registered", "state", "changed", "batch_job",
        "version", "note", "launch", "owner", "drain", "revoked",
    }
)  # fmt: skip


def pilot_from_json(data: Mapping[str, Any]) -> Pilot:
    return Pilot(
        id=data["id"],
        tenant=data["tenant"],
        host=data["host"],
        site=data["site"],
        slots=data["slots"],
        resources=resources_from_json(data["resources"]),
        lease=data["lease"],
        registered=data["registered"],
        state=PilotState(data["state"]),
        changed=data["changed"],
        batch_job=data["batch_job"],
        version=data["version"],
        note=data["note"],
        launch=data.get("launch", ""),
        owner=data.get("owner", ""),
        drain=data.get("drain", ""),
        revoked=data.get("revoked", ""),
        extra={key: value for key, value in data.items() if key not in _PILOT_KNOWN},
    )


def heartbeat_page_to_json(heartbeat_page: HeartbeatPage) -> Json:
    return {
        "server": heartbeat_page.server,
        "bucket": heartbeat_page.bucket,
        "counter": heartbeat_page.counter,
        "url": heartbeat_page.url,
        "heartbeats": {
            pilot: [heartbeat.counter, heartbeat.session, heartbeat.lease, list(heartbeat.claims)]
            for pilot, heartbeat in heartbeat_page.heartbeats.items()
        },
    }


def heartbeat_page_from_json(data: Mapping[str, Any]) -> HeartbeatPage:
    return HeartbeatPage(
        server=data["server"],
        bucket=data["bucket"],
        counter=data["counter"],
        url=data["url"],
        heartbeats={
            pilot: Heartbeat(counter, session, lease, tuple(claims))
            for pilot, (counter, session, lease, claims) in data["heartbeats"].items()
        },
    )
