"""Where no container can be had: a task is refused with words, is taken by nobody, or runs with its paths changed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import tes
from tests.system.tes.conftest import Site, ended, shell
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room

from forestay_pilot.staging import task_run
from forestay_pilot.staging.task_plan import lay_out, matcher, read_report


@pytest.fixture(scope="module")
async def strict(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A domain as it is when nobody said anything, whose pilot has no Apptainer."""
    state = tmp_path_factory.mktemp("strict")
    async with (
        store_room("sqlite", state) as url,
        processes(Domain(url, state), state, lease=60) as running,
    ):
        server = await running.server()
        tenant = f"t-{uuid4().hex[:8]}"
        running.pilot(tenant, server, apptainer="off", podman="off", bubblewrap="off")
        yield Site(running, server, tenant)


@pytest.mark.finding("F-A9")
def test_without_apptainer_a_task_ends_at_once_with_words_that_say_so(strict: Site) -> None:
    """With the free retries that every domain has: nobody here can run it, so none of them would help."""
    seen = ended(strict.client(), tes.Task(executors=[shell("true")]))
    assert seen.state == "SYSTEM_ERROR"
    assert "tes_containers" in "".join(seen.logs[0].system_logs)


_STAND_IN = """#!{python}
import os, sys
image = next(place for place, word in enumerate(sys.argv) if word.startswith("docker://"))
os.execvp(sys.argv[image + 1], sys.argv[image + 1:])
"""
"""Runs the command without an image."""


@pytest.mark.finding("F-A9")
async def test_tasks_go_to_the_pilots_that_can_run_them(tmp_path: Path) -> None:
    """Most slots are on a machine without Apptainer: a task that it took goes to the other machine at its next attempt, at once."""
    stand_in = tmp_path / "apptainer"
    stand_in.write_text(_STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o700)
    async with (
        store_room("sqlite", tmp_path) as url,
        processes(Domain(url, tmp_path), tmp_path, lease=60) as running,
    ):
        server = await running.server()
        tenant = f"t-{uuid4().hex[:8]}"
        running.pilot(tenant, server, apptainer="off", podman="off", bubblewrap="off", host="plain", slots=4)
        running.pilot(tenant, server, apptainer=str(stand_in), podman="off", bubblewrap="off", host="able")
        site = Site(running, server, tenant)
        client = site.client()
        with site.plain("operator") as operator:

            async def both() -> bool:
                pilots = operator.get("/v1/pilots").json()["pilots"]
                return {pilot["host"]: pilot["runtimes"] for pilot in pilots} == {"plain": [], "able": ["apptainer"]}

            await until(both, "both pilots, with what they can run")
            names = [client.create_task(tes.Task(executors=[shell("true")])) for _ in range(6)]
            for name in names:
                await asyncio.to_thread(client.wait, name, 60)
                assert client.get_task(name, "MINIMAL").state == "COMPLETE"
                assert operator.get(f"/v1/jobs/{name}").json()["attempt"] <= 2


async def test_a_domain_may_take_no_tasks(strict: Site) -> None:
    closed = await strict.running.server(tes_containers="refuse")
    client = strict.running.client(closed, "submitter", tenant=strict.tenant)
    answer = await client.post("/v1/tasks", json={"executors": [{"image": "a", "command": ["true"]}]})
    assert answer.status_code == 403
    assert "tes_containers" in answer.json()["msg"]


def _run(folder: Path, plan: dict[str, object], monkeypatch: pytest.MonkeyPatch, apptainer: str = "") -> int:
    lay_out(plan, str(folder), apptainer=apptainer)
    monkeypatch.setenv("FORESTAY_CLAIM", "c1")
    return task_run.TaskRunner(str(folder)).run()


def test_where_no_view_can_be_had_paths_are_changed_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forestay_pilot.staging.task_view.possible", lambda: False)
    plan: dict[str, object] = {
        "containers": "host-paths",
        "contents": [{"path": "/data/in.txt", "content": "hello\n"}],
        "outputs": [{"path": "/data/out.txt"}],
        "executors": [
            {"image": "a", "command": ["sh", "-c", "cat /data/in.txt > $TO; echo /data/in.txt2 /usr/data/in.txt"], "env": {"TO": "/data/out.txt"}}
        ],
    }  # fmt: skip
    assert _run(tmp_path, plan, monkeypatch) == 0
    assert (tmp_path / "root" / "data" / "out.txt").read_text() == "hello\n"
    report = read_report(str(tmp_path))
    assert report["logs"][0]["stdout"] == f"{tmp_path}/root/data/in.txt2 /usr/data/in.txt\n"
    assert "not in their images" in report["system"][0]


def test_a_container_is_given_the_tasks_folders_and_its_variables_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in for Apptainer writes down what it was given; a real one is not at hand everywhere."""
    stand_in = tmp_path / "apptainer"
    stand_in.write_text(
        f"#!{sys.executable}\nimport json, os, sys\njson.dump([sys.argv[1:], dict(os.environ)], sys.stdout)\n"
    )
    stand_in.chmod(0o700)
    folder = tmp_path / "job"
    folder.mkdir()
    plan: dict[str, object] = {
        "containers": "apptainer",
        "contents": [{"path": "/etc/tool.conf", "content": "x"}, {"path": "/data/a/in", "content": "x"}],
        "volumes": ["/data"],
        "outputs": [{"path": "/out/x"}],
        "executors": [{"image": "ubuntu:24.04", "command": ["run", "it"], "env": {"SECRET": "s"}, "workdir": "/w"}],
    }
    assert _run(folder, plan, monkeypatch, str(stand_in)) == 0
    words, environment = json.loads(read_report(str(folder))["logs"][0]["stdout"])
    assert words[-3:] == ["docker://ubuntu:24.04", "run", "it"]
    binds = [words[at + 1] for at, word in enumerate(words) if word == "--bind"]
    root = folder / "root"
    assert binds == [f"{root}{path}:{path}" for path in ("/data", "/out", "/w", "/etc/tool.conf")]
    assert words[words.index("--pwd") + 1] == "/w"
    assert environment["APPTAINERENV_SECRET"] == "s"
    assert "SECRET" not in environment
    assert environment["FORESTAY_CLAIM"] == "c1"


@pytest.mark.parametrize(
    ("pattern", "path", "match"),
    [
        ("/w/*.txt", "/w/a.txt", True),
        ("/w/*.txt", "/w/.a.txt", False),
        ("/w/*.txt", "/w/s/a.txt", False),
        ("/w/*/a.txt", "/w/s/a.txt", True),
        ("/w/?", "/w/a", True),
        ("/w/?", "/w/ab", False),
        ("/w/[!a]b", "/w/cb", True),
        ("/w/[!a]b", "/w/ab", False),
        ("/w/[a-c].d", "/w/b.d", True),
        ("/w/d*", "/w/dir/inside", True),
        ("/w/[", "/w/[", True),
    ],
)
def test_wildcards_are_those_of_the_shell(pattern: str, path: str, match: bool) -> None:
    assert (matcher(pattern).fullmatch(path) is not None) is match


def test_the_runner_needs_nothing_but_an_old_python(tmp_path: Path) -> None:
    plan = {"containers": "host-paths", "executors": [{"image": "a", "command": ["sh", "-c", "exit 6"]}]}
    lay_out(plan, str(tmp_path), apptainer="")
    code = "import sys; sys.path.insert(0, sys.argv[1]); from forestay_pilot.staging.task_run import main; main(sys.argv[2])"
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(task_run.__file__))))
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, source, str(tmp_path)], check=False)
    assert done.returncode == 6
