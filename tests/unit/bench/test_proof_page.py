"""The page "Proof" is what the results say; `just proof` writes it, and refuses what was changed by hand or measured otherwise."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import harness
from bench.harness import Run, digest, keep, paired
from bench.report import results, twelve
from bench.report.__main__ import main, wanted
from bench.report.results import COMMANDS, SpoiltResultError, counting, executions, refusal
from bench.report.twelve import TWELVE, verdict

ROOT = Path(__file__).parents[3]
PROOF = ROOT / "docs" / "reference" / "proof.md"
COMMAND = COMMANDS["durable"]


def test_the_page_and_its_pictures_are_what_the_results_say() -> None:
    old = [path.name for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    assert not old, "run `just proof`"


def runs(ours: float, bare: float, pairs: int = 7) -> list[Run]:
    """Runs of an arm so much faster than another."""
    return [
        Run(arm, 1000, 1000 / (rate * (1 + pair / 100)), {"server": 1.0}, 0.0, 1.0)
        for pair in range(pairs)
        for arm, rate in (("forestay", ours), ("bare", bare))
    ]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Keeps an execution of benchmark 1, of a clean tree at this commit unless it says otherwise."""
    monkeypatch.delenv("BENCH_SMOKE", raising=False)
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=9", "HEAD"], check=True, capture_output=True)
    commit = head.stdout.decode().strip()[:9]

    def keeps(ours: float = 4000, **known: object) -> Path:
        given = {"command": COMMAND, "commit": commit} | known
        return keep("durable", runs(ours, 100), {"forestay over bare": paired([2.0], [1.0])}, given)

    return keeps


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def durable() -> tuple[str, str]:
    """What the page says of benchmark 1: figure and verdict."""
    now = counting("durable")
    text, reached = twelve.TWELVE[0].read(now)
    return text, verdict(now[0], reached=reached)


def test_a_ratio_is_computed_and_never_kept(kept: Callable[..., Path]) -> None:
    document = json.loads(kept().read_text())
    assert document["figures"] == {}
    assert durable() == ("40.00 (40.00 to 40.00, 7 pairs) × bare Temporal activities", "yes")


def test_a_ratio_that_is_written_into_a_result_fails_the_page(kept: Callable[..., Path]) -> None:
    path = kept()

    def add(document: dict[str, Any]) -> None:
        document["figures"]["forestay over bare"] = {"median": 99.0, "low": 98.0, "high": 100.0, "pairs": 7}
        document["digest"] = digest(document)

    changed(path, add)
    with pytest.raises(SpoiltResultError, match="which the report computes from the runs"):
        executions("durable")


def test_a_run_that_is_changed_by_hand_fails_the_page(
    kept: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kept()
    changed(path, lambda document: document["runs"][0].update(seconds=0.001))
    with pytest.raises(SpoiltResultError, match="changed by hand"):
        executions("durable")
    monkeypatch.setattr("sys.argv", ["report", "--check"])
    assert main() == 1, "`just proof` says what is wrong and fails"


def test_a_ratio_that_is_changed_on_the_page_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in wanted():
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.setattr("bench.report.__main__.PLACE", tmp_path)
    monkeypatch.setattr("sys.argv", ["report", "--check"])
    assert main() == 0
    page = tmp_path / "proof.md"
    ratio = re.search(r"\d+\.\d\d \(\d+\.\d\d to", page.read_text())
    assert ratio is not None
    page.write_text(page.read_text().replace(ratio[0], f"9{ratio[0]}", 1))
    assert main() == 1
    assert "proof.md: not what the results say" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"command": "just bench durable --rounds 3"}, "command was `just bench durable --rounds 3`"),
        ({"command": ""}, "command not kept"),
        ({"commit": ""}, "commit not kept"),
        ({"commit": "0123456789"}, "commit not in this history"),
    ],
)
def test_what_was_measured_otherwise_reaches_nothing(
    kept: Callable[..., Path], known: dict[str, str], why: str
) -> None:
    kept(**known)
    assert refusal(counting("durable")[0]) == why
    assert durable()[1] == "not current"
    kept(ours=1000, **known)
    assert durable()[1] == "no, measured before"


def test_a_tree_with_changes_reaches_nothing(kept: Callable[..., Path]) -> None:
    path = kept()
    commit = json.loads(path.read_text())["commit"]
    kept(commit=f"{commit}+")
    assert refusal(counting("durable")[0]) == "files differed from it"
    assert durable()[1] == "not current"


def test_the_digest_is_that_of_the_file_as_it_is_read() -> None:
    execution = {"figures": {10_000: 1, 9: 2}}
    assert digest(execution) == digest(json.loads(json.dumps(execution)))


def test_a_result_without_a_digest_reaches_nothing(kept: Callable[..., Path]) -> None:
    changed(kept(), lambda document: document.pop("digest"))
    assert (refusal(counting("durable")[0]), durable()[1]) == ("no digest", "not current")


def test_every_execution_of_a_commit_is_kept_and_the_worst_counts(kept: Callable[..., Path]) -> None:
    kept(ours=2900)
    kept(ours=4000)
    assert [len(executions("durable")), len(counting("durable"))] == [2, 2]
    assert durable() == ("34.50 (29.00 to 40.00, 14 pairs) × bare Temporal activities", "no")


def test_executions_of_another_commit_are_replaced(kept: Callable[..., Path]) -> None:
    kept(commit="0123456789")
    kept()
    assert [len(executions("durable")), durable()[1]] == [1, "yes"]


def test_a_bundled_figure_alone_does_not_reach_the_goal_of_executors() -> None:
    text, reached = TWELVE[1].read([executed(bundled=8000, retried=400)])
    assert not reached
    assert text.startswith("one call a job: 0.50 (0.50 to 0.50, 5 pairs) × Parsl HTEX")


def test_one_call_a_job_reaches_it_and_one_request_a_call_is_told_beside() -> None:
    text, reached = TWELVE[1].read([executed(bundled=8000, retried=900)])
    assert reached
    assert "one request a call too: 0.10 (0.10 to 0.10, 5 pairs) × Parsl HTEX" in text


def executed(*, bundled: int, retried: int) -> dict[str, Any]:
    """An execution of the benchmark of executors with these calls a second of ours."""
    calls = {"forestay": bundled, "forestay on postgres": bundled, "forestay, retried": retried}
    calls |= {"forestay, one each": 80, "parsl": 800, "dask": 600, "celery": 500, "dbos": 300}
    return {
        "runs": [
            {"arm": arm, "operations": 1000, "seconds": 1000 / rate, "cpu": {}, "load": 1.0, "facts": {}}
            for arm, rate in calls.items()
            for _ in range(5)
        ]
    }


def test_every_comparison_says_what_each_arm_does_per_call() -> None:
    page = PROOF.read_text()
    for benchmark in TWELVE:
        assert benchmark.arms.endswith("."), benchmark.name
        assert benchmark.arms in page


def test_the_claims_of_the_readme_link_to_their_proof() -> None:
    readme = (ROOT / "README.md").read_text()
    guarantees = readme.split("What it guarantees")[1].split("What it does not promise:")[0]
    claims = [line for line in guarantees.splitlines() if line.startswith("- ")]
    first = readme.split("What it does that other systems do not:")[1].split("What it guarantees")[0]
    claims += [line for line in first.splitlines() if line.startswith("- ")]
    assert len(claims) == 6
    anchors = {re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in PROOF.read_text().splitlines() if line.startswith("#")}  # fmt: skip
    for claim in claims:
        link = re.search(
            r"\]\(docs/(?:reference/proof|explanation/papers|reference/failure-matrix)\.md(?:#([a-z0-9-]+))?\)", claim
        )
        assert link, claim
        assert link[1] is None or "proof" not in link[0] or link[1] in anchors, link[0]
