"""`forestay hosts`: which hosts get jobs."""

from __future__ import annotations

from tests.unit.apps.cli.conftest import Shell
from tests.unit.apps.cli.fake_api import FakeApi


def test_what_is_counted_is_named(forestay: Shell, api: FakeApi) -> None:
    """A host with many open failures may have none of those for which it is closed."""
    api.hosts = [{"host": "node1", "status": "open", "words": "open", "failures": 0}]
    listed = forestay("hosts", "list")
    assert listed.code == 0, listed.err
    assert "FAILED FAST" in listed.out
    assert listed.out.splitlines()[1].split() == ["node1", "open", "0", "-"]
