"""The folder that the sbatch shim writes to: only whole words of plain files count, and logs only of whose job it is."""

from __future__ import annotations

import os
import select
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from forestay.adapters.system import shim_spool
from forestay.adapters.system.shim_spool import ShimSpool
from forestay.domain.sites.cancel_call import JobSelector
from forestay.domain.sites.watched_job import Question, WatchedJob
from forestay.ports.errors import Permanent


@pytest.fixture
def spool(tmp_path: Path) -> ShimSpool:
    made = ShimSpool(tmp_path)
    made.prepare()
    return made


def leave(spool: ShimSpool, job: str, *, name: str = "", run: str = "", head: str = "1") -> None:
    """As the shim does."""
    (spool.folder / "new" / (name or f"{job}.0.4711")).write_bytes(
        b"".join(part.encode() + b"\0" for part in (head, job, "", "/home/ann", run))
    )


def test_a_folder_that_is_there_stays_open_as_its_administrator_made_it(tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    new.chmod(0o3777)
    ShimSpool(tmp_path).prepare()
    assert stat.S_IMODE(new.stat().st_mode) == 0o3777


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Permanent, match="FORESTAY_SHIM_SPOOL"):
        ShimSpool(tmp_path / "file").prepare()


def test_words_are_read_and_settled(spool: ShimSpool) -> None:
    assert not spool.jobs()
    leave(spool, "12")
    leave(spool, "7", run="run 3")
    assert {job.id: (job.key, job.owner) for job in spool.jobs()} == {
        "12": ("slurm-12", os.getuid()),
        "7": ("run 3", os.getuid()),
    }
    spool.settle(WatchedJob("7", "", 0, "", "", 0))
    assert [job.id for job in spool.jobs()] == ["12"]


@pytest.mark.finding("F-A1")
def test_elements_of_an_array_are_settled_one_by_one_and_every_shim_can_read_it(tmp_path: Path) -> None:
    records = tmp_path / "records"
    spool = ShimSpool(tmp_path, records)
    spool.prepare()
    leave(spool, "12")
    (array,) = spool.jobs()
    assert spool.settled(array) == frozenset()
    for name in ("12_3.0", "12_30.0", "12_4.0", "120.0"):
        (records / name).write_text("")
    before = os.umask(0o077)
    try:
        spool.settle(array._replace(id="12_3"))
        spool.settle(array._replace(id="12_30"))
    finally:
        os.umask(before)
    assert spool.settled(array) == {"12_3", "12_30"}
    assert (spool.folder / "settled" / "12").read_text() == "3\n30\n"
    assert [stat.S_IMODE((spool.folder / name).stat().st_mode) for name in ("settled", "settled/12")] == [0o755, 0o644]
    assert spool.jobs() == [array]
    assert {file.name for file in records.iterdir()} == {"12_4.0", "120.0"}
    spool.settle(array)
    assert not spool.jobs()
    assert not list((spool.folder / "settled").iterdir())
    assert {file.name for file in records.iterdir()} == {"120.0"}


def test_what_is_no_word_is_passed_over(spool: ShimSpool) -> None:
    new = spool.folder / "new"
    leave(spool, "8", head="3")
    leave(spool, "x;rm", name="9.0.1")
    leave(spool, "10", name="11.0.1")
    (new / "12.0.1").write_bytes(b"1\x0012")
    os.mkfifo(new / "13.0.1")
    leave(spool, "14", name="other")
    (new / "14.0.1").symlink_to(new / "other")
    leave(spool, "15")
    assert [job.id for job in spool.jobs()] == ["15"]


@pytest.mark.finding("F-A6")
def test_a_word_is_read_once_and_again_when_it_changes(spool: ShimSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()
    whole = shim_spool._read

    def counted(path: str) -> tuple[WatchedJob, os.stat_result]:
        read[Path(path).name] += 1
        return whole(path)

    monkeypatch.setattr(shim_spool, "_read", counted)
    for job in ("12", "13"):
        leave(spool, job)
    monkeypatch.setattr(shim_spool, "YOUNG", -60.0)
    for _ in range(3):
        assert [job.id for job in spool.jobs()] == ["12", "13"]
    assert set(read.values()) == {1}
    leave(spool, "13", run="another")
    assert [job.run for job in spool.jobs()] == ["", "another"]
    assert read == {"12.0.4711": 1, "13.0.4711": 2}
    (spool.folder / "new" / "12.0.4711").unlink()
    assert [job.id for job in spool.jobs()] == ["13"]


def test_a_word_that_was_written_just_now_is_read_again(spool: ShimSpool) -> None:
    leave(spool, "12")
    spool.jobs()
    leave(spool, "12", run="another")  # perhaps within the same tick of the file system's clock
    assert [job.run for job in spool.jobs()] == ["another"]


def test_a_word_says_whether_its_user_allows_a_requeue(spool: ShimSpool) -> None:
    leave(spool, "7")
    for job, value in (("8", "allow"), ("9", "no")):
        parts = ("2", job, "", "/home/ann", "", value)
        (spool.folder / "new" / f"{job}.0.1").write_bytes(b"".join(part.encode() + b"\0" for part in parts))
    assert {job.id: job.allow_requeue for job in spool.jobs()} == {"7": False, "8": True, "9": False}


@pytest.mark.finding("F-A7")
def test_words_of_one_user_do_not_keep_out_those_of_another(spool: ShimSpool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that come first in any order, and are no words at all."""
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    monkeypatch.setattr("forestay.adapters.system.shim_spool.MOST_JOBS", 3)
    for number in range(10):
        leave(spool, str(number))
        os.chown(spool.folder / "new" / f"{number}.0.4711", 65534, 65534)
        (spool.folder / "new" / f"!{number}").write_text("")
    leave(spool, "77777")
    jobs = spool.jobs()
    assert [job.id for job in jobs if job.owner == os.getuid()] == ["77777"]
    assert sorted(job.id for job in jobs if job.owner == 65534) == ["0", "1", "2"]


def test_a_question_is_read_of_a_watched_job_only_and_settled_with_it(tmp_path: Path) -> None:
    spool = ShimSpool(tmp_path / "spool", tmp_path / "records", before_end=True)
    spool.prepare()
    asks = tmp_path / "records" / "asks"
    for name, text in (
        ("7.0", "1 3 0 100\n"),
        ("7.1", "1 0 9 200\n"),
        ("8_2.0", "1 4 0 300\n"),
        ("9.0", "1 5 0 400\n"),  # of a job that is not watched
        ("7.new", "1 3 0 100\n"),
        ("7.2", ""),  # not written yet
        ("7.3", "2 3 0 100\n"),
        ("7.4", "1 x 0 100\n"),
    ):
        (asks / name).write_text(text)
    (asks / "7.5").symlink_to(asks / "7.0")
    me = os.getuid()
    assert spool.questions({"7": me, "8": me}) == {
        "7": Question(1, None, 9, 200),
        "8_2": Question(0, 4, None, 300),
    }
    spool.settle(WatchedJob("7", "", os.getuid(), "/", "", 0))
    assert sorted(path.name for path in asks.iterdir()) == ["8_2.0", "9.0"]
    spool.forget_questions(WatchedJob("8_2", "", os.getuid(), "/", "", 0))
    assert [path.name for path in asks.iterdir()] == ["9.0"]
    assert ShimSpool(tmp_path / "spool", tmp_path / "records").questions({"9": me}) == {}


@pytest.mark.finding("F-A7")
def test_what_another_user_asks_in_the_name_of_a_job_hides_no_question_of_its_own(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    spool = ShimSpool(tmp_path / "spool", tmp_path / "records", before_end=True)
    spool.prepare()
    asks = tmp_path / "records" / "asks"
    for name, user in (("7.0", 1000), ("7.99", 1001), ("8_1.0", 1001)):
        (asks / name).write_text("1 3 0 100\n")
        os.chown(asks / name, user, user)
    assert spool.questions({"7": 1000, "8": 1000}) == {"7": Question(0, 3, None, 100)}


def test_a_promise_to_decide_before_the_end_is_written_where_nodes_see_it(tmp_path: Path) -> None:
    spool = ShimSpool(tmp_path / "spool", tmp_path / "records", before_end=True)
    spool.prepare()
    victim = tmp_path / "victim"
    (tmp_path / "records" / f".watch.{os.getpid()}").symlink_to(victim)  # left by somebody else: not written through
    spool.vouch(60, hide=100)
    watch = tmp_path / "records" / "watch"
    until, patience = watch.read_text().split()
    assert (int(until) > time.time() + 50, patience) == (True, "10")
    assert not victim.exists()
    spool.vouch(0)
    assert not watch.exists()


def test_a_word_with_a_second_link_is_passed_over(spool: ShimSpool, tmp_path: Path) -> None:
    """Its owner is not the one who put that name into the folder."""
    leave(spool, "8", name="8.0.1")
    os.link(spool.folder / "new" / "8.0.1", tmp_path / "elsewhere")
    leave(spool, "9")
    assert [job.id for job in spool.jobs()] == ["9"]


SWAP = """
import os, shutil, sys
own, secret, draft, word = sys.argv[1:]
while True:
    for _ in range(200):
        for make in (lambda: os.symlink(secret, draft), lambda: os.link(secret, draft), lambda: os.mkfifo(draft), lambda: shutil.copy(own, draft)):
            make()
            os.rename(draft, word)
    print("own", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.finding("F-A7")
def test_what_is_swapped_while_it_is_looked_at_is_never_read_through(spool: ShimSpool, tmp_path: Path) -> None:
    """A plain file, a link to what its owner may not read, a second link and a pipe, one after the other under one name, by another process."""
    leave(spool, "8", name="secret", run="secret")
    secret = (spool.folder / "new" / "secret").rename(tmp_path / "secret")
    leave(spool, "8", name="9999", run="own")
    own = (spool.folder / "new" / "9999").rename(tmp_path / "own")
    with subprocess.Popen(
        [sys.executable, "-c", SWAP, own, secret, tmp_path / "draft", spool.folder / "new" / "8.0.1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as swapping:
        assert swapping.stdin is not None
        assert swapping.stdout is not None
        seen: Counter[str] = Counter()
        try:
            for _ in range(20):
                while not select.select([swapping.stdout], [], [], 0)[0]:
                    seen.update(job.run for job in spool.jobs())
                assert swapping.stdout.readline() == "own\n"
                assert [job.run for job in spool.jobs()] == ["own"], "it stays now"
                swapping.stdin.write("\n")
                swapping.stdin.flush()
        finally:
            swapping.kill()
    assert set(seen) <= {"own"}


@pytest.mark.finding("F-A7")
def test_a_foreign_word_hides_no_other_and_can_be_discarded_alone(spool: ShimSpool) -> None:
    leave(spool, "8", name="8.0.1", run="foreign")
    leave(spool, "8", name="8.0.2", run="own")
    words = {job.run: job for job in spool.jobs()}
    assert words.keys() == {"foreign", "own"}
    spool.discard(words["foreign"])
    spool.discard(words["foreign"])
    assert [job.run for job in spool.jobs()] == ["own"]


@pytest.mark.finding("F-A5")
def test_a_watch_says_until_when_since_when_and_for_how_long(spool: ShimSpool) -> None:
    before = time.time()
    assert spool.vouched() is None
    spool.vouch(60, hide=180)
    until, since, hide = (spool.folder / "watch").read_text().split()
    assert 50 < int(until) - time.time() <= 61
    assert before - 0.001 <= float(since) <= time.time() + 0.001, "written in milliseconds"
    assert hide == "180"
    spool.vouch(0)
    spool.vouch(0)
    assert not (spool.folder / "watch").exists()
    assert spool.vouched() is None


@pytest.mark.finding("F-A5")
def test_who_vouches_before_it_lapsed_goes_on_and_who_comes_later_begins_anew(spool: ShimSpool) -> None:
    """Whichever process: it is kept in the spool."""
    watch = spool.folder / "watch"
    watch.write_text(f"{int(time.time()) + 60}\n1000.500\n180\n")
    assert spool.vouched() == 1000.5
    spool.vouch(60, hide=180)
    assert ShimSpool(spool.folder).vouched() == 1000.5
    watch.write_text(f"{int(time.time()) - 1}\n1000.500\n180\n")
    assert spool.vouched() is None
    now = time.time()
    spool.vouch(60, hide=180)
    since = spool.vouched()
    assert since is not None
    assert since >= now - 0.001
    for broken in ("", "soon\n", f"{int(time.time()) + 60}\n"):
        watch.write_text(broken)
        assert spool.vouched() is None


def test_only_the_owners_own_plain_file_is_read(spool: ShimSpool, tmp_path: Path) -> None:
    log = tmp_path / "out"
    log.write_text("x" * 50_000 + "the end")
    assert spool.tail(str(log), os.getuid()).endswith("xthe end")
    assert len(spool.tail(str(log), os.getuid())) == 32_768
    assert spool.tail(str(log), os.getuid() + 1) == ""
    (tmp_path / "link").symlink_to(log)
    os.mkfifo(tmp_path / "pipe")
    for other in ("link", "pipe", "missing", "new"):
        assert spool.tail(str(tmp_path / other), os.getuid()) == ""


@pytest.mark.finding("F-A3")
def test_what_nextflow_knows_of_a_job_is_what_the_job_wrote_down(spool: ShimSpool, tmp_path: Path) -> None:
    work = [tmp_path / "work" / name for name in ("a", "b")]
    for folder in work:
        folder.mkdir(parents=True)
    script = "".join(f"###   - {folder}\n" for folder in work)
    (tmp_path / ".command.run").write_text(f"#!/bin/bash\n### array:\n###   work-dirs:\n{script}### ...\n")
    single = WatchedJob("12", "", os.getuid(), str(work[0]), "", 0)
    elements = [WatchedJob(f"13_{number}", "", os.getuid(), str(tmp_path), "", 0) for number in (0, 1, 2)]
    assert not spool.told_nextflow(single)
    (work[0] / ".exitcode").write_text("137")
    assert spool.told_nextflow(single)
    assert [spool.told_nextflow(element) for element in elements] == [True, False, True]  # of the last nothing is known
    assert spool.told_nextflow(single._replace(directory="/nowhere/on/this/host"))


@pytest.mark.finding("F-A3")
def test_an_element_of_nextflows_array_prints_to_its_own_folder(spool: ShimSpool, tmp_path: Path) -> None:
    script = "".join(f"###   - {tmp_path}/work/{name}\n" for name in ("a", "b"))
    (tmp_path / ".command.run").write_text(f"#!/bin/bash\n### array:\n###   work-dirs:\n{script}### ...\n")
    element = WatchedJob("13_1", "", os.getuid(), str(tmp_path), "", 0)
    assert spool.element_logs(element) == [f"{tmp_path}/work/b/.command.err", f"{tmp_path}/work/b/.command.out"]
    for other in (element._replace(id="13"), element._replace(id="13_2"), element._replace(directory="/nowhere")):
        assert not spool.element_logs(other)


@pytest.mark.finding("F-A3")
def test_a_question_is_taken_once_by_whoever_is_first(tmp_path: Path) -> None:
    spool = ShimSpool(tmp_path, tmp_path / "records", before_end=True)
    spool.prepare()
    asks = tmp_path / "records" / "asks"
    job = WatchedJob("12", "", os.getuid(), "", "", 0)
    (asks / "12.0").write_text("1 137 0 1000 2\n")
    question = spool.questions({"12": os.getuid()})["12"]
    assert (question.exit_code, question.oom_kills) == (137, 2)
    assert spool.take(job, 0)
    assert spool.take(job, 0)  # a decision that is carried out at the second look
    assert list(spool.questions({"12": os.getuid()})) == ["12"]
    spool.forget_questions(job)
    assert not list(asks.iterdir())
    (asks / "12.1.taken").touch()  # the job has withdrawn it
    assert not spool.take(job, 1)
    if os.getuid() == 0:  # only root can give a file away
        (asks / "12.2").write_text("1 137 0 1000 2\n")
        (asks / "12.2.taken").touch()
        os.chown(asks / "12.2.taken", 65534, 65534)
        assert not spool.take(job, 2), "somebody else took it, and the job does not wait for them"


def leave_call(spool: ShimSpool, name: str, *arguments: str, head: str = "1") -> Path:
    """As the shim records a call of scancel."""
    place = spool.folder / "new" / f"scancel.{name}"
    place.write_bytes(b"".join(part.encode() + b"\0" for part in (head, *arguments)))
    return place


def test_calls_that_cancel_jobs_are_read_and_forgotten(spool: ShimSpool) -> None:
    leave(spool, "12")
    leave_call(spool, "a", "-Q", "12", "13_4")
    leave_call(spool, "b", "--signal=USR1", "12")
    leave_call(spool, "c", "12", head="2")
    leave_call(spool, "d")
    old = leave_call(spool, "e", "--me")
    os.utime(old, (100, 100))
    assert [job.id for job in spool.jobs()] == ["12"]
    calls = {call.jobs: call for call in spool.cancel_calls()}
    assert calls.keys() == {(), (JobSelector("12"), JobSelector("13", 4, 4))}
    assert calls[()].at == 100
    assert {call.by for call in calls.values()} == {os.getuid()}
    spool.forget_cancel_calls(101)
    assert not old.exists()
    assert len(spool.cancel_calls()) == 1
    spool.settle(WatchedJob("12", "", 0, "", "", 0))
    assert len(spool.cancel_calls()) == 1, "it may be about other jobs too"


def test_a_call_counts_only_under_one_name_and_of_a_plain_file(spool: ShimSpool) -> None:
    """Otherwise a user could put another's name on a call."""
    real = leave_call(spool, "a", "12")
    os.link(real, spool.folder / "other")
    assert not spool.cancel_calls()
    (spool.folder / "other").unlink()
    (spool.folder / "new" / "scancel.b").symlink_to(real)
    os.mkfifo(spool.folder / "new" / "scancel.c")
    assert len(spool.cancel_calls()) == 1


def test_a_call_that_names_all_jobs_of_an_engine_is_read_whole(spool: ShimSpool) -> None:
    leave_call(spool, "a", *map(str, range(10_000)))
    (call,) = spool.cancel_calls()
    assert len(call.jobs) == 10_000
