"""An agent whose jobs run as their submitters, against a real server: pilots for each owner with demand, and secrets that are theirs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.sites.test_site_agent import POLICY, Site
from tests.unit.apps.server.sites.test_site_agent import site as site

from forestay.domain.sites.batch import PilotJob
from forestay.domain.sites.fleet import Thresholds, size_and_owner
from forestay.domain.sites.launch import Launch, launch_from_plain, launch_to_plain
from forestay.services.sites.site_policy import OwnUsers, SitePolicy

USERS = OwnUsers({"ann": "ann", "bob": "u4711"})


async def test_there_are_pilots_for_each_owner_and_their_secrets_are_good_for_no_other(site: Site) -> None:
    operator = site.server.person("operator", tenant=site.tenant)
    for owner in ("ann", "ann", "bob", "cleo"):
        await submit(operator, {"owner": owner}, resources={"cpus": 1})
    site.policy = SitePolicy(Thresholds(max_pilots=9), POLICY.sizes, settle=0.2, own_users=USERS)
    secrets: dict[str, str] = {}
    sent: list[tuple[str, str]] = []

    def job_of(launch: str, size: str, secret: str) -> PilotJob:
        name, owner = size_and_owner(size)
        secrets[launch] = Path(secret).read_text()
        sent.append((name, owner))
        return PilotJob(f"forestay-{launch}", (), "/", user=USERS.of(owner), size=name)

    async with site.agent() as agent:
        agent.pilot_job = job_of
        await agent.look()
        await agent.look()
    assert Counter(sent) == {("small", "ann"): 2, ("small", "bob"): 1}
    viewer = site.server.person("viewer", tenant=site.tenant)
    shown = (await viewer.get("/v1/sites/hall")).json()
    assert (shown["said"]["run_as"], shown["said"]["unmapped"]) == ("submitter", ["cleo"])
    groups = {group["owner"]: group["tasks"] for group in shown["demand"]["groups"]}
    assert groups == {"ann": 2, "bob": 1, "cleo": 1}
    assert set(shown["demand"]["sizes"]) == {"small/ann", "small/bob"}
    for launch in shown["demand"]["launches"]:
        body = {"host": "n1", "site": "hall", "launch": launch["launch"], "nonce": "n" * 32, "slots": 4}
        answer = await site.server.client(secrets[launch["launch"]]).post("/v1/pilots", json=body)
        assert answer.status_code == 201, answer.text
    await site.server.refresh()
    pilots = (await viewer.get("/v1/pilots")).json()["pilots"]
    assert {pilot["launch"]: pilot["owner"] for pilot in pilots} == {
        launch["launch"]: launch["owner"] for launch in shown["demand"]["launches"]
    }


async def test_an_agent_of_one_user_says_nothing_new_and_its_pilots_are_for_all(site: Site) -> None:
    await submit(site.server.person("operator", tenant=site.tenant), {"owner": "ann"}, resources={"cpus": 1})
    async with site.agent() as agent:
        await agent.look()
        assert not {"run_as", "unmapped"} & agent._said().keys()
    (launch,) = (await site.api.demand()).launches
    assert launch.size == "small"


async def test_it_finds_its_launches_again_after_a_restart(site: Site, local: RunningServer) -> None:
    await submit(local.person("operator", tenant=site.tenant), {"owner": "bob"}, resources={"cpus": 1})
    site.policy = SitePolicy(Thresholds(max_pilots=9), POLICY.sizes, settle=0.2, own_users=USERS)
    for _ in range(3):
        async with site.agent() as agent:
            agent.pilot_job = lambda launch, _size, _secret: PilotJob(f"forestay-{launch}", (), "/")
            await agent.look()
    assert len(site.batch.jobs) == 1


def test_a_launch_of_the_last_release_is_read_and_looks_as_before() -> None:
    launch = Launch("l1", "t", "hall", "small", planned=1)
    plain = launch_to_plain(launch)
    assert "owner" not in plain
    assert launch_from_plain("t", plain) == launch
    assert launch_from_plain("t", plain | {"owner": "ann"}).owner == "ann"
