"""The verb for peers."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Shell
from tests.cli.fake_api import FakeApi


def test_peers_are_added_listed_and_removed(holdfast: Shell, api: FakeApi, tmp_path: Path) -> None:
    assert "No peers" in holdfast("peers").err
    assert holdfast("peers", "key").out.strip() == '{"kty": "OKP"}'
    key = tmp_path / "north.key"
    key.write_text(holdfast("peers", "key").out)
    words = ["--url", "https://north.example", "--key", str(key), "--tenant", "physics=guests", "--sends", "physics"]
    added = holdfast("peers", "add", "north", *words, "--lease", "60")
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
    heading, line = holdfast("peers", "list").out.splitlines()
    assert heading.split()[0] == "PEER"
    assert line.split() == ["north", "https://north.example", "physics=guests", "physics", "60", "s", "up", "3/8"]
    assert holdfast("peers", "--json").json["peers"] == [known]
    assert holdfast("peers", "remove", "north").code == 0
    assert holdfast("peers", "remove", "north").code == 3
    assert api.peers == []


def test_what_is_missing_is_said(holdfast: Shell, tmp_path: Path) -> None:
    assert holdfast("peers", "add").code == 2
    assert holdfast("peers", "add", "north").code == 2
    assert holdfast("peers", "polish").code == 2
    words = ["--url", "https://north.example", "--key", str(tmp_path / "none")]
    assert "cannot be read" in holdfast("peers", "add", "north", *words).err
    (tmp_path / "none").write_text("{}")
    assert holdfast("peers", "add", "north", *words, "--tenant", "physics").code == 2
