"""Routes for peers: the register of other domains, which administrators of the administrative tenant keep."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Path, Response
from pydantic import Field

from forestay.apps.server.http.answers import NothingOut, Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, TheDesk, Viewer, allow, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, Word
from forestay.domain.peers.peer import Link, Peer
from forestay.formats.ga4gh.peer_offer import offer_from_tags
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import PortError
from forestay.ports.operations.identity import Principal, Role
from forestay.ports.peers.peer import Caller

router = Router(prefix="/v1/peers", tags=["peers"])
PeerName = Annotated[
    str,
    Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$", description="The peer's name in this domain."),
]
Administrator = Annotated[Principal, Depends(allow(Role.ADMINISTRATOR))]
RESERVED = frozenset({"any", "here"})
"""Names with another meaning in flows."""


class PeerIn(Model):
    url: Annotated[str, Field(min_length=1, max_length=2000)]
    key: Annotated[str, Field(min_length=1, max_length=2000)]
    """Its public key, as its own `forestay peers key` prints it."""
    tenants: dict[Word, Word] = Field(default_factory=dict, max_length=1000)
    """Which of our tenants each of its tenants is; any other is refused."""
    sends: list[Word] = Field(default_factory=list, max_length=1000)
    """Our tenants whose sub-flows may run there."""
    lease: int = Field(default=120, ge=10, le=86_400)
    """Seconds for which work that one domain runs for the other continues without contact; the same on both sides."""
    cost: float = Field(default=1.0, ge=0, le=1e6)
    """The price of a core-hour there, where ours costs 1."""


class PeerOut(Out):
    peer: str
    url: str
    key: str
    tenants: dict[str, str]
    sends: list[str]
    lease: int
    cost: float
    asked: bool
    """Whether it is polled; a peer to which nobody sends is not."""
    connected: bool
    """Whether it answered lately."""
    heard: Time | None
    """When its newest stamp came."""
    slots: int
    """The slots that it reported then."""
    free: int
    queued: int
    turn: float
    """Seconds that a job there takes on average."""


class PeersOut(Out):
    key: str
    """This domain's own public key, for the administrators of its peers."""
    peers: list[PeerOut]


def _shown(peer: Peer, link: Link) -> dict[str, object]:
    offer = offer_from_tags(peer.name, link.offer)
    return {
        "peer": peer.name,
        "url": peer.url,
        "key": peer.key,
        "tenants": dict(peer.tenants),
        "sends": sorted(peer.sends),
        "lease": peer.lease,
        "cost": peer.cost,
        "asked": bool(peer.sends),
        "connected": link.connected,
        "heard": time_text(link.heard) if link.heard else None,
        "slots": offer.slots,
        "free": offer.free,
        "queued": offer.queued,
        "turn": offer.turn,
    }


def _of_the_default_policy(context: RequestContext, who: Principal) -> None:
    """Only administrators of the administrative tenant may change peers, which serve all tenants."""
    admin = context.services.components.settings.admin_tenant
    if who.tenant != admin:
        raise HttpProblem(403, f"only an administrator of tenant {admin} may register peers")


@router.get("", response_model=PeersOut, responses=errors())
async def list_peers(context: TheDesk, who: Viewer) -> Response:
    """This domain's public key, and the peers that its administrators registered; in any tenant but the default policy's, those that concern it."""
    keep = context.services.components.peers
    admin = context.services.components.settings.admin_tenant
    peers = [
        peer
        for peer in await keep.all()
        if who.tenant == admin or who.tenant in peer.sends or who.tenant in peer.tenants.values()
    ]
    links = await context.services.links.all({peer.name: peer for peer in peers})
    shown = [_shown(peer, links[peer.name]) for peer in peers]
    if who.tenant != admin:
        for peer in shown:
            peer |= {"tenants": {}, "sends": []}
    return json_answer({"key": keep.tokens.public, "peers": shown})


@router.put("/{peer}", response_model=PeerOut, responses=errors(409, body=True))
async def put_peer(context: TheDesk, who: Administrator, peer: PeerName, body: PeerIn) -> Response:
    """Register a peer, or change what is registered of it."""
    _of_the_default_policy(context, who)
    if peer in RESERVED:
        raise HttpProblem(422, f"{peer} is a reserved word in flows; choose another name")
    if why := context.services.components.peer_hosts.check(body.url):
        raise HttpProblem(422, f"url: {why}")
    known = Peer(peer, body.url.rstrip("/"), body.key, dict(body.tenants), frozenset(body.sends), body.lease, body.cost)
    await context.note(who, "peer.put", peer, url=known.url, tenants=dict(known.tenants), sends=sorted(known.sends))
    put = await context.services.components.peers.put(known)
    return json_answer(_shown(put, await context.services.links.get(peer)))


@router.delete("/{peer}", response_model=NothingOut, responses=errors(404, 409))
async def remove_peer(context: TheDesk, who: Administrator, peer: PeerName) -> Response:
    """Remove a peer: it is notified if it can be reached, its tokens are no longer valid, and nothing more is sent there."""
    _of_the_default_policy(context, who)
    await context.note(who, "peer.remove", peer)
    known = await context.services.components.peers.get(peer)
    if known is not None and known.sends:
        with suppress(PortError):  # without contact it stops what it runs for us when the lease ends
            await context.services.peer_calls.goodbye(known, Caller(min(known.sends), who.subject))
    await context.services.components.peers.remove(peer)
    await context.services.links.left(peer, f"removed by {who.subject}")
    return json_answer({})
