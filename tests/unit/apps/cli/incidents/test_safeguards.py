"""The switch that stops rules, and the check of the audit log, at the command line."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi

from forestay.domain.exceptions.safeguards.audit import PRUNED, AuditHead, AuditNote, head_of, next_page
from forestay.formats.rules.audit_json import entry_public

GROUP: dict[str, Any] = {
    "id": "cause:node@1", "trait": "cause", "value": "node", "opened": "2026-05-01T10:00:00.000Z", "failures": 5000, "held": True,
    "tried": [{"rule": "domain/site/r1", "fingerprint": "1-abc", "state": "held", "step": 0, "pending": [], "well": 0, "bad": 1}],
}  # fmt: skip


def entries(count: int = 10, by: str = "ann") -> list[dict[str, Any]]:
    head, out = AuditHead(), list[dict[str, Any]]()
    for number in range(count):
        page = next_page(
            head, [AuditNote(by, "job.cancel", f"j{number}", "wrong")], tenant="t", name="n", now=1_777_629_600_000
        )
        head = head_of(page)
        out += [entry_public(entry) for entry in page.entries]
    return out


def test_stop_and_go_say_who_and_why(forestay: Shell, api: FakeApi) -> None:
    assert forestay("safeguards").out == "Rules may act.\n"
    stopped = forestay("safeguards", "stop", "--reason", "the disks are full")
    assert stopped.code == 0
    assert stopped.out.startswith("Stopped here by alice at ")
    assert stopped.out.endswith(": the disks are full\n")
    assert "the disks are full" in forestay("safeguards", "show").out
    assert "Stopped everywhere" in forestay("safeguards", "stop", "--everywhere", "-r", "all of it").out
    assert forestay("safeguards", "resume", "-r", "recovered").out == "Rules may act.\n"
    assert [request.body for request in api.sent("POST", "/v1/safeguards/go")] == [
        {"reason": "recovered", "everywhere": False}
    ]


@pytest.mark.parametrize("words", [["stop"], ["resume"], ["try", "-r", "x"], ["allow", "g"], ["halt", "-r", "x"]])
def test_what_is_missing_is_asked_for(forestay: Shell, api: FakeApi, words: list[str]) -> None:
    ended = forestay("safeguards", *words)
    assert (ended.code, ended.out) == (2, "")
    assert api.requests == []


def test_groups_and_limits_are_shown(forestay: Shell, api: FakeApi) -> None:
    api.safeguards["groups"] = [GROUP]
    api.safeguards["limits"] = [
        {"meter": "owner", "key": "ann", "allowed": 500, "seconds": 600, "free": 480},
        {"meter": "tenant-hours", "key": "", "allowed": 36_000_000, "seconds": 86_400, "free": 3_600_000},
    ]
    out = forestay("safeguards").out
    assert "cause:node@1" in out
    assert "domain/site/r1 on 1-abc: failed, needs attention (0 well, 1 bad)" in out
    assert "actions, owner ann" in out
    assert "10,000" in out
    assert forestay("safeguards", "--json").json == api.safeguards
    tried = forestay("safeguards", "try", "cause:node", "--rule", "r1", "-r", "the node is back")
    assert tried.code == 0, tried.err
    body = {"group": "cause:node@1", "rule": "domain/site/r1", "do": "try", "reason": "the node is back"}
    assert api.sent("POST", "/v1/safeguards/groups")[0].body == body
    assert forestay("safeguards", "allow", "cause:node@1", "--error", "1-abc", "-r", "all").code == 0
    allowed = api.sent("POST", "/v1/safeguards/groups")[1].body
    assert (allowed["do"], allowed["fingerprint"]) == ("all", "1-abc")
    assert forestay("safeguards", "try", "cause:disk", "-r", "x").code == 3


def test_the_audit_log_is_shown(forestay: Shell, api: FakeApi) -> None:
    assert "There are no entries" in forestay("audit").err
    api.audit = entries(2)
    assert "job.cancel" in forestay("audit").out
    assert len(forestay("audit", "--json").json["entries"]) == 2


def test_a_sound_log_verifies_over_many_answers(forestay: Shell, api: FakeApi) -> None:
    assert forestay("audit", "verify").out.startswith("0 entries, all unchanged.")
    api.audit = entries(10)
    sound = forestay("audit", "verify")
    assert sound.code == 0
    assert sound.out == f"10 entries, all unchanged. The last: 10:{api.audit[-1]['hash']}\n"
    assert forestay("audit", "verify", "--json").json == {
        "sound": True, "entries": 10, "hash": api.audit[-1]["hash"], "broken": None, "words": "", "removed": 0,
    }  # fmt: skip
    assert forestay("audit", "verify", "--anchor", f"7:{api.audit[6]['hash']}").code == 0


def test_a_log_whose_beginning_the_retention_removed_verifies_and_says_so(forestay: Shell, api: FakeApi) -> None:
    first = entries(10)
    head = AuditHead(1, 10, first[-1]["hash"])
    note = AuditNote("retention", PRUNED, "audit", "old", {"number": 4, "hash": first[3]["hash"]})
    page = next_page(head, [note], tenant="alpha", name="n", now=1_700_000_000_000)
    api.audit = [*first[4:], entry_public(page.entries[0])]
    sound = forestay("audit", "verify")
    assert (sound.code, sound.out.partition(". ")[0]) == (
        0,
        "11 entries (1 to 4 removed by the retention), all unchanged",
    )
    assert forestay("audit", "verify", "--json").json["removed"] == 4
    early = forestay("audit", "verify", "--anchor", f"3:{first[2]['hash']}")
    assert early.code == 0
    assert "Entry 3 was removed by the retention; note a later one." in early.err
    assert forestay("audit", "verify", "--anchor", f"7:{first[6]['hash']}").err == ""
    api.audit = api.audit[:-1]
    assert forestay("audit", "verify").out.startswith("BROKEN entries 1 to 4 are missing")


@pytest.mark.parametrize(("harm", "broken"), [("change", 5), ("take out", 5), ("write anew", None), ("cut off", None)])
def test_a_log_that_was_tampered_with_does_not(forestay: Shell, api: FakeApi, harm: str, broken: int | None) -> None:
    api.audit = entries(10)
    anchor = f"9:{api.audit[8]['hash']}"
    if harm == "change":
        api.audit[4]["by"] = "bob"
    elif harm == "take out":
        del api.audit[4]
    elif harm == "write anew":
        api.audit = entries(10, by="bob")
    else:
        api.audit = api.audit[:6]
    plain = forestay("audit", "verify")
    if broken is not None:
        assert plain.code == 1
        assert plain.out.startswith(f"BROKEN entry {broken} ")
        assert forestay("audit", "verify", "--json").json["broken"] == broken
    assert forestay("audit", "verify", "--anchor", anchor).code == 1, "what was noted down elsewhere is missed"


def test_an_anchor_has_to_be_one(forestay: Shell, api: FakeApi) -> None:
    assert forestay("audit", "verify", "--anchor", "9").code == 2
    assert forestay("audit", "erase").code == 2
    assert api.requests == []
