"""A Forestay server for Airflow: its address, the requests to it, and when a retry can help. Independent of Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

TIMEOUT = 30.0
AGAIN = frozenset({408, 429, 502, 503, 504})
"""Status codes after which the same request may succeed."""
WELL = frozenset({"completed", "forced_complete"})
ENDED = frozenset({"completed", "forced_complete", "failed", "cancelled", "removed", "broken"})
MOST_IDS = 100
"""The most jobs in one request."""


class ForestayError(Exception):
    """The server refused; the text says why, and never contains the token."""


class Away(Exception):
    """The server did not answer, or is temporarily unavailable."""


@dataclass(frozen=True, slots=True)
class Place:
    """The server's address, and the token. A connection's other fields are not kept."""

    url: str
    token: str = field(repr=False)

    @classmethod
    def of(cls, connection: Any) -> Place:
        """Host (an address or a name), port and schema; the token is the password, or in the file that the extra `token_file` names."""
        host = (connection.host or "").rstrip("/")
        if "://" not in host:
            port = f":{connection.port}" if connection.port else ""
            host = f"{connection.schema or 'http'}://{host}{port}"
        token = connection.password or ""
        if not token and (named := connection.extra_dejson.get("token_file")):
            token = Path(named).read_text(encoding="utf-8").strip()
        if not token or not connection.host:
            raise ForestayError("the connection needs a host, and a token as its password or by the extra `token_file`")
        return cls(host, token)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


@dataclass(frozen=True, slots=True)
class Ask:
    """A request; with a key a repetition is harmless."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    query: tuple[tuple[str, str], ...] = ()
    key: str = ""

    @property
    def parts(self) -> dict[str, Any]:
        headers = {"Idempotency-Key": self.key} if self.key else {}
        return {"method": self.method, "url": self.path, "json": self.body, "params": self.query, "headers": headers}


def submit_job(job: Mapping[str, Any], key: str) -> Ask:
    return Ask("POST", "/v1/jobs", {"jobs": [job]}, key=key)


def store_flow(text: str) -> Ask:
    return Ask("POST", "/v1/flows", {"text": text})


def start_run(flow: str, params: Mapping[str, Any], key: str) -> Ask:
    return Ask("POST", "/v1/runs", {"flow": flow, "params": dict(params)}, key=key)


def read(kind: str, name: str) -> Ask:
    return Ask("GET", f"/v1/{kind}s/{name}")


def read_jobs(names: Iterable[str]) -> Ask:
    """Read many jobs in one request."""
    return Ask("GET", "/v1/jobs", query=(*(("id", name) for name in names), ("limit", "1000")))


def stop(kind: str, name: str, reason: str) -> Ask:
    if kind == "job":
        return Ask("POST", f"/v1/jobs/{name}/cancel", {"reason": reason})
    return Ask("POST", f"/v1/runs/{name}/verbs", {"verb": "remove", "id": f"airflow-{name}", "reason": reason})


def answered(answer: httpx.Response) -> Any:
    """The content of a response, or its error raised."""
    if answer.is_success:
        return answer.json()
    try:
        body = answer.json()
        words = str(body.get("detail") or body.get("title"))
        words += "".join(f"; {error.get('at')}: {error.get('detail')}" for error in body.get("errors", [])[:10])
    except ValueError:
        words = answer.reason_phrase
    if answer.status_code in AGAIN:
        raise Away(f"{answer.status_code}: {words}")
    raise ForestayError(f"{answer.status_code}: {words}")


@dataclass(frozen=True, slots=True)
class Server:
    """Sends requests to a server, and retries for a while if it is unreachable."""

    place: Place
    patience: float = 120.0
    pause: Callable[[float], None] = time.sleep

    def send(self, ask: Ask) -> Any:
        give_up = time.monotonic() + self.patience
        wait = 0.5
        while True:
            try:
                with httpx.Client(base_url=self.place.url, headers=self.place.headers, timeout=TIMEOUT) as client:
                    return answered(client.request(**ask.parts))
            except (httpx.HTTPError, Away) as error:
                if time.monotonic() + wait > give_up:
                    raise Away(f"{self.place.url} does not respond: {error}") from None
            self.pause(wait)
            wait = min(wait * 2, 10.0)


def ending_of(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """How a job or run ended, as a small record that may be stored; None while it is active."""
    if fields["state"] not in ENDED:
        return None
    last = fields.get("last") or {}
    known = {
        "id": fields["id"],
        "state": fields["state"],
        "well": fields["state"] in WELL,
        "attempts": fields.get("attempt"),
        "exit_code": last.get("exit_code"),
        "reason": last.get("reason") or fields.get("reason"),
        "outputs": fields.get("outputs"),
    }
    return {name: value for name, value in known.items() if value is not None}
