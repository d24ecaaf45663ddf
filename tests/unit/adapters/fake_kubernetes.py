"""A fake API server: objects in memory, with the answers of a real one to what the adapter asks. `just kubernetes` holds the adapter against a real one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx

Fields = dict[str, Any]
DATE = "Wed, 18 Nov 2026 09:07:00 GMT"
PATH = re.compile(r"^/(?:api/v1|apis/batch/v1)/namespaces/([^/]+)/([a-z]+)(?:/(.+))?$")


@dataclass
class FakeApiServer:
    """Answers the adapter's requests. `faults` are answered first, each once; an exception among them is raised."""

    token: str = "first"
    faults: list[httpx.Response | Exception] = field(default_factory=list)
    refused: dict[tuple[str, str], httpx.Response] = field(default_factory=dict)
    """The answer to all requests of a method and a kind."""
    objects: dict[str, dict[str, Fields]] = field(default_factory=dict)
    """By kind and name."""
    requests: list[httpx.Request] = field(default_factory=list)
    page: int = 500

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    def kind(self, name: str) -> dict[str, Fields]:
        return self.objects.setdefault(name, {})

    @property
    def calls(self) -> list[str]:
        return [f"{request.method} {request.url.path.rsplit('/v1/namespaces/here/')[-1]}" for request in self.requests]

    async def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.faults:
            fault = self.faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        if request.headers["Authorization"] != f"Bearer {self.token}":
            return status(401, "Unauthorized")
        match = PATH.match(request.url.path)
        assert match is not None, request.url
        kind, name = match[2], match[3] or ""
        if (request.method, kind) in self.refused:
            return self.refused[request.method, kind]
        body = json.loads(request.content) if request.content else {}
        return getattr(self, f"_{request.method.lower()}")(kind, name, body, request.url.params)  # type: ignore[no-any-return]

    def _post(self, kind: str, _name: str, body: Fields, query: httpx.QueryParams) -> httpx.Response:
        name = body["metadata"]["name"]
        if name in self.kind(kind):
            return status(409, f'{kind} "{name}" already exists')
        made = {**body, "metadata": {**body["metadata"], "uid": uuid4().hex}}
        if "dryRun" not in query:
            self.kind(kind)[name] = made
        return reply(201, made)

    def _put(self, kind: str, name: str, body: Fields, _query: httpx.QueryParams) -> httpx.Response:
        self.kind(kind)[name] = body
        return reply(200, body)

    def _get(self, kind: str, name: str, _body: Fields, query: httpx.QueryParams) -> httpx.Response:
        if name:
            return reply(200, self.kind(kind)[name]) if name in self.kind(kind) else status(404, "not found")
        found = [resource for resource in self.kind(kind).values() if selected(resource, query)]
        start = int(query.get("continue", "0"))
        following = str(start + self.page) if start + self.page < len(found) else ""
        return reply(200, {"metadata": {"continue": following}, "items": found[start : start + self.page]})

    def _patch(self, kind: str, name: str, body: Fields, _query: httpx.QueryParams) -> httpx.Response:
        stored = self.kind(kind).get(name)
        if stored is None:
            return status(404, "not found")
        if body["metadata"].get("uid", stored["metadata"]["uid"]) != stored["metadata"]["uid"]:
            return status(409, "Precondition failed: UID in precondition")
        merge(stored, body)
        return reply(200, stored)

    def _delete(self, kind: str, name: str, body: Fields, _query: httpx.QueryParams) -> httpx.Response:
        stored = self.kind(kind).get(name)
        if stored is None:
            return status(404, "not found")
        wanted = (body.get("preconditions") or {}).get("uid")
        if wanted and wanted != stored["metadata"]["uid"]:
            return status(409, "Precondition failed: UID in precondition")
        del self.kind(kind)[name]
        for kept in self.objects.values():  # the garbage collector, at once
            for other in [key for key, resource in kept.items() if owned_by(resource, stored["metadata"]["uid"])]:
                del kept[other]
        return reply(200, {})


def selected(resource: Fields, query: httpx.QueryParams) -> bool:
    """Whether an object matches the selectors that the adapter uses."""
    labels = resource["metadata"].get("labels", {})
    for key, several, single in re.findall(
        r"([^,\s]+?)(?: in \(([^)]*)\)|=([^,]*))(?:,|$)", query.get("labelSelector", "")
    ):
        if labels.get(key) not in (several.split(",") if several else [single]):
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = part.partition("=")
        where: Any = resource
        for step in key.split("."):
            where = where.get(step, {})
        if where != value:
            return False
    return True


def owned_by(resource: Fields, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in resource["metadata"].get("ownerReferences", ()))


def merge(stored: Fields, patch: Fields) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            merge(stored.setdefault(name, {}), value)
        else:
            stored[name] = value


def reply(code: int, body: Fields, **headers: str) -> httpx.Response:
    return httpx.Response(code, json=body, headers={"Date": DATE, **headers})


def status(code: int, message: str, **headers: str) -> httpx.Response:
    return reply(code, {"kind": "Status", "message": message}, **headers)
