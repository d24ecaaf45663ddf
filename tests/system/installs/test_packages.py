"""The packages for Debian and rpm, made and used: installed into a bare root file system, started by their units, taken out again. `just packages-test`."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from scripts import packages
from tests.system.installs import recovered_flow, units
from tests.system.installs.root_fs import RootFs
from tests.system.walks.first_ten_minutes import free_port

ROOT = Path(__file__).resolve().parents[3]
STOPPED = (0, -signal.SIGTERM)
"""What systemd takes for an end in order."""
LEFT = ("/var/lib/forestay", "/var/lib/forestay-pilot", "/var/lib/forestay-pilot/1")
"""What the pages say is left: what processes have stored."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.build_wheel(tmp_path_factory.mktemp("wheel"))


def made(target: str, folder: Path, wheel: Path) -> list[Path]:
    files = packages.build([target], folder, wheel)
    assert {path.name.split("0.1.0")[0].rstrip("-_") for path in files} == {"forestay", "forestay-server"}
    return files


def put(root: RootFs, files: list[Path]) -> str:
    """The packages in a folder inside; their names there."""
    for path in files:
        root.mount(path, f"/packages/{path.name}")
    return " ".join(f"/packages/{path.name}" for path in files)


def check_files(root: RootFs) -> None:
    """The parts are where the pages say, and with a stranger's PYTHONPATH too."""
    shown = root.run(
        "forestay --version && forestay-pilot --version",
        user="daemon",
        environment={"PYTHONPATH": "/nonsense", "PYTHONHOME": "/nonsense"},
    )
    assert shown.count("0.1.0") == 2, shown
    root.run("cd /var/spool/forestay/shim/new && touch record", user="daemon")
    assert root.run("stat -c '%a %U' /var/spool/forestay/shim/new").split() == ["3777", "forestay-watcher"]
    assert "forestay-shim" in root.run("readlink /opt/forestay/shim/sbatch")
    assert root.run("ls /opt/forestay/lib/python3*/site-packages/forestay/__pycache__ | head -n 1").strip(), "compiled"
    assert (
        root.run(
            "systemd-analyze verify --man=no --recursive-errors=no /usr/lib/systemd/system/forestay-server.service"
        )
        == ""
    )


def use(root: RootFs) -> None:
    """Server, reconciler and a pilot by their units; a job that is submitted completes, and its output can be read."""
    port = free_port()
    edit = f's/^port = .*/port = {port}/; s/^listen = .*/listen = "127.0.0.1"/; s#^url = .*#url = "http://127.0.0.1:{port}"#; s/^metrics_port = .*/metrics_port = {free_port()}/; /^temporal/d'
    root.run(f"sed -i {shlex.quote(edit)} /etc/forestay/forestay.toml")
    server = units.start(root, "forestay-server.service")
    url = f"http://127.0.0.1:{port}"
    server.wait_for(str(port))
    reconciler = units.start(root, "forestay-reconciler.service")
    service = {"FORESTAY_CONFIG": "/etc/forestay/forestay.toml", "FORESTAY_STATE": "/var/lib/forestay"}
    token = root.run("forestay token pilots --role enrol --days 2", user="forestay", environment=service)
    root.run(f"printf %s {shlex.quote(token)} | install -m 600 /dev/stdin /etc/forestay/pilot.token")
    root.run(
        f"install -d -m 755 -o forestay-pilot /srv/outputs && printf 'PILOT_SERVER={url}\\nPILOT_OUTPUTS=/srv/outputs\\nPILOT_SLOTS=2\\n' >/etc/forestay/pilot.env"
    )
    pilot = units.start(root, "forestay-pilot@.service", "1")
    own = root.run("forestay token ada --role administrator", user="forestay", environment=service)
    client = {"FORESTAY_SERVER": url, "FORESTAY_TOKEN": own.strip()}
    shown = root.run(
        "forestay submit --name hello --wait -- echo 'hello from a package'", user="daemon", environment=client
    )
    assert "hello from a package" in shown, shown
    assert pilot.stop() in STOPPED, pilot.log()
    assert reconciler.stop() in STOPPED, reconciler.log()
    assert server.stop() in STOPPED, server.log()
    root.run("rm -r /srv/outputs /etc/forestay/pilot.token /etc/forestay/pilot.env")


def check_removed(root: RootFs, before: set[str]) -> None:
    left = {path for path in root.files() - before if "forestay" in path}
    stored = {path for path in left if path.startswith(LEFT)}
    assert {
        path
        for path in left - stored
        if not re.match(
            r"/var/lib/(dpkg|apt|rpm|systemd)/|/var/log/|/packages|/home/|/etc/forestay(/.*\.rpmsave)?$", path
        )
    } == set()
    assert "/var/lib/forestay/signing-key" in stored
    assert root.run("command -v forestay; ls /opt", code=0).strip() == ""


@pytest.mark.slow
@pytest.mark.parametrize(("target", "suite"), [("debian12", "bookworm"), ("debian13", "trixie")])
def test_a_deb_is_installed_started_used_and_removed(target: str, suite: str, wheel: Path, tmp_path: Path) -> None:
    files = made(target, tmp_path / "packages", wheel)
    with RootFs(suite, tmp_path / "system") as root:
        before = root.files()
        root.install("apt-get update", f"apt-get install -y --no-install-recommends {put(root, files)}")
        check_files(root)
        use(root)
        assert recovered_flow.recover(root) > 0
        root.run("userdel --remove ada")
        root.install("apt-get remove -y forestay-server")
        assert "forestay" in root.run("forestay --version")
        assert root.run("forestay server", code=1).count("\n") == 1, "it says which package is missing"
        root.run("test -e /etc/forestay/forestay.toml")
        root.install("apt-get purge -y forestay forestay-server")
        check_removed(root, before)


@pytest.mark.slow
def test_an_rpm_is_installed_started_used_and_removed(wheel: Path, tmp_path: Path) -> None:
    """No distribution with rpm can be fetched here. The files and scripts are tried on a Debian that has the same Python; the names of what they
    depend on are looked at, and not resolved."""
    files = made("el9", tmp_path / "packages", wheel)
    for path in files:
        assert subprocess.run(["rpm", "-K", "--nosignature", path], check=False, capture_output=True).returncode == 0
    needed = subprocess.check_output(["rpm", "-qp", "--requires", *files], text=True).splitlines()
    assert {line for line in needed if not line.startswith("rpmlib")} == {
        "python3.11", "systemd", "glibc >= 2.28", "libstdc++", "forestay = 0.1.0-1.el9", "/bin/sh"
    } - ({"/bin/sh"} - set(needed))  # fmt: skip
    with RootFs("bookworm", tmp_path / "system") as root:
        root.install("apt-get update", "apt-get install -y --no-install-recommends rpm python3.11 systemd libstdc++6")
        before = root.files()
        root.install(f"rpm --install --nodeps {put(root, files)}")
        assert root.run("rpm --verify --nodeps forestay forestay-server") == ""
        check_files(root)
        use(root)
        root.run("rpm --erase --nodeps forestay-server forestay")
        check_removed(root, before)


@pytest.mark.slow
def test_two_builds_have_equal_digests(wheel: Path, tmp_path: Path) -> None:
    digests = []
    for name in ("a", "a-longer-name"):
        files = [*made("debian12", tmp_path / name / "deb", wheel), *made("el9", tmp_path / name / "rpm", wheel)]
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
        shutil.rmtree(tmp_path / name)
        # Archives note seconds.
        time.sleep(1.1)
    assert digests[0] == digests[1]


def test_every_unit_is_in_one_package_and_every_user_made() -> None:
    """What the packages name is there, and the definitions agree with each other."""
    for name in ("forestay", "forestay-server"):
        text = (ROOT / "deploy/packages" / f"{name}.yaml").read_text()
        named = re.findall(r"(?:src|postinstall|preremove|postremove): (deploy/\S+)", text)
        assert len(named) >= 4
        assert [path for path in named if not (ROOT / path).exists()] == []
        assert set(re.findall(r"\$\{(\w+)\}", text)) <= {"VERSION", "RELEASE", "PYTHON", "STAGE"}
    assert all((ROOT / "deploy/systemd" / unit).exists() for unit in packages.SERVERS)
    spool = (ROOT / "deploy/packages/forestay.tmpfiles").read_text()
    assert "/var/spool/forestay/shim/new 3777 forestay-watcher" in spool
