"""A Temporal server proper, on databases in the PostgreSQL under test: what the site profile stands on."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import make_url
from tests import servers
from tests.system.chaos.processes import launch

LOW = range(20_000, 32_000)
SHARDS = 4
"""Of its history; a real site takes 512, and can never change it."""


def free_port() -> int:
    """Below 32,768: Temporal keeps the ports of its members in a column that takes no more."""
    for port in random.sample(LOW, 50):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def programs() -> Path:
    """Where `scripts/servers install temporal_server` puts them; FORESTAY_TEST_TEMPORAL_SERVER names another folder with `server` and `sql`."""
    if own := os.environ.get("FORESTAY_TEST_TEMPORAL_SERVER"):
        return Path(own)
    if folder := servers.installed(f"temporal-server-{servers.versions()['TEMPORAL_SERVER_VERSION']}", "server", "sql"):
        return folder
    pytest.fail(f"Temporal's server is not here: {servers.SCRIPT} install temporal_server", pytrace=False)


@contextmanager
def temporal_on_postgres(folder: Path) -> Iterator[str]:
    """Its address; the databases are removed at the end."""
    names = [f"temporal_{uuid4().hex[:8]}", f"visibility_{uuid4().hex[:8]}"]
    place, kinds = make_url(servers.postgres()), ("temporal", "visibility")
    tool = [str(programs() / "sql"), "--plugin", "postgres12", "--endpoint", str(place.host), "--port", str(place.port)]
    tool += ["--user", str(place.username)]
    try:
        for name, kind in zip(names, kinds, strict=True):
            for words in (
                ["create-database"],
                ["setup-schema", "--version", "0.0"],
                ["update-schema", "--schema-name", f"postgresql/v12/{kind}"],
            ):
                subprocess.run([*tool, "--database", name, *words], check=True, capture_output=True)
        port = free_port()
        settings = folder / "site.yaml"
        settings.write_text(json.dumps(_settings(f"{place.host}:{place.port}", str(place.username), names, port)))
        words = [
            str(programs() / "server"),
            "--root",
            str(folder),
            "--config",
            ".",
            "--env",
            "site",
            "--allow-no-auth",
            "start",
        ]
        process = launch(words, folder / "temporal.log")
        try:
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        for name in names:
            subprocess.run([*tool, "--database", name, "drop-database", "--force"], check=False, capture_output=True)


def _settings(database: str, user: str, names: list[str], port: int) -> dict[str, object]:
    """JSON is YAML."""

    def store(name: str) -> dict[str, object]:
        return {
            "sql": {
                "pluginName": "postgres12",
                "databaseName": name,
                "connectAddr": database,
                "connectProtocol": "tcp",
                "user": user,
                "password": "",
                "maxConns": 10,
                "maxIdleConns": 10,
                "maxConnLifetime": "1h",
            }
        }

    def service(at: int) -> dict[str, object]:
        return {"rpc": {"grpcPort": at, "membershipPort": free_port(), "bindOnIP": "127.0.0.1"}}

    home = f"127.0.0.1:{port}"
    return {
        "log": {"stdout": True, "level": "error"},
        "persistence": {
            "numHistoryShards": SHARDS,
            "defaultStore": "default",
            "visibilityStore": "visibility",
            "datastores": {"default": store(names[0]), "visibility": store(names[1])},
        },
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
        "services": {
            "frontend": service(port),
            "history": service(free_port()),
            "matching": service(free_port()),
            "worker": service(free_port()),
        },
        "clusterMetadata": {
            "enableGlobalNamespace": False,
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {
                "active": {"enabled": True, "initialFailoverVersion": 1, "rpcName": "frontend", "rpcAddress": home}
            },
        },
        "dcRedirectionPolicy": {"policy": "noop"},
        "publicClient": {"hostPort": home},
    }
