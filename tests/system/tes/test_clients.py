"""What each known client needs beyond the specification, on a real server and pilot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import tes
from tests.system.tes.conftest import BASE, ended, file_url, shell
from tests.unit.pilot.storage_server import serving


def test_a_process_of_nextflow_finds_its_files_when_its_command_failed(
    plain: httpx.Client, client: tes.HTTPClient, tmp_path: Path
) -> None:
    """Its wrapper reads scripts by content or path, and its four files are outputs that it reads after any end."""
    work = tmp_path / "work"
    work.mkdir()
    (work / ".command.run").write_text(
        "cd /work\nbash .command.sh > .command.out 2> .command.err\ncode=$?\necho $code > .exitcode\ncat .command.out > .command.log\nexit $code\n"
    )
    (work / ".command.sh").write_text("echo made > result.txt\necho out\necho err >&2\nexit 4\n")
    names = [".command.out", ".command.err", ".command.log", ".exitcode"]
    body: dict[str, Any] = {
        "name": "sayHello (1)",
        "executors": [{"image": "ubuntu", "command": ["/bin/bash", "/work/.command.run"], "workdir": "/work"}],
        "inputs": [
            {"url": file_url(work / name), "path": f"/work/{name}", "type": "FILE"}
            for name in (".command.run", ".command.sh")
        ],
        "outputs": [
            *({"url": file_url(work / name), "path": f"/work/{name}"} for name in names),
            {"url": file_url(work), "path": "/work/result*", "path_prefix": "/work"},
        ],
        "resources": {"cpu_cores": 1, "ram_gb": 0.1},
    }
    name = plain.post("/v1/tasks", json=body).json()["id"]
    assert client.wait(name, timeout=60).state == "EXECUTOR_ERROR"
    assert (work / ".exitcode").read_text() == "4\n"
    assert (work / ".command.out").read_text() == "out\n"
    assert (work / ".command.err").read_text() == "err\n"
    assert (work / "result.txt").read_text() == "made\n"


def test_a_call_of_cromwell_runs_its_script_by_content(client: tes.HTTPClient, tmp_path: Path) -> None:
    """Paths without a scheme, the script in the task, and its return code as an output."""
    place = "/cromwell-executions/wf/call-x/execution"
    script = f"#!/bin/bash\ncd {place}\necho hello > stdout\necho 0 > rc\n"
    task = tes.Task(
        inputs=[tes.Input(name="commandScript", path=f"{place}/script", content=script)],
        outputs=[tes.Output(path=f"{place}/{name}", url=str(tmp_path / name)) for name in ("rc", "stdout")],
        executors=[tes.Executor(image="ubuntu", command=["/bin/bash", f"{place}/script"], workdir=place)],
        resources=tes.Resources(preemptible=True),
    )
    assert ended(client, task).state == "COMPLETE"
    assert (tmp_path / "rc").read_text() == "0\n"
    assert (tmp_path / "stdout").read_text() == "hello\n"


def test_toil_takes_the_exit_code_of_the_last_log(client: tes.HTTPClient) -> None:
    seen = ended(client, tes.Task(executors=[shell("true"), shell("exit 9"), shell("true")]))
    assert seen.state == "EXECUTOR_ERROR"
    assert len(seen.logs) == 1
    assert seen.logs[-1].logs[-1].exit_code == 9


def test_an_attempt_that_is_recovered_is_not_shown(plain: httpx.Client, client: tes.HTTPClient, tmp_path: Path) -> None:
    """The second attempt is the one that is seen, and no state says that there was a first."""
    mark = tmp_path / "mark"
    body = {
        "executors": [{"image": "a", "command": ["/bin/sh", "-c", f"test -e {mark} || {{ touch {mark}; exit 5; }}"]}],
        "resources": {"backend_parameters": {"max_attempts": "2"}},
    }
    name = plain.post(f"{BASE}/tasks", json=body).json()["id"]
    states = {"QUEUED"}
    while not states & {"COMPLETE", "EXECUTOR_ERROR", "SYSTEM_ERROR"}:
        states.add(plain.get(f"{BASE}/tasks/{name}").json()["state"])
    assert states <= {"QUEUED", "INITIALIZING", "RUNNING", "COMPLETE"}
    seen = client.get_task(name, "FULL")
    assert len(seen.logs) == 1
    assert seen.logs[0].metadata["attempt"] == "2"
    assert [log.exit_code for log in seen.logs[0].logs] == [0]


def test_files_come_and_go_by_http(client: tes.HTTPClient, tmp_path: Path) -> None:
    with serving(tmp_path) as storage:
        (tmp_path / "in.txt").write_bytes(b"by http\n")
        task = tes.Task(
            inputs=[tes.Input(url=f"{storage.url}/in.txt", path="/d/in.txt")],
            outputs=[tes.Output(url=f"{storage.url}/out.txt", path="/d/out.txt")],
            executors=[shell("cat /d/in.txt /d/in.txt > /d/out.txt")],
        )
        seen = ended(client, task)
        assert seen.state == "COMPLETE", seen.logs
        assert (tmp_path / "out.txt").read_bytes() == b"by http\nby http\n"
