"""What people ask of a server, in few words."""

from __future__ import annotations

from typing import Any

import httpx

from forestay.apps.server.http.problems import GA4GH

TRUE = {"command": ["true"]}


async def submit(client: httpx.AsyncClient, *jobs: dict[str, Any], key: str | None = None, **spec: Any) -> list[str]:
    """Submit jobs of one specification; their ids in order."""
    headers = {"Idempotency-Key": key} if key else {}
    body = {"specification": TRUE | spec, "jobs": list(jobs) or [{}]}
    answer = await client.post("/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


async def submit_one(client: httpx.AsyncClient, job: dict[str, Any] | None = None, **spec: Any) -> str:
    (name,) = await submit(client, job or {}, **spec)
    return name


async def read(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/jobs/{job}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def status(client: httpx.AsyncClient, job: str) -> dict[str, Any]:
    """How a job stands, whatever the version: a write that only proves what was read changes nothing else."""
    return await read(client, job) | {"version": None}


async def story(client: httpx.AsyncClient, job: str) -> list[dict[str, Any]]:
    answer = await client.get(f"/v1/jobs/{job}/story")
    assert answer.status_code == 200, answer.text
    lines: list[dict[str, Any]] = answer.json()["story"]
    return lines


async def steer(client: httpx.AsyncClient, job: str, verb: str, **body: Any) -> httpx.Response:
    return await client.post(f"/v1/jobs/{job}/{verb}", json=body)


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem that an answer is; it must have the shape that every error has."""
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    if answer.request.url.path.startswith(GA4GH):
        assert answer.headers["content-type"] == "application/json"
        assert body.keys() == {"msg", "status_code"}
        assert body["status_code"] == status
        assert body["msg"]
        return body
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["status"] == status
    assert body["type"] == "about:blank"
    assert isinstance(body["title"], str)
    assert body["title"]
    assert isinstance(body["detail"], str)
    for error in body.get("errors", []):
        assert set(error) == {"at", "detail"}, error
    return body
