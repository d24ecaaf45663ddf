"""Calls other domains by the Workflow Execution Service: only allowed hosts, every resolved address checked, no redirects, limits on time and size."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import orjson

from forestay.adapters.httpx.guarded import bounded, guarded_client
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.peers.peer import Peer
from forestay.formats.ga4gh.peer_offer import stamp_from_tags
from forestay.ports.errors import Conflict, NotFound, Permanent, Transient
from forestay.ports.peers.peer import Caller, PeerInfo, PeerRun, PeerTokens, Renewed

WES = "/ga4gh/wes/v1"
STAMP = "Forestay-Stamp"
SECONDS = 5.0
CONNECT_SECONDS = 2.0
WHOLE = 30.0
"""Seconds for a complete response, however slowly it arrives."""
MAX_ANSWER = 32 << 20
MAX_OUTPUTS = 65_536
"""The most bytes of a run's outputs: a run carries them."""
_LATER = frozenset({401, 403, 404, 408, 425, 429})
"""Refusals that the peer's administrator can fix, or that pass with time; also those of a server that is being set up."""


class HttpxPeerCalls:
    """Implements `ports.peers.peer.PeerCalls`."""

    def __init__(self, tokens: PeerTokens, allowed: OutboundPolicy, verify: ssl.SSLContext | None = None) -> None:
        """`verify`: the certificate authorities, and the client certificate for peers that ask for one; None: the system's, and none."""
        self._tokens = tokens
        self._allowed = allowed
        self._verify = verify

    async def hello(self, peer: Peer, who: Caller) -> PeerInfo:
        answer = await self._ask(peer, who, "GET", f"{WES}/service-info")
        tags = answer.get("tags")
        values = {str(name): str(value)[:10_000] for name, value in tags.items()} if isinstance(tags, dict) else {}
        stamp = stamp_from_tags(values)
        if not stamp:
            raise Permanent(f"{peer.name} returned no timestamps: it is not a Forestay server, or too old")
        return PeerInfo(stamp, values)

    async def send(
        self, peer: Peer, who: Caller, *, key: str, flow: str, params: Mapping[str, object], stamp: int
    ) -> str:
        form = {
            "workflow_type": "FORESTAY",
            "workflow_type_version": "1",
            "workflow_url": "flow.yaml",
            "workflow_params": orjson.dumps(dict(params)).decode(),
            "tags": orjson.dumps({"forestay.for": who.subject[:200]}).decode(),
        }
        headers = {"Idempotency-Key": key, STAMP: str(stamp)}
        files = [("workflow_attachment", ("flow.yaml", flow.encode()))]
        answer = await self._ask(peer, who, "POST", f"{WES}/runs", data=form, files=files, headers=headers)
        run = answer.get("run_id")
        if not isinstance(run, str) or not 0 < len(run) <= 200:
            raise Transient(f"{peer.name} accepted a run but returned no id")
        return run

    async def renew(self, peer: Peer, who: Caller, runs: Sequence[str], *, stamp: int) -> Renewed:
        body = {"stamp": stamp, "runs": list(runs)}
        answer = await self._ask(peer, who, "POST", "/v1/peering/renew", json=body)
        returned_runs = answer.get("runs")
        if not isinstance(returned_runs, dict) or not isinstance(answer.get("stamp"), int):
            raise Transient(f"{peer.name} returned an unexpected answer to a lease renewal")
        return Renewed(
            answer["stamp"],
            {str(run): _run(other_run) for run, other_run in returned_runs.items() if isinstance(other_run, dict)},
        )

    async def cancel(self, peer: Peer, who: Caller, run: str) -> None:
        await self._ask(peer, who, "POST", f"{WES}/runs/{quote(run, safe='')}/cancel", missing=True)

    async def goodbye(self, peer: Peer, who: Caller) -> None:
        await self._ask(peer, who, "POST", "/v1/peering/goodbye", json={})

    async def _ask(
        self, peer: Peer, who: Caller, method: str, path: str, *, missing: bool = False, **more: Any
    ) -> dict[str, Any]:
        if why := self._allowed.check(peer.url):
            raise Permanent(f"{peer.name}: {why}")
        parts = urlsplit(peer.url)
        host = parts.hostname or ""
        if parts.scheme != "https" and not self._allowed.may_be_private(host):
            raise Permanent(f"{peer.name}: tokens are sent over https only")
        headers = {"Authorization": f"Bearer {self._tokens.make(peer.key, who)}"}
        headers |= more.pop("headers", {})
        try:
            async with (
                asyncio.timeout(WHOLE),
                guarded_client(self._allowed, seconds=SECONDS, connect=CONNECT_SECONDS, verify=self._verify) as client,
                client.stream(method, peer.url + path, headers=headers, **more) as answer,
            ):
                content = await bounded(answer, MAX_ANSWER)
        except ValueError as error:
            raise Transient(f"{peer.name} answered with {error}") from error
        except (TimeoutError, httpx.HTTPError, OSError) as error:
            raise Transient(f"no response from {peer.name}: {type(error).__name__}") from error
        if missing and answer.status_code == httpx.codes.NOT_FOUND:
            raise NotFound(f"{peer.name} has no such run")
        if not answer.is_success:
            text = " ".join(content[:300].decode(errors="replace").split())
            words = f"{peer.name} answered {answer.status_code}: {text}"
            if answer.status_code == httpx.codes.CONFLICT:
                raise Conflict(words)
            unsure = answer.status_code in _LATER or answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR
            raise (Transient if unsure else Permanent)(words)
        try:
            read = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise Transient(f"{peer.name} returned invalid JSON") from error
        return read if isinstance(read, dict) else {}


def _run(fields: Mapping[str, Any]) -> PeerRun:
    outputs = fields.get("outputs")
    outputs = outputs if isinstance(outputs, dict) else {}
    state, reason = str(fields.get("state", "")), str(fields.get("reason", ""))[:1000]
    if len(orjson.dumps(outputs)) > MAX_OUTPUTS:
        return PeerRun("EXECUTOR_ERROR", {}, f"its outputs have more than {MAX_OUTPUTS} bytes")
    return PeerRun(state, outputs, reason, stopped=fields.get("stopped") is True)
