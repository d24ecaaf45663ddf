"""The verb for peers."""

from __future__ import annotations

from pathlib import Path

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi


def test_peers_are_added_listed_and_removed(forestay: Shell, api: FakeApi, tmp_path: Path) -> None:
    assert "No peers" in forestay("peers").err
    assert forestay("peers", "key").out.strip() == '{"kty": "OKP"}'
    key = tmp_path / "north.key"
    key.write_text(forestay("peers", "key").out)
    words = ["--url", "https://north.example", "--key", str(key), "--tenant", "physics=guests", "--sends", "physics"]
    added = forestay("peers", "add", "north", *words, "--lease", "60")
    assert added.out.strip() == "north at https://north.example is a peer"
    (known,) = api.peers
    live = {"connected": True, "slots": 8, "free": 3}
    assert known == {
        "peer": "north",
        "url": "https://north.example",
        "key": '{"kty": "OKP"}',
        "tenants": {"physics": "guests"},
        "sends": ["physics"],
        "lease": 60,
        "cost": 1.0,
    }
    known |= live
    heading, line = forestay("peers", "list").out.splitlines()
    assert heading.split()[0] == "PEER"
    assert line.split() == ["north", "https://north.example", "physics=guests", "physics", "60", "s", "up", "3/8"]
    assert forestay("peers", "--json").json["peers"] == [known]
    assert forestay("peers", "remove", "north").code == 0
    assert forestay("peers", "remove", "north").code == 3
    assert api.peers == []


def test_what_is_missing_is_said(forestay: Shell, tmp_path: Path) -> None:
    assert forestay("peers", "add").code == 2
    assert forestay("peers", "add", "north").code == 2
    assert forestay("peers", "polish").code == 2
    words = ["--url", "https://north.example", "--key", str(tmp_path / "none")]
    assert "cannot be read" in forestay("peers", "add", "north", *words).err
    (tmp_path / "none").write_text("{}")
    assert forestay("peers", "add", "north", *words, "--tenant", "physics").code == 2
