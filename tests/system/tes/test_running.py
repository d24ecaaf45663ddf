"""Tasks run on a real pilot as the specification of TES says, seen through py-tes."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx
import pytest
import tes
from tests.system.tes.conftest import BASE, Site, ended, file_url, shell


@pytest.mark.ledger("P0-05")
def test_a_task_is_submitted_and_polled_by_its_id_until_its_outputs_are_there(
    client: tes.HTTPClient, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("hello\n")
    task = tes.Task(
        name="upper",
        inputs=[tes.Input(url=file_url(tmp_path / "in.txt"), path="/data/in.txt")],
        outputs=[tes.Output(url=file_url(tmp_path / "out" / "result.txt"), path="/results/out.txt")],
        executors=[shell("tr a-z A-Z < /data/in.txt > /results/out.txt; echo done; echo odd >&2")],
    )
    seen = ended(client, task)
    assert seen.state == "COMPLETE"
    assert (tmp_path / "out" / "result.txt").read_text() == "HELLO\n"
    (log,) = seen.logs
    (executor,) = log.logs
    assert executor.exit_code == 0
    assert executor.stdout == "done\n"
    assert executor.stderr == "odd\n"
    assert executor.start_time <= executor.end_time
    (output,) = log.outputs
    assert (output.path, output.size_bytes) == ("/results/out.txt", 6)
    assert output.url == file_url(tmp_path / "out" / "result.txt")
    assert log.start_time
    assert log.end_time


def test_executors_run_in_order_and_share_volumes_and_inputs(client: tes.HTTPClient, tmp_path: Path) -> None:
    task = tes.Task(
        volumes=["/vol"],
        inputs=[tes.Input(content="#!/bin/sh\necho from the script\n", path="/scripts/run.sh")],
        outputs=[tes.Output(url=str(tmp_path / "log"), path="/vol/log")],
        executors=[
            shell("ls -A /vol; sh /scripts/run.sh >> /vol/log; echo more > /vol/next"),
            tes.Executor(image="alpine", command=["cat"], stdin="/vol/next", stdout="/vol/log2", stderr="/vol/err"),
            shell("cat log2 >> log; echo $GREETING >> log", workdir="/vol", env={"GREETING": "good day"}),
        ],
    )
    seen = ended(client, task)
    assert seen.state == "COMPLETE", seen.logs
    assert (tmp_path / "log").read_text() == "from the script\nmore\ngood day\n"
    assert [log.exit_code for log in seen.logs[0].logs] == [0, 0, 0]
    assert not seen.logs[0].logs[0].stdout, "volumes start empty"


def test_a_failing_executor_ends_the_task_and_its_outputs_are_brought_all_the_same(
    client: tes.HTTPClient, tmp_path: Path
) -> None:
    task = tes.Task(
        outputs=[
            tes.Output(url=file_url(tmp_path / "exitcode"), path="/work/.exitcode"),
            tes.Output(url=file_url(tmp_path / "never"), path="/work/never"),
        ],
        executors=[shell("echo 3 > .exitcode; echo no luck >&2; exit 3", workdir="/work"), shell("touch /work/never")],
    )
    seen = ended(client, task)
    assert seen.state == "EXECUTOR_ERROR"
    assert (tmp_path / "exitcode").read_text() == "3\n"
    assert not (tmp_path / "never").exists()
    assert [log.exit_code for log in seen.logs[0].logs] == [3]
    assert seen.logs[0].logs[0].stderr == "no luck\n"


def test_an_error_that_is_to_be_ignored_lets_the_next_executor_run(plain: httpx.Client, client: tes.HTTPClient) -> None:
    body = {
        "executors": [
            {"image": "alpine", "command": ["/bin/sh", "-c", "exit 7"], "ignore_error": True},
            {"image": "alpine", "command": ["echo", "second"]},
        ]
    }
    name = plain.post(f"{BASE}/tasks", json=body).json()["id"]
    assert client.wait(name, timeout=60).state == "COMPLETE"
    logs = plain.get(f"{BASE}/tasks/{name}", params={"view": "FULL"}).json()["logs"][0]["logs"]
    assert [log["exit_code"] for log in logs] == [7, 0]


def test_a_program_that_is_not_there_is_the_executors_error(client: tes.HTTPClient) -> None:
    seen = ended(client, tes.Task(executors=[tes.Executor(image="alpine", command=["no-such-program"])]))
    assert seen.state == "EXECUTOR_ERROR"
    assert seen.logs[0].logs[0].exit_code == 127


def test_folders_go_in_and_out(client: tes.HTTPClient, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a").write_text("a")
    (source / "b").write_text("b")
    task = tes.Task(
        inputs=[tes.Input(url=file_url(source), path="/in", type="DIRECTORY")],
        outputs=[tes.Output(url=file_url(tmp_path / "target"), path="/out", type="DIRECTORY")],
        executors=[shell("cp -r /in/. /out; echo x > /in/b")],
    )
    seen = ended(client, task)
    assert seen.state == "COMPLETE", seen.logs
    assert (tmp_path / "target" / "deep" / "a").read_text() == "a"
    assert (tmp_path / "target" / "b").read_text() == "b"
    assert (source / "b").read_text() == "b", "what a task does to its inputs does not change them"
    assert {output.path for output in seen.logs[0].outputs} == {"/out/deep/a", "/out/b"}


@pytest.mark.parametrize("prefix", ["/work", "/work/"])
def test_wildcards_give_each_file_its_own_address(
    plain: httpx.Client, client: tes.HTTPClient, tmp_path: Path, prefix: str
) -> None:
    body = {
        "outputs": [
            {"path": "/work/*.txt", "path_prefix": prefix, "url": str(tmp_path / "all")},
            {"path": "/work/sub/[ab]?", "path_prefix": prefix, "url": file_url(tmp_path / "some")},
            {"path": "/work/*.none", "path_prefix": prefix, "url": str(tmp_path / "none")},
        ],
        "executors": [
            {
                "image": "alpine",
                "command": [
                    "/bin/sh",
                    "-c",
                    "mkdir -p sub; touch 1.txt 2.txt .3.txt 4.dat sub/a1 sub/b2 sub/c3 sub/a11 sub/5.txt",
                ],
                "workdir": "/work",
            }
        ],
    }
    name = plain.post(f"{BASE}/tasks", json=body).json()["id"]
    assert client.wait(name, timeout=60).state == "COMPLETE"
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["1.txt", "2.txt"]
    assert sorted(path.name for path in (tmp_path / "some" / "sub").iterdir()) == ["a1", "b2"]
    assert not (tmp_path / "none").exists()


def test_an_output_that_is_not_there_is_told(client: tes.HTTPClient, tmp_path: Path) -> None:
    task = tes.Task(outputs=[tes.Output(url=file_url(tmp_path / "x"), path="/o/x")], executors=[shell("true")])
    seen = ended(client, task)
    assert seen.state == "SYSTEM_ERROR"
    assert "/o/x" in "".join(seen.logs[0].system_logs)


def test_an_input_that_is_not_there_is_told(client: tes.HTTPClient, tmp_path: Path) -> None:
    task = tes.Task(inputs=[tes.Input(url=file_url(tmp_path / "x"), path="/i/x")], executors=[shell("true")])
    seen = ended(client, task)
    assert seen.state == "SYSTEM_ERROR"
    assert "No such file" in "".join(seen.logs[0].system_logs)


def test_a_large_content_reaches_the_executor_whole(client: tes.HTTPClient, tmp_path: Path) -> None:
    text = "é" * (2 << 20)
    task = tes.Task(
        inputs=[tes.Input(content=text, path="/c/text")],
        outputs=[tes.Output(url=str(tmp_path / "copy"), path="/c/copy")],
        executors=[shell("cp /c/text /c/copy")],
    )
    seen = ended(client, task)
    assert seen.state == "COMPLETE", seen.logs
    assert (tmp_path / "copy").read_text() == text


def test_a_cancelled_task_is_stopped_and_a_second_cancel_changes_nothing(
    client: tes.HTTPClient, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    name = client.create_task(tes.Task(executors=[shell(f"touch {begun}; sleep 600")]))
    while not begun.exists():
        assert client.get_task(name, "MINIMAL").state in ("QUEUED", "INITIALIZING", "RUNNING")
    client.cancel_task(name)
    states = {client.get_task(name, "MINIMAL").state}
    while "CANCELED" not in states:
        states.add(client.get_task(name, "MINIMAL").state)
    assert states <= {"CANCELING", "CANCELED"}
    client.cancel_task(name)
    assert client.get_task(name, "BASIC").state == "CANCELED"


def test_a_cancel_after_the_end_changes_nothing(client: tes.HTTPClient) -> None:
    seen = ended(client, tes.Task(executors=[shell("true")]))
    client.cancel_task(seen.id)
    assert client.get_task(seen.id, "MINIMAL").state == "COMPLETE"


def test_a_password_may_be_the_token(site: Site) -> None:
    basic = tes.HTTPClient(site.server.url, user="anyone", password=site.token())
    assert ended(basic, tes.Task(executors=[shell("true")])).state == "COMPLETE"
    header = base64.b64encode(b"anyone:wrong").decode()
    answer = httpx.get(f"{site.server.url}{BASE}/tasks", headers={"Authorization": f"Basic {header}"})
    assert answer.status_code == 401


def test_a_task_is_a_forestay_job(plain: httpx.Client, client: tes.HTTPClient) -> None:
    seen = ended(client, tes.Task(name="named", tags={"project": "x"}, executors=[shell("echo hi")]))
    job: dict[str, Any] = plain.get(f"/v1/jobs/{seen.id}").json()
    assert job["state"] == "completed"
    assert job["name"] == "named"
    assert job["labels"]["project"] == "x"
    assert "hi" in plain.get(f"/v1/jobs/{seen.id}/log").text
