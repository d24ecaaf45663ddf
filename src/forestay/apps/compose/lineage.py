"""Lineage, if configured."""

from __future__ import annotations

import secrets
from pathlib import Path

import structlog

from forestay.adapters.httpx.lineage import WebLineage
from forestay.adapters.system.lineage_file import LineageFile
from forestay.apps.compose.components import Components
from forestay.apps.compose.secrets import secret_at
from forestay.ports.operations.lineage import Lineage
from forestay.services.operations.lineage_reporter import LineageReporter

log = structlog.get_logger()


def build_lineage_reporter(components: Components) -> LineageReporter | None:
    """The reporter of lineage; None: not configured."""
    settings = components.settings
    if not settings.lineage:
        return None
    token = secret_at(settings.lineage_secret)
    lineage: Lineage = WebLineage(settings.lineage, token)
    if settings.lineage.startswith("file:"):
        lineage = LineageFile(Path(settings.lineage.removeprefix("file:")))
    return LineageReporter(
        components.store,
        components.documents,
        components.flows,
        components.engine,
        lineage,
        components.clock,
        settings.lineage_namespace,
        secrets.token_hex(8),
        troubled=lambda text: log.warning("lineage waits", detail=text),
    )
