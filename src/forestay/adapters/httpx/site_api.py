"""The server's interface for site agents over HTTP; implements `ports.sites.site_api.SiteApi`. The token's file is read for every call, so that it can be renewed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from forestay.adapters.httpx.guarded import certificates_with
from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount, size_and_owner, size_for
from forestay.domain.sites.launch import LaunchReport, LaunchState, end_to_plain
from forestay.ports.errors import Conflict, Permanent, Transient
from forestay.ports.sites.site_api import QueuedGroup, ReportResult, SeenLaunch, SiteDemand

SECONDS = 30.0
AT_ONCE = 1000
"""Launches in one request."""


class HttpxSiteApi:
    """The interface of one site at its servers: these are tried in turn, starting with the one that answered last."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        site: str,
        token_file: Path,
        ca_file: Path | None = None,
        certificate: Path | None = None,
    ) -> None:
        self._servers = [server.rstrip("/") for server in servers]
        self._site = quote(site, safe="")
        self._name = site
        self._token_file = token_file
        verify = certificates_with(ca_file, certificate)
        self._client = httpx.AsyncClient(timeout=SECONDS, trust_env=False, follow_redirects=False, verify=verify)

    async def close(self) -> None:
        await self._client.aclose()

    async def hello(self, report: Mapping[str, object]) -> None:
        await self._call("PUT", f"/v1/sites/{self._site}", dict(report))

    async def demand(self) -> SiteDemand:
        body = await self._call("GET", f"/v1/sites/{self._site}/demand")
        return SiteDemand(
            tuple(
                QueuedGroup(group["name"], group["tasks"], _resources(group["need"]), group.get("owner", ""))
                for group in body["groups"]
            ),
            {
                size: PilotCount(other_size["inactive"], other_size["idle"], other_size["busy"])
                for size, other_size in body["sizes"].items()
            },
            tuple(_seen(launch) for launch in body["launches"]),
        )

    async def ended(self) -> Sequence[SeenLaunch]:
        body = await self._call("GET", f"/v1/sites/{self._site}/launches?state=ended")
        return [_seen(launch) for launch in body["launches"]]

    async def plan(self, launches: Mapping[str, str]) -> None:
        body = [{"launch": launch} | _size(name) for launch, name in launches.items()]
        for start in range(0, len(body), AT_ONCE):
            await self._call("POST", f"/v1/sites/{self._site}/launches", {"launches": body[start : start + AT_ONCE]})

    async def report(self, reports: Sequence[LaunchReport]) -> Mapping[str, ReportResult]:
        results: dict[str, ReportResult] = {}
        for start in range(0, len(reports), AT_ONCE):
            some = [_report(report) for report in reports[start : start + AT_ONCE]]
            answer = await self._call("POST", f"/v1/sites/{self._site}/launches/reports", {"reports": some})
            results |= {
                result["launch"]: ReportResult(result["result"] == "noted", result["detail"], result["pilot"])
                for result in answer["results"]
            }
        return results

    async def enrol(self, launch: str, *, seconds: int, owner: str = "") -> str:
        body = {"site": self._name, "launch": launch, "seconds": seconds} | ({"owner": owner} if owner else {})
        return str((await self._call("POST", "/v1/enrolments", body))["secret"])

    async def _call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        content = None if body is None else orjson.dumps(body)
        trouble = "no server is configured"
        for server in list(self._servers):
            try:
                answer = await self._client.request(method, server + path, content=content, headers=headers)
            except (httpx.HTTPError, OSError) as error:
                trouble = f"{server} does not respond: {type(error).__name__} {error}".strip()
            else:
                if answer.status_code < 500 and answer.status_code != 429:
                    self._servers.remove(server)
                    self._servers.insert(0, server)
                    return _read(answer)
                trouble = f"{server} answered {answer.status_code}: {_detail(answer)}"
        raise Transient(trouble)

    def _token(self) -> str:
        try:
            return self._token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Permanent(f"the token file {self._token_file} cannot be read: {error.strerror}") from error


def _read(answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code == 409:
        raise Conflict(_detail(answer))
    if not answer.is_success:
        raise Permanent(f"the server answered {answer.status_code}: {_detail(answer)}")
    try:
        body = orjson.loads(answer.content)
    except ValueError as error:
        raise Transient("the response is not valid JSON; is this a Forestay server?") from error
    if not isinstance(body, dict):
        raise Transient("unexpected response; is this a Forestay server?")
    return body


def _detail(answer: httpx.Response) -> str:
    try:
        body = orjson.loads(answer.content)
    except ValueError:
        return answer.text[:200]
    if not isinstance(body, dict):
        return answer.text[:200]
    wrong = [f"{error.get('at')}: {error.get('detail')}" for error in body.get("errors", []) if isinstance(error, dict)]
    return "; ".join([str(body.get("detail", "")), *wrong[:5]])


def _seen(launch: Mapping[str, Any]) -> SeenLaunch:
    end = launch["end"]
    return SeenLaunch(
        id=launch["launch"],
        name=launch["name"],
        size=size_for(launch["size"], launch.get("owner", "")),
        state=LaunchState(launch["state"]),
        age=launch["age"],
        tried=launch["tried"],
        since=launch["since"],
        tries=launch["tries"],
        batch_job=launch["batch_job"],
        pilot=launch["pilot"],
        word="" if end is None else end["word"],
        cancel=bool(launch.get("cancel")),
    )


def _size(name: str) -> dict[str, str]:
    size, owner = size_and_owner(name)
    return {"size": size, "owner": owner} if owner else {"size": size}


def _report(report: LaunchReport) -> dict[str, object]:
    body: dict[str, object] = {"launch": report.launch, "state": report.state.value, "tries": report.tries}
    if report.batch_job:
        body["batch_job"] = report.batch_job
    if report.end is not None:
        body["end"] = end_to_plain(report.end)
    return body


def _resources(need: Mapping[str, Any]) -> Resources:
    return Resources(need["cpus"], need["memory"], need["disk"], need["gpus"], need.get("wall"), need.get("nodes", 1))
