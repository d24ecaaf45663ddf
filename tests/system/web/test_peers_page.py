"""Peers in a real browser: another domain's capacity as its own service tells it, and its silence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import OKPKey
from playwright.async_api import expect
from tests.live.run_site import TENANT, RunSite
from tests.system.web.conftest import LogIn
from tests.system.web.test_overview_page import asked
from tests.unit.apps.server.running import Domain, RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot
from tests.unit.apps.server.store_room import store_room

from forestay.services.peers.peer_links import AWAY

pytestmark = pytest.mark.pages

DEFAULT_POLICY = "default"


@pytest.fixture
async def south(site: RunSite, tmp_path: Path) -> AsyncIterator[RunningServer]:
    """A domain that takes what the site sends, with a pilot of 8 slots."""
    settings = {key: site.domain.defaults[key] for key in ("temporal", "temporal_namespace")}
    async with (
        store_room("sqlite", tmp_path) as url,
        Domain(url, tmp_path, settings | {"peer_hosts": ("127.0.0.1",)}).server() as south,
    ):
        keys = [server.services.components.peers.tokens.public for server in (site.server, south)]
        known: dict[str, Any] = {"url": site.server.url, "key": keys[0], "tenants": {TENANT: "guests"}}
        answer = await south.person("administrator", tenant=DEFAULT_POLICY).put("/v1/peers/north", json=known)
        assert answer.status_code == 200, answer.text
        boss = site.server.person("administrator", tenant=DEFAULT_POLICY)
        known = {"url": south.url, "key": keys[1], "sends": [TENANT], "cost": 0.5}
        assert (await boss.put("/v1/peers/south", json=known)).status_code == 200
        quiet = {
            "url": "http://127.0.0.1:9",
            "key": json.dumps(OKPKey.generate_key("Ed25519").as_dict(private=False)),
            "tenants": {"physics": TENANT},
        }
        assert (await boss.put("/v1/peers/west", json=quiet)).status_code == 200
        await ScriptedPilot.register(south, "guests", slots=8)
        yield south


async def _look(site: RunSite) -> None:
    """A reconciler's look at the peers; the site has no loop that does."""
    assert site.reconciler is not None
    assert site.reconciler.follow is not None
    await site.reconciler.follow.look()
    await site.reconciler.follow.settled()


async def test_what_a_peer_has_is_seen_and_that_it_is_silent(
    log_in: LogIn, site: RunSite, south: RunningServer
) -> None:
    await _look(site)
    ann = await log_in("ann", "viewer")
    await ann.leave()
    await ann.open("/fleet?tab=peers")
    row = ann.page.get_by_role("row").filter(has_text=south.url)
    await expect(row.locator("[data-status]")).to_have_attribute("data-status", "answers")
    await expect(row.get_by_text("8 of 8 slots free")).to_be_visible()
    await expect(row.get_by_text("no queued jobs")).to_be_visible()
    other = ann.page.get_by_role("row").filter(has_text="west")
    await expect(other.get_by_text("not polled")).to_be_visible()
    await ann.check()
    await ann.picture("fleet-peers")
    # By our own server, never from here.
    assert "/v1/peers" in asked(ann)
    assert [request.url for request in ann.asked if not request.url.startswith(site.server.url)] == []

    await south.stop()
    for _ in range(AWAY):
        await _look(site)
    await expect(row.locator("[data-status]")).to_have_attribute("data-status", "away")
    await expect(row.get_by_text("as last reported: 8 of 8 slots free")).to_be_visible()
    await ann.check()
