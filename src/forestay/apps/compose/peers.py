"""The services that work with other domains."""

from __future__ import annotations

import ssl

import structlog

from forestay.adapters.httpx.guarded import certificates_with
from forestay.adapters.httpx.peer_calls import HttpxPeerCalls
from forestay.apps.compose.parts import Parts
from forestay.apps.config.settings import Settings
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.insertion.read_runs import ReadRuns
from forestay.services.peers.follow_peers import FollowPeers
from forestay.services.peers.hold_leases import HoldLeases
from forestay.services.peers.keep_links import KeepLinks
from forestay.services.peers.measure_offer import MeasureOffer
from forestay.services.peers.place_cases import PlaceCases
from forestay.services.sites.keep_sites import KeepSites

log = structlog.get_logger()


def peer_certificates(settings: Settings) -> ssl.SSLContext:
    """Whom we believe to be a peer, and what we show to one that asks for a certificate."""
    return certificates_with(settings.peer_ca, settings.peer_certificate)


def place_cases(parts: Parts, engine: FlowEngine) -> PlaceCases:
    """Who chooses where sub-flows go."""
    offer = MeasureOffer(parts.store, parts.pilots, KeepSites(parts.slips, parts.clock), parts.clock)
    links = KeepLinks(parts.slips, parts.store, parts.clock)
    calls = HttpxPeerCalls(parts.peers.tokens, parts.peer_hosts, peer_certificates(parts.settings))
    return PlaceCases(parts.slips, parts.flows, engine, parts.peers, links, offer, calls, parts.clock)


def follow_peers(parts: Parts, engine: FlowEngine) -> FollowPeers:
    """Who asks the peers after what they run for us."""
    places = place_cases(parts, engine)
    return FollowPeers(
        parts.peers,
        places.links,
        places,
        places.calls,
        engine,
        parts.clock,
        troubled=lambda text: log.warning("a peer", detail=text),
    )


def hold_leases(parts: Parts, engine: FlowEngine, runs: ReadRuns | None = None) -> HoldLeases:
    """Who stops what we run for peers that are away."""
    runs = runs or ReadRuns(parts.store, engine, parts.flows, parts.clock)
    return HoldLeases(
        parts.slips, runs, engine, parts.clock, troubled=lambda text: log.warning("leases of peers", detail=text)
    )
