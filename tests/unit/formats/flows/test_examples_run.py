"""The commands of the examples do what they say, run as plain processes on this machine."""

from __future__ import annotations

from pathlib import Path

from tests.unit.formats.flows.test_examples import example
from tests.unit.formats.local_jobs import LocalJobs

from forestay.domain.flows.commands import RunOutcome


def test_scatter_gather(tmp_path: Path) -> None:
    texts = tmp_path / "my texts"
    texts.mkdir()
    for name, words in {"a": "one two", "b": "three", "c d": "four five six"}.items():
        (texts / f"{name}.conf").write_text(words)
    local = LocalJobs(example("scatter-gather"), tmp_path / "jobs", {"folder": str(texts)})
    assert local.end.outputs == {"files": 3, "words": 6}, local.logs


def test_parameter_sweep(tmp_path: Path) -> None:
    local = LocalJobs(example("parameter-sweep"), tmp_path)
    assert local.end.outputs == {"best": 0.2}, local.logs
    assert local.ran == {"try": 100, "best": 1}


def test_nightly_etl(tmp_path: Path) -> None:
    store = tmp_path / "store"
    local = LocalJobs(example("nightly-etl"), tmp_path / "jobs", {"store": str(store)})
    assert local.end.outcome is RunOutcome.COMPLETED, local.logs
    assert len((store / "published" / "2026-01-31.csv").read_text().splitlines()) == 3000
    assert list((store / "staging").iterdir()) == []


def test_nightly_etl_is_undone(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "published").write_text("a file where a folder should be")
    local = LocalJobs(example("nightly-etl"), tmp_path / "jobs", {"store": str(store)})
    assert local.end.outcome is RunOutcome.FAILED
    assert local.end.stack == ()
    assert list((store / "staging").iterdir()) == []


def test_tier0(tmp_path: Path) -> None:
    incoming = tmp_path / "incoming"
    incoming.mkdir()
    for number in range(80):
        (incoming / f"{number}.raw").write_text(f"event {number}\n")
    local = LocalJobs(example("tier0"), tmp_path / "jobs", {"incoming": str(incoming)})
    assert local.end.outcome is RunOutcome.COMPLETED, local.logs
    assert sum(local.ran.values()) == 172


def test_until_converged(tmp_path: Path) -> None:
    local = LocalJobs(example("until-converged"), tmp_path)
    assert local.end.outputs == {"rounds": 7}, local.logs
