"""The provider of identities, if the settings name one."""

from __future__ import annotations

from urllib.parse import urlsplit

import structlog

from forestay.adapters.httpx.provider_door import HttpxProviderDoor
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.compose.parts import Parts
from forestay.domain.jobs.outbound import Outbound
from forestay.services.operations.ask_provider import AskProvider

log = structlog.get_logger()


def ask_provider(parts: Parts) -> AskProvider | None:
    table = parts.settings.oidc
    if table is None:
        return None
    from forestay.adapters.joserfc.signatures import JoseSignatures  # at the start, where a provider is set

    allowed = Outbound(
        (f"private:{urlsplit(table.issuer).hostname}", *table.hosts), setting="hosts of the provider of identities"
    )
    door = HttpxProviderDoor(ReferencedSecrets(), allowed, secret=table.client_secret or "", ca_file=table.ca)
    signatures = JoseSignatures(frozenset(table.algorithms))
    return AskProvider(
        table.terms,
        door,
        signatures,
        parts.identity,
        parts.clock,
        parts.ids,
        troubled=lambda text: log.warning("the provider of identities", detail=text),
    )
