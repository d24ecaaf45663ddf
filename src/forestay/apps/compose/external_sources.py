"""The external sources of values for rules, as configured."""

from __future__ import annotations

import os

import structlog

from forestay.adapters.httpx.external_source import WebSource
from forestay.adapters.system.external_source import CommandSource, FileSource
from forestay.apps.compose.secrets import secret_at
from forestay.apps.config.external_settings import ExternalSourceTable
from forestay.apps.config.settings import Settings
from forestay.domain.rules.context import FieldType
from forestay.ports.clock import Clock
from forestay.ports.exceptions.external_source import ExternalSource
from forestay.services.exceptions.detect.external_values import ExternalValues, RegisteredSource

log = structlog.get_logger()


def build_external_values(settings: Settings, clock: Clock) -> ExternalValues:
    sources = [
        RegisteredSource(
            table.name,
            _source(table),
            {name: FieldType(kind) for name, kind in table.fields.items()},
            table.fresh,
        )
        for table in settings.external_sources
    ]
    return ExternalValues(sources, clock, lambda text: log.warning("an external source is missing", detail=text))


def _source(table: ExternalSourceTable) -> ExternalSource:
    if table.url:
        return WebSource(table.url, secret_at(table.secret))
    if table.file is not None:
        return FileSource(table.file)
    return CommandSource(table.command, os.environ.get("PATH", os.defpath))
