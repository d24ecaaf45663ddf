"""The services of `deploy/compose/compose.yaml`, as options of Podman: what an engine for compose files would make of each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
CLOSED = {"read_only": True, "tmpfs": ["/tmp"], "cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}  # noqa: S108
"""How `Podman.start` closes a container."""


def service(name: str) -> dict[str, Any]:
    known: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose/compose.yaml").read_text())["services"][name]
    return known


def options_of(name: str, secrets: Path, changed: Mapping[str, str]) -> list[str]:
    """Of a service on the host's network: its environment but for what is changed, its secrets from a folder, its volumes."""
    known = service(name)
    assert {key: known[key] for key in CLOSED} == CLOSED
    options: list[str] = []
    for key, value in (known["environment"] | dict(changed)).items():
        options += ["--env", f"{key}={value}"]
    for secret in known["secrets"]:
        options += ["--volume", f"{secrets / secret}:/run/secrets/{secret}:ro"]
    for volume in known["volumes"]:
        options += ["--volume", volume]
    return options
