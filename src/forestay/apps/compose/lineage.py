"""Lineage, where an operator wants it."""

from __future__ import annotations

import secrets
from pathlib import Path

import structlog

from forestay.adapters.httpx.lineage import WebLineage
from forestay.adapters.system.lineage_file import LineageFile
from forestay.apps.compose.parts import Parts
from forestay.apps.compose.secrets import secret_at
from forestay.ports.operations.lineage import Lineage
from forestay.services.operations.tell_lineage import TellLineage

log = structlog.get_logger()


def tell_lineage(parts: Parts) -> TellLineage | None:
    """None: nobody wants it."""
    settings = parts.settings
    if not settings.lineage:
        return None
    token = secret_at(settings.lineage_secret)
    lineage: Lineage = WebLineage(settings.lineage, token)
    if settings.lineage.startswith("file:"):
        lineage = LineageFile(Path(settings.lineage.removeprefix("file:")))
    return TellLineage(
        parts.store,
        parts.slips,
        parts.flows,
        parts.engine,
        lineage,
        parts.clock,
        settings.lineage_namespace,
        secrets.token_hex(8),
        troubled=lambda text: log.warning("lineage waits", detail=text),
    )
