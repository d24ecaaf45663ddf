"""Jobs with secrets on real pilots: what they get, what is left of it, and what others see."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.conftest import SOURCE, RunningPilot
from tests.unit.pilot.containers.images import unpacked
from tests.unit.pilot.fake_server import ENROL_TOKEN, FakeServer, until

from forestay_pilot.containers.runtimes import ContainerRuntimes, find_bubblewrap
from forestay_pilot.job_secrets import job_secrets
from forestay_pilot.job_secrets.secret_files import MEMORY, SecretFiles
from forestay_pilot.job_secrets.site_secrets import SiteSecretsFile
from forestay_pilot.process.payload import Surroundings

StartPilot = Callable[..., RunningPilot]
PASSWORD = "the-password-of-the-database"
TOKEN = b"first line of the token\nsecond line of the token\n"
OWNERS = {"ann": ["file:db/*", "file:token"], "bob": ["file:of-bob"]}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The file of the site, beside its folder of secrets."""
    folder = tmp_path / "site"
    (folder / "db").mkdir(parents=True)
    for name, value in {"db/password": PASSWORD.encode() + b"\n", "token": TOKEN, "of-bob": b"bobs own value"}.items():
        (folder / name).write_bytes(value)
        (folder / name).chmod(0o600)
    file = tmp_path / "secrets.json"
    file.write_text(json.dumps({"folder": str(folder), "owners": OWNERS}))
    file.chmod(0o600)
    return file


def submit(server: FakeServer, script: str, secrets: dict[str, Any], owner: str = "ann", **changes: Any) -> Any:
    claim = server.submit("sh", "-c", script, owner=owner, **changes)
    claim["specification"]["secrets"] = secrets
    return claim


def stored(server: FakeServer) -> str:
    """All that pilots have ever sent."""
    return json.dumps([vars(server.seen)], default=str)


def in_memory() -> list[str]:
    return [name for name in os.listdir(MEMORY) if name.startswith(f"forestay-secrets-{os.getuid()}-")]


def test_a_job_gets_its_secrets_and_nothing_of_them_is_left(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, site: Path
) -> None:
    script = (
        "test ${#DB} = 28 && stat -c '%a %s' $TOKEN; cp $TOKEN copied; echo $DB; cat $TOKEN; printf %s $DB | base64;"
        " dirname $TOKEN; tr ' ' _ < $TOKEN; exit 3"
    )
    claim = submit(server, script, {"DB": "file:db/password", "TOKEN": {"file": "token", "as": "file"}})
    running = pilot(secrets=SiteSecretsFile(str(site)))
    end = server.end_of(claim)
    lines = end["log_tail"].splitlines()
    assert lines[:5] == ["600 49", "[secret DB]", "[secret TOKEN]", "[secret TOKEN]", "[secret DB]"], lines
    assert lines[5].startswith(f"{MEMORY}/forestay-secrets-")
    assert lines[6] == "first_line_of_the_token", "what is printed in another way is not known"
    assert not os.path.exists(lines[5]), "its files are removed at its end"
    assert end["reason"] == "exit"
    assert PASSWORD not in stored(server)
    assert TOKEN.splitlines()[0].decode() not in stored(server)
    assert running.end() == 0
    assert not [path for path in (tmp_path / "work").rglob("*") if path.is_file() and PASSWORD in path.read_text()]


def test_nothing_of_a_secret_is_on_disk_or_a_command_line_while_a_job_runs(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, site: Path
) -> None:
    script = "echo $DB; cat $TOKEN; touch here; while [ ! -e go ]; do sleep 0.05; done"
    claim = submit(server, script, {"DB": "file:db/password", "TOKEN": {"file": "token", "as": "file"}})
    pilot(secrets=SiteSecretsFile(str(site)))
    here: Path = until(lambda: next((tmp_path / "work").glob("pilot-*/jobs/*/here"), None), "the job")
    log = until(lambda: next((tmp_path / "work").glob("pilot-*/logs/*"), None), "its log")
    until(lambda: log.read_text().count("[secret") == 3, "what it prints")
    needles = (PASSWORD.encode(), TOKEN.splitlines()[0])
    for path in (tmp_path / "work").rglob("*"):
        if path.is_file():
            assert not any(needle in path.read_bytes() for needle in needles), path
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            assert not any(needle in words for needle in needles), name
    (here.parent / "go").touch()
    assert server.end_of(claim)["outcome"] == "ok"


@pytest.mark.parametrize(
    ("owner", "secrets", "error"),
    [
        ("bob", {"DB": "file:db/password"}, "not-allowed"),
        ("bob", {"MINE": "file:of-bob", "DB": {"file": "db/password", "as": "file"}}, "not-allowed"),
        ("", {"DB": "file:db/password"}, "not-allowed"),
        ("ann", {"DB": "file:db/none"}, "not-found"),
        ("ann", {"DB": "file:none"}, "not-allowed"),
        ("ann", {"DB": "vault:secret/data/app#token"}, "not-allowed"),
        ("ann", {"DB": "file:../secrets.json"}, "unfit"),
        ("ann", {"DB": "file:db/../of-bob"}, "unfit"),
        ("ann", {"DB": "file:/etc/shadow"}, "unfit"),
        ("ann", {"../x": {"file": "token", "as": "file"}}, "unfit"),
        ("ann", {"DB": 7}, "unfit"),
    ],
)
def test_a_job_without_its_secret_does_not_start(
    server: FakeServer, pilot: StartPilot, site: Path, owner: str, secrets: dict[str, Any], error: str
) -> None:
    """Also what no server lets through: the pilot does not rely on that."""
    claim = submit(server, "echo started", secrets, owner=owner)
    pilot(secrets=SiteSecretsFile(str(site)))
    end = server.end_of(claim)
    assert (end["reason"], end["error"], end["stage"]) == ("secret-failed", error, "staging-in"), end
    assert "started" not in end["log_tail"]
    assert "[pilot: " in end["log_tail"]


def test_a_pilot_without_sources_gives_the_job_to_others(server: FakeServer, pilot: StartPilot) -> None:
    claim = submit(server, "echo started", {"DB": "file:db/password"})
    pilot()
    end = server.end_of(claim)
    assert (end["reason"], end["error"]) == ("secret-failed", "no-source")


def test_no_unexpected_error_shows_a_value(
    server: FakeServer, pilot: StartPilot, site: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> bytes:
        raise UnicodeError(PASSWORD)

    monkeypatch.setattr(job_secrets, "read_below", fail)
    claim = submit(server, "echo started", {"DB": "file:db/password"})
    pilot(secrets=SiteSecretsFile(str(site)))
    end = server.end_of(claim)
    assert (end["reason"], end["error"]) == ("secret-failed", "unexpected")
    assert PASSWORD not in stored(server)
    assert PASSWORD not in caplog.text


def test_a_log_that_is_followed_has_no_values(
    server: FakeServer, pilot: StartPilot, tmp_path: Path, site: Path
) -> None:
    claim = submit(
        server, "printf '%s' ${DB%base}; sleep 0.3; echo base; touch here; sleep 60", {"DB": "file:db/password"}
    )
    pilot(secrets=SiteSecretsFile(str(site)))
    until(lambda: next((tmp_path / "work").glob("pilot-*/jobs/*/here"), None), "the job")
    server.order("log", {"claim": claim["claim"], "follow": True})
    until(lambda: any("[secret DB]" in part["text"] for part in server.seen.logs), "its log")
    server.order("cancel", {"claim": claim["claim"]})
    server.end_of(claim)
    assert "the-password" not in stored(server)


BWRAP = find_bubblewrap("bwrap")


@pytest.mark.skipif(not BWRAP, reason="bubblewrap cannot set up containers here (apt-get install bubblewrap)")
def test_a_container_gets_them_too(server: FakeServer, pilot: StartPilot, tmp_path: Path, site: Path) -> None:
    script = "test ${#DB} = 28 && echo known; cat $TOKEN; echo x > $TOKEN; echo $TOKEN; ls /dev/shm; echo made > result; echo $DB"
    claim = submit(server, script, {"DB": "file:db/password", "TOKEN": {"file": "token", "as": "file"}}, outputs=["*"])
    claim["specification"]["container"] = str(unpacked(tmp_path / "image"))
    runtimes = ContainerRuntimes(bubblewrap=BWRAP, images=str(tmp_path / "images"))
    pilot(secrets=SiteSecretsFile(str(site)), surroundings=Surroundings(grace=1.0, containers=runtimes))
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end
    lines = end["log_tail"].splitlines()
    assert lines[:3] == ["known", "[secret TOKEN]", "[secret TOKEN]"], lines
    assert "Read-only file system" in lines[3]
    assert lines[4].endswith("/.forestay-secrets/TOKEN")
    assert lines[5:] == ["[secret DB]"], "the host's memory is not there"
    assert end["manifest"]["files"] == 1, "files with secrets are no outputs"


@pytest.fixture
def by_descriptor(server: FakeServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A pilot that got its secrets as one that root starts does: by a descriptor of a file that is not there for others."""
    file = tmp_path / "given"
    file.write_text(json.dumps({"values": {"db/password": PASSWORD, "of-bob": "bobs own value"}, "owners": OWNERS}))
    descriptor = os.open(file, os.O_RDONLY)
    file.unlink()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "forestay_pilot", "--server", server.url, "--claim-wait", "1", "--grace", "1"),
            *("--outputs", str(tmp_path / "out"), "--work", str(tmp_path / "work"), "--slots", "2", "--cpus", "4"),
            *("--secrets", f"/dev/fd/{descriptor}"),
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "FORESTAY_ENROL_TOKEN": ENROL_TOKEN},
        pass_fds=[descriptor],
        stderr=subprocess.PIPE,
    )
    os.close(descriptor)
    yield process
    process.kill()
    process.communicate()


THIEF = """
import os
found = []
for name in filter(str.isdigit, os.listdir('/proc')):
    for what in ('cmdline', 'fd'):
        path = f'/proc/{name}/{what}'
        try:
            texts = [open(f'{path}/{fd}', 'rb', opener=lambda p, f: os.open(p, f | os.O_NONBLOCK)).read(1 << 20) for fd in os.listdir(path) if os.path.isfile(f'{path}/{fd}')] if what == 'fd' else [open(path, 'rb').read()]
        except OSError:
            continue
        found += [path for text in texts if bytes(reversed(b'REVERSED')) in text]
print('found', found)
"""


def test_a_job_of_another_owner_finds_no_source_to_read(
    server: FakeServer, by_descriptor: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """Neither in files nor in descriptors and command lines; root could read the memory of the pilot, so that is not tried."""
    script = tmp_path / "thief.py"
    script.write_text(THIEF.replace("REVERSED", PASSWORD[::-1]))
    victim = submit(server, "echo $DB; touch here; while [ ! -e go ]; do sleep 0.05; done", {"DB": "file:db/password"})
    here: Path = until(lambda: next((tmp_path / "work").glob("pilot-*/jobs/*/here"), None), "the first job")
    thief = submit(server, f"{sys.executable} {script}; grep -rl {PASSWORD[:9]} {tmp_path}/work; true", {}, owner="bob")
    refused = submit(server, "echo $DB", {"DB": "file:db/password"}, owner="bob")
    assert server.end_of(thief)["log_tail"].splitlines()[-1] == "found []", server.end_of(thief)["log_tail"]
    assert server.end_of(refused)["error"] == "not-allowed"
    (here.parent / "go").touch()
    assert server.end_of(victim)["log_tail"] == "[secret DB]\n"
    assert PASSWORD not in stored(server)
    features = server.seen.registrations[0]["features"]
    assert (features["secrets.file"], features.get("secrets.vault")) == ("yes", None)


def test_files_are_removed_when_a_pilot_is_killed(
    server: FakeServer, pilot_process: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, site: Path
) -> None:
    submit(server, "dirname $TOKEN > here; sleep 60", {"TOKEN": {"file": "token", "as": "file"}})
    process = pilot_process("--secrets", str(site))

    def written() -> str:
        path = next((tmp_path / "work").glob("pilot-*/jobs/*/here"), None)
        return "" if path is None else path.read_text().strip()

    folder = until(written, "the job")
    assert os.listdir(folder) == ["TOKEN"]
    process.send_signal(signal.SIGKILL)
    until(lambda: not os.path.exists(folder), "the guard's end")


def test_what_a_killed_guard_and_its_pilot_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = SecretFiles(str(tmp_path))
    folder = left.make("claim", {"TOKEN": b"x"})
    living = SecretFiles(str(tmp_path))
    assert os.path.exists(folder), "its pilot lives"
    assert left._lock is not None
    os.close(left._lock)
    left._lock = None
    following = SecretFiles(str(tmp_path))
    assert not os.path.exists(folder)
    assert os.path.exists(living.path)
    living.close()
    following.close()
    assert not {os.path.basename(made.path) for made in (left, living, following)} & set(in_memory())


def test_without_memory_files_are_in_the_folder_of_the_pilot(tmp_path: Path) -> None:
    (tmp_path / "no-memory").mkdir()
    files = SecretFiles(str(tmp_path), memory=str(tmp_path / "no-memory"))
    folder = files.make("claim", {"TOKEN": b"x"})
    assert folder.startswith(str(tmp_path))
    assert os.stat(folder).st_mode & 0o777 == 0o700
    files.close()
    assert not os.path.exists(folder)
