"""Builds what removes everything that is past its retention."""

from __future__ import annotations

import structlog

from forestay.apps.compose.components import Components
from forestay.apps.config.settings import Settings
from forestay.services.operations.audit_pruner import AuditPruner
from forestay.services.operations.incident_pruner import IncidentPruner
from forestay.services.operations.job_pruner import JobPruner
from forestay.services.operations.record_pruner import RecordPruner
from forestay.services.operations.retention import Retention
from forestay.services.operations.specification_pruner import SpecificationPruner
from forestay.services.operations.store_pruner import StorePruner

log = structlog.get_logger()


def build_store_pruner(settings: Settings, components: Components, jobs: JobPruner) -> StorePruner:
    store, documents, clock = components.store, components.documents, components.clock

    def troubled(text: str) -> None:
        log.warning("old documents cannot be removed yet", detail=text)

    retention = Retention(
        settings.keep_days, settings.keep_incidents_days, settings.keep_keys_days, settings.keep_audit_days
    )
    return StorePruner(
        retention,
        jobs,
        RecordPruner(
            store, documents, components.incidents, components.pilots, clock, components.engine, troubled=troubled
        ),
        IncidentPruner(components.incidents, store, documents, clock, components.engine, troubled=troubled),
        SpecificationPruner(store, clock),
        AuditPruner(components.audit.store, components.audit),
        clock,
        troubled=troubled,
    )
