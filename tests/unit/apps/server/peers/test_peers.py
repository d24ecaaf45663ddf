"""Peers: registered by administrators of the administrative tenant, known by their keys, with tokens for one domain and a minute."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from joserfc.jwk import OKPKey
from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import Domain, RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.adapters.joserfc.peer_tokens import Ed25519Tokens
from forestay.adapters.system.clock import SystemClock
from forestay.domain.peers.routing import Offer
from forestay.formats.ga4gh.peer_offer import offer_from_tags, offer_tags, stamp_from_tags
from forestay.ports.errors import Permanent
from forestay.ports.peers.peer import Caller

HOSTS = ("127.0.0.1",)
ADA = Caller("physics", "ada")


@dataclass
class Two:
    """Two domains, each with a server; south takes what north's tenant `physics` sends."""

    north: RunningServer
    south: RunningServer

    @property
    def tokens(self) -> Ed25519Tokens:
        """North's."""
        tokens = self.north.services.components.peers.tokens
        assert isinstance(tokens, Ed25519Tokens)
        return tokens

    @property
    def souths_key(self) -> str:
        return self.south.services.components.peers.tokens.public

    async def ask(self, token: str, path: str = "/ga4gh/wes/v1/runs") -> int:
        return (await self.south.client(token).get(path)).status_code


@pytest.fixture(scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Two]:
    here, there = tmp_path_factory.mktemp("north"), tmp_path_factory.mktemp("south")
    async with (
        store_room("sqlite", here) as store,
        store_room("sqlite", there) as other,
        Domain(store, here, {"peer_hosts": HOSTS}).server() as north,
        Domain(other, there, {"peer_hosts": HOSTS}).server() as south,
    ):
        both = Two(north, south)
        known = {"url": north.url, "key": both.tokens.public, "tenants": {"physics": "guests"}}
        answer = await south.person("administrator", tenant="default").put("/v1/peers/north", json=known)
        assert answer.status_code == 200, answer.text
        yield both


async def test_administrators_of_the_administrative_tenant_keep_the_register(two: Two) -> None:
    boss = two.north.person("administrator", tenant="default")
    known = {"url": two.south.url, "key": two.souths_key, "sends": ["physics"], "lease": 30, "cost": 2.0}
    made = await boss.put("/v1/peers/south", json=known)
    assert made.status_code == 200, made.text
    (shown,) = (await boss.get("/v1/peers")).json()["peers"]
    live = {"asked": True, "connected": False, "heard": None, "slots": 0, "free": 0, "queued": 0, "turn": 60.0}
    assert shown == {"peer": "south", "tenants": {}, **known, **live}
    problem(await two.north.person("operator", tenant="default").put("/v1/peers/south", json=known), 403)
    problem(await two.north.person("administrator", tenant="physics").put("/v1/peers/south", json=known), 403)
    problem(await two.north.person("administrator", tenant="physics").delete("/v1/peers/south"), 403)
    seen = (await two.north.person("viewer", tenant="physics").get("/v1/peers")).json()
    assert [peer["peer"] for peer in seen["peers"]] == ["south"]
    assert seen["peers"][0]["sends"] == [], "who else sends is not theirs to know"
    assert (await two.north.person("viewer", tenant="strangers").get("/v1/peers")).json()["peers"] == []
    problem(await boss.put("/v1/peers/any", json=known), 422)
    problem(await boss.put("/v1/peers/evil", json=known | {"url": "http://192.0.2.1/"}), 422)
    problem(await boss.put("/v1/peers/other", json=known), 409)
    problem(await boss.put("/v1/peers/self", json=known | {"key": two.tokens.public}), 409)
    assert (await boss.put("/v1/peers/bad", json=known | {"key": "{}"})).status_code in (400, 422)
    assert (await boss.delete("/v1/peers/south")).status_code == 200
    assert (await boss.get("/v1/peers")).json()["peers"] == []
    problem(await boss.delete("/v1/peers/south"), 404)
    audit = (await boss.get("/v1/audit")).json()
    assert {"peer.put", "peer.remove"} <= {entry["what"] for entry in audit["entries"]}


async def test_a_token_is_good_at_one_domain_for_one_tenant_and_one_interface(two: Two) -> None:
    good = two.tokens.make(two.souths_key, ADA)
    # Without an engine there are no runs; but who asks is known by then.
    assert await two.ask(good) == 501
    assert await two.ask(good, "/v1/jobs") == 403
    assert await two.ask(good, "/v1/peers") == 403
    assert await two.ask(two.tokens.make(two.souths_key, Caller("chemistry", "ada"))) == 401
    assert await two.ask(two.tokens.make(two.tokens.public, ADA)) == 401, "for another domain"
    head, claims, _ = good.split(".")
    assert await two.ask(f"{head}.{claims}.{'A' * 86}") == 401
    principal = two.south.services.components.peers.caller(good)
    assert principal is not None
    assert (principal.subject, principal.tenant) == ("peer:north", "guests")


async def test_a_stranger_and_a_peer_that_was_taken_away_are_nobody(two: Two, tmp_path: Path) -> None:
    stranger = Ed25519Tokens(tmp_path / "key", SystemClock())
    assert await two.ask(stranger.make(two.souths_key, ADA)) == 401
    boss = two.south.person("administrator", tenant="default")
    known = {"url": two.north.url, "key": stranger.public, "tenants": {"physics": "guests"}}
    assert (await boss.put("/v1/peers/stranger", json=known)).status_code == 200
    assert await two.ask(stranger.make(two.souths_key, ADA)) == 501
    async with two.south.domain.server() as other:

        async def known_there() -> bool:
            asked = other.client(stranger.make(two.souths_key, ADA))
            return (await asked.get("/ga4gh/wes/v1/runs")).status_code == 501

        await until(known_there, "the other server to know the peer")
    assert (await boss.delete("/v1/peers/stranger")).status_code == 200
    assert await two.ask(stranger.make(two.souths_key, ADA)) == 401


async def test_tokens_end_after_a_minute(two: Two, tmp_path: Path) -> None:
    clock = LaterClock()
    north = Ed25519Tokens(tmp_path / "north", clock)
    south = Ed25519Tokens(tmp_path / "south", clock)
    token = north.make(south.public, ADA)
    assert south.verify(token, north.public) == ADA
    clock.ahead = 61_000
    with pytest.raises(Exception, match="expired"):
        south.verify(token, north.public)
    clock.ahead = -120_000
    with pytest.raises(Exception, match="clocks"):
        south.verify(token, north.public)


def test_the_key_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "state" / "key"
    first = Ed25519Tokens(file, SystemClock()).public
    assert file.stat().st_mode & 0o777 == 0o600
    assert Ed25519Tokens(file, SystemClock()).public == first
    assert "d" not in json.loads(first), "the private part stays here"
    file.chmod(0o640)
    with pytest.raises(Permanent, match="chmod 600"):
        _ = Ed25519Tokens(file, SystemClock()).public


def test_a_private_key_that_was_sent_by_mistake_is_not_one_of_a_peer_with_secrets(tmp_path: Path) -> None:
    tokens = Ed25519Tokens(tmp_path / "key", SystemClock())
    private = OKPKey.generate_key("Ed25519")
    public = json.dumps(private.as_dict(private=False))
    assert tokens.name(json.dumps(private.as_dict(private=True))) == tokens.name(public)


@pytest.mark.ledger("P0-27")
async def test_the_offer_counts_slots_and_what_waits(two: Two, tenant: str) -> None:
    before = await two.south.services.offer.offer(tenant)
    assert (before.slots, before.free, before.queued) == (0, 0, 0)
    pilot = await ScriptedPilot.register(two.south, tenant, slots=3)
    await submit(two.south.person("submitter", tenant=tenant), *({} for _ in range(5)), command=["true"])
    await pilot.claim(most=2)

    async def told() -> bool:
        offer = await two.south.services.offer.offer(tenant)
        return (offer.slots, offer.free, offer.queued) == (3, 1, 3)

    await until(told, "the offer")


def test_an_offer_goes_by_tags_of_texts() -> None:
    offer = Offer("x", 8, 1 << 30, 2, slots=10, free=3, queued=7, turn=1.5, labels=frozenset({"a", "b"}), cost=2.0)
    tags = offer_tags(offer, 12345)
    assert all(isinstance(tag, str) for tag in tags.values())
    assert offer_from_tags("x", tags, cost=2.0) == offer
    assert stamp_from_tags(tags) == 12345
    odd = offer_from_tags("x", {"forestay.slots": "-1", "forestay.free": "9" * 400, "forestay.turn": "x"})
    assert (odd.slots, odd.free, odd.turn) == (0, 0, 60.0)
