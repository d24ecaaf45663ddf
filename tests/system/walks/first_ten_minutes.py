"""A new user's first ten minutes: the commands of the tutorial, as they stand there, in a clean environment.

The wheel is built and installed into a new virtual environment, first without extras, in which every command is tried, then with
those that the tutorial names. `forestay dev` is started, and every other command is typed into one shell, one after another.
Temporal is the program that `scripts/servers` has installed, if it has; otherwise it is downloaded. Then the tutorials are
typed on the state that this left, and the optional package for BPEL is tried in the same environment, first without it.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.system.walks import small_install, tutorials
from tests.unit.bpel.jobs import POLLING, job_process

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "tutorials" / "first-ten-minutes.md"
INSTALL = ["uv build --wheel", 'pip install "$(echo dist/forestay-*.whl)[server,flows]"']
MAY_FAIL = {"forestay wait $JOB": 8}
"""The job is meant to fail: `wait` says so by its exit code."""


def commands() -> list[str]:
    """What the tutorial tells a new user to type, who has installed the wheel as the README says."""
    assert _typed(ROOT / "README.md") == [*INSTALL, "forestay demo"]
    typed = _typed(PAGE)
    assert typed[0] == "forestay dev", typed
    return typed


def _typed(page: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def files() -> dict[str, str]:
    """What the tutorial tells a new user to save."""
    blocks = re.findall(r"```yaml\n(# (\S+)\n.*?)```", PAGE.read_text(), re.DOTALL)
    return {name: text for text, name in blocks}


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


def install(folder: Path) -> Path:
    """A wheel of this checkout in an environment that has nothing else."""
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(ROOT)], check=True)
    (wheel,) = (folder / "dist").glob("forestay-*.whl")
    programs = small_install.install(folder / "venv", wheel)
    subprocess.run([str(programs / "pip"), "install", "--quiet", "--no-input", f"{wheel}[server,flows]"], check=True)
    return programs


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port: int = own.getsockname()[1]
    return port


def start_dev(programs: Path, environment: dict[str, str], log: Path, *options: str) -> subprocess.Popen[bytes]:
    # The usual port may be taken on a busy machine; a port of its own is the one thing typed in addition.
    command = [str(programs / "forestay"), "dev", "--port", str(free_port()), *options]
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stderr=file, stdout=subprocess.DEVNULL)
    for _ in range(600):
        if "Ctrl-C stops it" in log.read_text():
            return process
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"forestay dev did not start: {log.read_text()}")


def type_in(
    typed: list[str],
    environment: dict[str, str],
    folder: Path | None,
    may_fail: Mapping[str, int],
    shell: Sequence[str] = ("bash", "-u"),
) -> str:
    """Type the commands into one shell and read what it shows; those that are meant to fail do so by these exit codes."""
    lines = []
    for command in typed:
        lines.append(f"echo {shlex.quote('$ ' + command)}")
        end = "" if command.endswith("&") else ";"
        lines.append(f"{command}{end} code=$?; test $code = {may_fail.get(command, 0)} || exit 99")
    done = subprocess.run(
        shell,
        input="\n".join(lines),
        env=environment or None,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
        check=False,
    )
    say(done.stdout)
    assert done.returncode == 0, "a command of the page failed"
    return done.stdout


def judge(shown: str) -> None:
    assert "hello, world" in tutorials.after(shown, "forestay submit --name hello").splitlines(), "hello world is shown"
    story = shown[shown.index("$ forestay story $JOB") :]
    for words in ("submitted the job", "claimed it for attempt 1", "Attempt 1 failed", "No such file or directory",
                  "Retrying (", "Failed permanently", "2 of 2 attempts used"):  # fmt: skip
        assert words in story, f"the story lacks: {words}"
    ran = shown[shown.index("$ forestay run") :]
    assert re.search(r"^[0-9a-f-]{36} completed\ngreeted: 3$", ran, re.MULTILINE), (
        "the flow did not come to its outputs"
    )
    assert "greet" in ran[ran.index("$ forestay runs") :]
    recovered = shown[shown.index("$ RUN=") :]
    assert (
        "quux: all 5 seats are taken" in recovered[recovered.index("$ forestay explain") : recovered.index("$ RULE=")]
    )
    watched = recovered[recovered.index("$ forestay watch") :]
    assert len(re.findall(r"^[0-9a-f-]{36} completed$", watched, re.MULTILINE)) == 2, "a run was not recovered"


def add_bpel(programs: Path, environment: dict[str, str], folder: Path) -> None:
    """Only an environment that has nothing else shows that Forestay works without the package, and that its wheel is complete."""

    def check() -> subprocess.CompletedProcess[str]:
        words = [str(programs / "forestay"), "bpel", "check", str(process)]
        return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)

    process = folder / "nightly.bpel"
    process.write_text(job_process(POLLING))
    without = check()
    assert (without.returncode, without.stdout) == (1, "")
    assert "pip install 'forestay[bpel]'" in without.stderr, without.stderr
    package = str(ROOT / "plugins" / "forestay-bpel")
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", str(folder / "bpel"), package], check=True)
    (wheel,) = (folder / "bpel").glob("forestay_bpel-*.whl")
    # With its dependencies: the wheel of Forestay that is installed must be the one that it requires.
    subprocess.run([str(programs / "pip"), "install", "--quiet", "--no-input", "--no-index", str(wheel)], check=True)
    found = check()
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    assert " 0 refused" in found.stdout, found.stdout


def main() -> None:
    began = time.monotonic()
    dev_line, *typed = commands()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("\n".join(f"$ {line}" for line in INSTALL))
        programs = install(folder)
        installed = time.monotonic()
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": name,
            "XDG_STATE_HOME": f"{name}/state",
            "XDG_CONFIG_HOME": f"{name}/config",
            "LANG": "C.UTF-8",
        }
        if program := os.environ.get("FORESTAY_TEST_TEMPORAL_PROGRAM"):
            environment["FORESTAY_TEMPORAL_PROGRAM"] = program
        for file, text in files().items():
            (folder / file).write_text(text)
        say(f"$ {dev_line}")
        dev = start_dev(programs, environment, folder / "dev.log")
        try:
            judge(type_in(typed, environment, folder, MAY_FAIL))
            recovered = time.monotonic()
            # On the state that the tutorial left, as somebody reads on.
            tutorials.judge_first_rule(type_in(tutorials.typed(tutorials.FIRST_RULE), environment, folder, {}))
            tutorials.judge_shadow(type_in(tutorials.typed(tutorials.SHADOW), environment, folder, tutorials.MAY_FAIL))
        finally:
            dev.send_signal(signal.SIGINT)
            assert dev.wait(30) == 0, (folder / "dev.log").read_text()
        add_bpel(programs, environment, folder)
    sys.stdout.write(
        f"first ten minutes: {recovered - began:.0f} s from the installation to a recovered flow "
        f"({installed - began:.0f} s of it to build and install)\n"
    )


if __name__ == "__main__":
    main()
