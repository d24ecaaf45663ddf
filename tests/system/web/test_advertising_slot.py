"""The approval of an advertising slot, paper P2's example, by two people at a real browser; what undoes it is in the library and not in the flow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect
from tests.live.run_site import BAD, GOOD, TENANT, RunSite
from tests.system.web.browser import Person
from tests.system.web.conftest import LogIn

pytestmark = pytest.mark.pages

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "advertising-slot"


async def approve(person: Person, title: str) -> None:
    await person.open("/inbox?view=questions")
    card = person.page.get_by_role("article", name=title)
    await card.get_by_role("radio", name="Yes").check()
    await card.get_by_role("button", name="Answer").click()
    await expect(card).not_to_be_visible()


@pytest.mark.acts("answer a question")
@pytest.mark.ledger("P2-01", "P2-04", "P2-08")
async def test_approvals_by_people_are_taken_back_last_in_first_out(log_in: LogIn, site: RunSite) -> None:
    """While the run waits for its second approver the compensation of the first approval is replaced: the run keeps the version that it has."""
    undone: list[str] = []

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        line = claim["specification"]["command"][-1]
        if line.startswith("echo"):
            undone.append(line.partition('"')[2].partition('"')[0])
        return BAD if claim["name"] == "publish" else GOOD

    site.fate = fate
    rae = site.server.person("rule-author", tenant=TENANT, subject="rae")
    for file in sorted(FOLDER.glob("compensations/*.yaml")):
        answer = await rae.put(f"/v1/compensations/{file.stem}", json={"text": file.read_text()})
        assert answer.status_code == 200, answer.text
    run = await site.start((FOLDER / "approval.yaml").read_text())
    await site.task_is(run, "administrator", "asking")
    await approve(await log_in("ben", "operator"), "May front-page be used for advertising?")
    await site.task_is(run, "slot", "asking")
    other = {"text": "{action: administrator-approval, run: 'echo \"nobody did anything\"'}"}
    assert (await rae.put("/v1/compensations/administrator-approval", json=other)).status_code == 200
    await approve(await log_in("ada", "submitter"), "May front-page be given away?")
    assert (await site.ended(run)).state == "failed"
    assert undone == [
        "front-page is not given away by ada",
        "the approval of front-page by ben is taken back",
        "the request for front-page is withdrawn",
    ]
    site.fate = lambda _claim: GOOD
