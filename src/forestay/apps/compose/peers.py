"""The services that work with other domains."""

from __future__ import annotations

import ssl

import structlog

from forestay.adapters.httpx.guarded import certificates_with
from forestay.adapters.httpx.peer_calls import HttpxPeerCalls
from forestay.apps.compose.components import Components
from forestay.apps.config.settings import Settings
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.insertion.wes_runs import WesRuns
from forestay.services.peers.peer_capacity import PeerCapacity
from forestay.services.peers.peer_leases import PeerLeases
from forestay.services.peers.peer_links import PeerLinks
from forestay.services.peers.peer_poller import PeerPoller
from forestay.services.peers.run_placement import RunPlacement
from forestay.services.sites.site_registry import SiteRegistry

log = structlog.get_logger()


def peer_certificates(settings: Settings) -> ssl.SSLContext:
    """The certificates trusted for peers, and our own for a peer that requires one."""
    return certificates_with(settings.peer_ca, settings.peer_certificate)


def build_run_placement(components: Components, engine: FlowEngine) -> RunPlacement:
    """The service that chooses where sub-flows run."""
    offer = PeerCapacity(
        components.store, components.pilots, SiteRegistry(components.documents, components.clock), components.clock
    )
    links = PeerLinks(components.documents, components.store, components.clock)
    calls = HttpxPeerCalls(components.peers.tokens, components.peer_hosts, peer_certificates(components.settings))
    return RunPlacement(
        components.documents, components.flows, engine, components.peers, links, offer, calls, components.clock
    )


def build_peer_poller(components: Components, engine: FlowEngine) -> PeerPoller:
    """The service that polls peers for the runs that they execute for us."""
    places = build_run_placement(components, engine)
    return PeerPoller(
        components.peers,
        places.links,
        places,
        places.calls,
        engine,
        components.clock,
        troubled=lambda text: log.warning("a peer", detail=text),
    )


def build_peer_leases(components: Components, engine: FlowEngine, runs: WesRuns | None = None) -> PeerLeases:
    """The service that stops what we run for unreachable peers."""
    runs = runs or WesRuns(components.store, engine, components.flows, components.clock)
    return PeerLeases(
        components.documents,
        runs,
        engine,
        components.clock,
        troubled=lambda text: log.warning("leases of peers", detail=text),
    )
