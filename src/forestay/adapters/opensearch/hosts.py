"""The hosts of one OpenSearch cluster, and which of them gets a request.

The client library's own pool is not used: it repeats requests, and a repeated version-checked write conflicts with
itself. With its retries off it still selects a dead host again and again. Here every request goes to one host;
reads may continue with the next one, writes never do. A failed host rests, and comes back after a separate probe, so
that no call is lost on testing it.

Everything is sent by POST: the HTTP library silently repeats a PUT or a GET whose connection was closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
from opensearchpy import AIOHttpConnection
from opensearchpy.exceptions import ConnectionTimeout, OpenSearchException

from forestay.adapters.opensearch.answers import host_failed, meaning
from forestay.ports.errors import Permanent, Transient

_FIRST_REST = 0.5
_LONGEST_REST = 15.0
_PROBE_TIMEOUT = 2.0
_SETUP_TIMEOUT = 30.0
"""Seconds for requests of the set-up. A cluster creates indexes one after the other, and many servers may start at once."""
_CONNECTIONS = 64
_REPEATS_A_CALL = 0.1
"""The share of all calls that may be repeats: a store that refuses every second call must not get half as many again."""
_MOST_REPEATS = 20
"""The most repeats saved up, for a host that dies with calls in flight."""
_LINES = {"content-type": "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials for the cluster. Certificates and keys are paths."""

    user: str | None = None
    password: str | None = None
    ca_certs: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


class _Connection(AIOHttpConnection):
    """The library's connection without its logging: errors are logged once, by the caller, and without bodies."""

    def log_request_success(self, *_: Any, **__: Any) -> None:
        pass

    def log_request_fail(self, *_: Any, **__: Any) -> None:
        pass


class _ClusterHost:
    """A host of the cluster and the state of its health."""

    def __init__(self, connection: _Connection) -> None:
        self.connection = connection
        self.well = True
        self.rest = _FIRST_REST
        self.until = 0.0
        self.probe: asyncio.Task[None] | None = None

    def failed(self, now: float) -> None:
        if self.well:
            self.well = False
            self.rest = _FIRST_REST
            self.until = now + self.rest

    def still_failing(self, now: float) -> None:
        self.rest = min(2 * self.rest, _LONGEST_REST)
        self.until = now + self.rest


class Hosts:
    """Sends each request to one host, in turn among the healthy ones."""

    def __init__(self, urls: Sequence[str], *, timeout: float, access: Access | None = None) -> None:
        if not urls:
            raise Permanent("no OpenSearch host is configured")
        self.timeout = timeout
        self._hosts = [_ClusterHost(_connection(url, timeout, access or Access())) for url in urls]
        self._turn = 0
        self._repeats = float(_MOST_REPEATS)

    async def close(self) -> None:
        for host in self._hosts:
            if host.probe is not None:
                host.probe.cancel()
                await asyncio.gather(host.probe, return_exceptions=True)
                host.probe = None
            await host.connection.close()

    async def read(
        self,
        path: str,
        body: object = None,
        *,
        method: str = "POST",
        params: Mapping[str, str],
        checking_setup: bool = False,
    ) -> Any:
        """Send a read, and repeat it at another host if one does not answer. The request must be harmless to repeat."""
        data = None if body is None else orjson.dumps(body)
        seconds = max(self.timeout, _SETUP_TIMEOUT) if checking_setup else self.timeout
        tries = max(2, len(self._hosts))
        for left in reversed(range(tries)):
            host = self._choose()
            try:
                return await self._ask(host, method, path, data, params, None, seconds)
            except OpenSearchException as error:
                worth = host_failed(error) and left and not (isinstance(error, ConnectionTimeout) and self._alone)
                if not worth or not self._may_repeat():
                    raise meaning(error, path, checking_setup=checking_setup) from error
        raise Transient("no host was tried")  # pragma: no cover - the loop returns or raises

    async def write(self, path: str, lines: Any, params: Mapping[str, str]) -> Any:
        """Send the lines of a bulk request to one host, once."""
        try:
            return await self._ask(self._choose(), "POST", path, lines, params, _LINES, self.timeout)
        except OpenSearchException as error:
            raise meaning(error, path) from error

    def _may_repeat(self) -> bool:
        if self._repeats < 1:
            return False
        self._repeats -= 1
        return True

    @property
    def _alone(self) -> bool:
        return len(self._hosts) == 1

    def _choose(self) -> _ClusterHost:
        hosts = self._hosts
        if len(hosts) == 1:
            return hosts[0]
        now = asyncio.get_running_loop().time()
        for host in hosts:
            if not host.well and host.until <= now and host.probe is None:
                host.probe = asyncio.create_task(self._probe(host))
        for _ in hosts:
            self._turn = (self._turn + 1) % len(hosts)
            if hosts[self._turn].well:
                break
        else:
            # All of them failed: continue in turn, one may be back.
            self._turn = (self._turn + 1) % len(hosts)
        return hosts[self._turn]

    async def _ask(
        self,
        host: _ClusterHost,
        method: str,
        path: str,
        data: Any,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None,
        seconds: float,
    ) -> Any:
        self._repeats = min(_MOST_REPEATS, self._repeats + _REPEATS_A_CALL)
        try:
            _, _, text = await host.connection.perform_request(
                method, path, params, data, timeout=seconds, headers=headers
            )
        except OpenSearchException as error:
            if host_failed(error):
                host.failed(asyncio.get_running_loop().time())
            raise
        host.well = True
        try:
            return orjson.loads(text) if text else None
        except orjson.JSONDecodeError as error:
            raise Transient(f"OpenSearch returned an unreadable response ({path})") from error

    async def _probe(self, host: _ClusterHost) -> None:
        """Probe whether a resting host sees a cluster manager; an isolated one does not."""
        try:
            _, _, text = await host.connection.perform_request(
                "GET", "/_cluster/health", {"local": "true"}, timeout=_PROBE_TIMEOUT
            )
            host.well = bool(orjson.loads(text).get("discovered_cluster_manager"))
        except (OpenSearchException, orjson.JSONDecodeError):
            host.well = False
        finally:
            if not host.well:
                host.still_failing(asyncio.get_running_loop().time())
            host.probe = None


def _connection(url: str, timeout: float, access: Access) -> _Connection:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Permanent("an OpenSearch host must be http://name:port or https://name:port")
    user = access.user or (unquote(parts.username) if parts.username else None)
    password = access.password or (unquote(parts.password) if parts.password else None)
    return _Connection(
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 9200),
        url_prefix=parts.path,
        use_ssl=parts.scheme == "https",
        timeout=timeout,  # type: ignore[arg-type]  # the library means any number of seconds
        http_auth=(user, password or "") if user else None,
        maxsize=_CONNECTIONS,
        ca_certs=access.ca_certs,
        client_cert=access.client_cert,
        client_key=access.client_key,
    )
