"""Responses for monitoring a domain."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from forestay.apps.server.http.answers import Out, Time


class AlertOut(BaseModel):
    model_config = ConfigDict(extra="allow", defer_build=True)

    id: str
    at: Time
    job: str | None
    alert: str
    words: str


class AlertsOut(Out):
    alerts: list[AlertOut]


class ServerOut(Out):
    name: str
    url: str
    slots: int


class CallerOut(Out):
    subject: str
    tenant: str
    roles: list[str]


class StatusOut(Out):
    version: str
    you: CallerOut
    server: str
    servers: list[ServerOut]
    store: str
    lease: int
    slots_served: int
    requests_waiting: int
    channels: int
    jobs: dict[str, int]
