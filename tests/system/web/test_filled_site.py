"""The filled site is what its description says, so that what is shown on it is shown on a site of that size."""

from __future__ import annotations

import pytest
from tests.system.web.filled_site import APPROVED, JOBS, KINDS, OWNERS, REGRESSED, STORM, STORMY, FilledSite

pytestmark = pytest.mark.pages


async def test_the_filled_site_holds_what_it_promises(filled: FilledSite) -> None:
    ann = filled.login()
    jobs = (await ann.get("/v1/jobs/counts", params={"by": "owner"})).json()["counts"]
    assert (sum(jobs.values()), sorted(jobs)) == (JOBS, sorted(OWNERS))
    inbox = (await ann.get("/v1/inbox", params={"snoozed": "show"})).json()
    known = (await ann.get("/v1/incidents/counts", params={"by": "fingerprint"})).json()["counts"]
    assert len(known) >= len(KINDS) == 19
    (storm,) = [group for group in inbox["groups"] if group["group"]]
    assert (storm["fingerprint"], storm["count"]) == (*await filled.fingerprints(STORMY), STORM)
    regressed = {group["fingerprint"] for group in inbox["groups"] if group["state"] == "regressed"}
    assert regressed == set().union(*[await filled.fingerprints(kind) for kind in REGRESSED])
    approvals = (await ann.get("/v1/approvals", params={"state": "waiting"})).json()["approvals"]
    assert len(approvals) == APPROVED.many
    assert filled.seconds < 180, "it is made for every run of the tests of the pages"
