"""The identity provider, if one is configured."""

from __future__ import annotations

from urllib.parse import urlsplit

import structlog

from forestay.adapters.httpx.oidc_endpoints import HttpxOidcEndpoints
from forestay.adapters.system.secrets import ReferencedSecrets
from forestay.apps.compose.components import Components
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.services.operations.oidc_provider import OidcProvider

log = structlog.get_logger()


def build_oidc_provider(components: Components) -> OidcProvider | None:
    table = components.settings.oidc
    if table is None:
        return None
    from forestay.adapters.joserfc.signatures import JoseSignatures  # at the start, where a provider is set

    allowed = OutboundPolicy(
        (f"private:{urlsplit(table.issuer).hostname}", *table.hosts), setting="hosts of the identity provider"
    )
    endpoints = HttpxOidcEndpoints(ReferencedSecrets(), allowed, secret=table.client_secret or "", ca_file=table.ca)
    signatures = JoseSignatures(frozenset(table.algorithms))
    return OidcProvider(
        table.terms,
        endpoints,
        signatures,
        components.identity,
        components.clock,
        components.ids,
        troubled=lambda text: log.warning("the identity provider", detail=text),
    )
