"""How Slurm's words are read; the lines are a Slurm 22.05's own."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest

from forestay.adapters.slurm.controllers import controllers, why_unreached
from forestay.adapters.slurm.reading import NodeWord, joined, read_accounting, read_queue, with_nodes
from forestay.adapters.slurm.words import NOT_SENT, PERHAPS_SENT, exit_of, one_line, state_of
from forestay.domain.sites.batch import FORGOTTEN, SILENT, BatchOutcome, BatchState, SubmitRefusal
from forestay.formats.text.host_list import nodes_of

RUNS = "10|10|N/A|RUNNING|None|n1|0|0|2026-11-15T18:39:01|2027-11-15T18:39:01|fs-t2"
FAILED = "11|11|N/A|FAILED|NonZeroExitCode|n1|768|0|2026-11-15T18:39:01|2026-11-15T18:39:01|fs|x"


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1", ("n1",)),
        ("n[1-3,7],login1", ("n1", "n2", "n3", "n7", "login1")),
        ("rack1-n[08-11]", ("rack1-n08", "rack1-n09", "rack1-n10", "rack1-n11")),
        ("n[1-2]-ib,x", ("n1-ib", "n2-ib", "x")),
        ("None assigned", ()),
        ("(null)", ()),
        ("", ()),
    ],
)
def test_host_lists(text: str, nodes: tuple[str, ...]) -> None:
    assert nodes_of(text) == nodes


def test_a_host_list_without_end_is_cut_off() -> None:
    assert len(nodes_of("n[1-999999999]")) == 1000


@pytest.mark.parametrize(
    ("text", "code", "signal"),
    [("3:0", 3, None), ("0:9", None, 9), ("0:0", 0, None), ("768", 3, None), ("9", None, 9), ("", None, None), ("0:137", None, 9)],
)  # fmt: skip
def test_exit_codes(text: str, code: int | None, signal: int | None) -> None:
    assert exit_of(text) == (code, signal)


def test_a_word_of_a_newer_slurm_is_unknown() -> None:
    assert state_of("EXPEDITING") == (BatchState.UNKNOWN, "EXPEDITING")
    assert state_of("CANCELLED by 1000") == (BatchState.ENDED, "CANCELLED")
    assert state_of("COMPLETING")[0] is BatchState.RUNNING, "processes of it may live"


def test_a_name_with_bars_is_kept_whole_and_a_torn_line_passed_by() -> None:
    jobs = read_queue(f"{RUNS}\n{FAILED}\nsomething else\n", "|")
    assert {job.name for job in jobs.values()} == {"fs-t2", "fs|x"}
    assert (jobs["11"].outcome.word, jobs["11"].outcome.exit_code) == ("FAILED", 3)
    assert jobs["10"].outcome.exit_code is None


def test_a_job_that_slurm_started_anew_is_as_its_last_start_and_tells_of_the_ones_before() -> None:
    text = (
        "7|7|NODE_FAIL|None|n2|0:0|2026-11-15T18:00:00|2026-11-15T18:01:00|p\n"
        "7|7|COMPLETED|None|n3|0:0|2026-11-15T18:02:00|2026-11-15T18:03:00|p\n"
    )
    outcome = read_accounting(text, "|")["7"].outcome
    assert (outcome.state, outcome.restarts, outcome.nodes) == (BatchState.ENDED, 1, ("n3",))
    assert outcome.node_events == ("n2: NODE_FAIL",)


def test_an_absence_is_never_an_end() -> None:
    running = BatchOutcome(BatchState.RUNNING, word="RUNNING")
    both = {"queue_answers": True, "accounting_answers": True}
    assert joined(None, None, **both) == FORGOTTEN
    assert joined(None, None, queue_answers=True, accounting_answers=False) == SILENT
    assert joined(None, None, queue_answers=False, accounting_answers=True) == SILENT
    left = joined(None, running, **both)
    assert (left.state, left.word) == (BatchState.UNKNOWN, "RUNNING")
    assert "no longer" in left.reason
    assert joined(None, running, queue_answers=False, accounting_answers=True).state is BatchState.UNKNOWN


def test_an_end_by_the_accounting_counts_though_the_queue_is_down() -> None:
    over = BatchOutcome(BatchState.ENDED, word="TIMEOUT")
    assert joined(None, over, queue_answers=False, accounting_answers=True) == over


def test_an_end_that_a_dead_node_cannot_have_confirmed_may_leave_processes() -> None:
    nodes = {"n2": NodeWord("down*", "Not responding")}
    cancelled = BatchOutcome(BatchState.ENDED, word="CANCELLED", nodes=("n2",), started=5)
    outcome = with_nodes(cancelled, nodes)
    assert outcome.state is BatchState.LOST
    assert outcome.node_events == ("n2: DOWN and not responding (Not responding)",)
    batch_outcome = BatchOutcome(BatchState.ENDED, word="FAILED", nodes=("n2",), started=5)
    assert with_nodes(batch_outcome, nodes).state is BatchState.ENDED, "the node itself reported it, before"


def test_complaints_on_one_line() -> None:
    words = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified\n"
    assert (
        one_line(words)
        == "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified"
    )


def test_controllers_are_read_with_what_the_configuration_includes(tmp_path: Path) -> None:
    main = tmp_path / "slurm.conf"
    main.write_text("ClusterName=x\ninclude ports.conf\nSlurmctldHost=a(10.0.0.1)\n#SlurmctldHost=c\nslurmctldhost=b\n")
    (tmp_path / "ports.conf").write_text("SlurmctldPort=7000-7003 # several\n")
    assert controllers({"SLURM_CONF": str(main)}) == (("10.0.0.1", 7000), ("b", 7000))
    assert controllers({"SLURM_CONF": str(tmp_path / "none")}) == ()


async def test_a_refused_connection_is_an_answer_and_a_name_that_nobody_has_is_none() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    nowhere = ("no-such-host.invalid", 6817)
    assert await why_unreached([nowhere, ("127.0.0.1", port)]) is SubmitRefusal.SCHEDULER_DOWN
    assert await why_unreached([nowhere]) is SubmitRefusal.NETWORK_DOWN


async def test_a_host_that_takes_connections_has_a_scheduler_that_does_not_answer() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await why_unreached([("127.0.0.1", port)]) is SubmitRefusal.SCHEDULER_DOWN


def test_the_shim_takes_the_same_words_for_an_answer_that_may_have_been_lost() -> None:
    """The shim is a shell script and cannot read them here."""
    shim = (Path(__file__).parents[3] / "shim" / "forestay-shim").read_text()
    body = shim.partition("\nmay_be_queued() {")[2].partition("\n}\n")[0]
    surely_not, _, perhaps = body.partition("esac")
    phrases = {phrase.lower() for phrase in re.findall(r'\*"([^"]+)"\*', perhaps)}
    assert phrases == set(PERHAPS_SENT) - {"unspecified error"}
    # What Slurm says when nobody listens contains one of them.
    assert re.findall(r'\*"([^"]+)"\*', surely_not) == ["connect failure"]
    away = shim.partition("\nis_unavailable() {")[2].partition("\n}\n")[0]
    always = away.partition("asked:")[0]
    assert {phrase.lower() for phrase in re.findall(r'\*"([^"]+)"\*', always)} <= set(NOT_SENT)
