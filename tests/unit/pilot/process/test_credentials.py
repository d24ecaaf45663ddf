"""The credentials of a pilot, out of the reach of what it runs as the same user."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.pilot.conftest import SOURCE
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer

PYTHON = "/usr/bin/python3"
NOBODY = 65534
SEARCH = """
for place in {token} /proc/$pilot/fd/0 /proc/$pilot/environ /proc/$pilot/cmdline /proc/self/fd/0 /proc/$PPID/fd/0; do
  echo "$place: $(head -c 4096 $place 2>&1 | tr '\\0' ' ')"
done
dd if=/proc/$pilot/mem bs=1 count=1 skip=4194304 2>&1
grep -rs "{pattern}" /proc/$pilot {folder} 2>/dev/null
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can enter; those of pytest are closed."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    shutil.copytree(SOURCE / "forestay_pilot", made / "forestay_pilot")
    for name in ("work", "out"):
        (made / name).mkdir()
        os.chown(made / name, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@pytest.mark.finding("F-C2")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can hand a file to another user that this user cannot open")
@pytest.mark.skipif(not os.path.exists(PYTHON), reason="needs an interpreter that every user can run")
def test_a_payload_cannot_read_the_token_that_its_pilot_was_handed(server: FakeServer, folder: Path) -> None:
    """As systemd does with StandardInput=file: opened by root, read by the pilot's user, whose jobs try to find it."""
    token = folder / "token"
    token.write_text(ENROL_TOKEN)
    token.chmod(0o600)
    with token.open() as handed:
        pilot = subprocess.Popen(
            [
                *(PYTHON, "-m", "forestay_pilot", "--server", server.url, "--claim-wait", "1", "--grace", "1"),
                *("--outputs", str(folder / "out"), "--work", str(folder / "work"), "--token-file", "-"),
            ],
            stdin=handed,
            stderr=subprocess.PIPE,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder)},
        )
    try:
        # As a pattern that the search does not find in itself.
        pattern = ENROL_TOKEN.replace("-", "[-]")
        search = SEARCH.format(token=token, folder=folder / "work", pattern=pattern)
        claim = server.submit("/bin/sh", "-c", f"pilot={pilot.pid}\nid -u\n{search}")
        end = server.end_of(claim)
        assert end["log_tail"].startswith(f"{NOBODY}\n"), end
        assert ENROL_TOKEN not in end["log_tail"]
        assert not [name for name in server.tokens if name in end["log_tail"]]
        assert end["log_tail"].count("Permission denied") >= 3, end["log_tail"]
    finally:
        pilot.kill()
        pilot.communicate()


@pytest.mark.finding("F-C2")
def test_the_standard_input_is_closed_to_payloads_after_the_token_was_read(server: FakeServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(ENROL_TOKEN)
    with token.open() as handed:
        pilot = subprocess.Popen(
            [
                *(PYTHON, "-m", "forestay_pilot", "--server", server.url, "--claim-wait", "1", "--grace", "1"),
                *("--outputs", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--token-file", "-"),
            ],
            stdin=handed,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
        )
    try:
        claim = server.submit("/bin/sh", "-c", f"readlink /proc/{pilot.pid}/fd/0; cat")
        assert "token" not in server.end_of(claim)["log_tail"]
    finally:
        pilot.kill()
        pilot.communicate()
