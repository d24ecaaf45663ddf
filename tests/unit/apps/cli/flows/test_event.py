"""`forestay runs event`."""

from __future__ import annotations

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi


def test_an_event_is_sent_with_its_data_and_says_who_waited(forestay: Shell, api: FakeApi) -> None:
    sent = forestay("runs", "event", "detector-ready", "--key", "7", "-p", "file=7.raw", "-p", "n=3", "--id", "e-1")
    assert (sent.code, sent.out) == (0, "e-1\n")
    assert "it is kept for a week" in sent.err
    body = {"event": "detector-ready", "key": "7", "data": {"file": "7.raw", "n": 3}, "id": "e-1"}
    assert api.sent("POST", "/v1/external-events")[-1].body == body
    api.awaited = ["r1"]
    assert "1 run waited for it." in forestay("runs", "event", "detector-ready").err
    assert len(api.sent("POST", "/v1/external-events")[-1].body["id"]) > 8, "always with an id"
    assert "was sent before" in forestay("runs", "event", "detector-ready", "--id", "e-old").err
    assert forestay("runs", "event", "detector-ready", "--json").json["runs"] == ["r1"]
