"""`forestay classify` and `forestay packs`: causes are found without a server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.apps.cli.conftest import Shell

PATTERN = """
pack: mine
version: 1
patterns:
  - name: reactor-scram
    cause: policy
    retry: no
    confidence: 0.9
    weight: 80
    when: {lines: ['reactor scram in hall [0-9]+']}
    words: "The hall was closed."
    matches: [{exit_code: 3, log_tail: "step 4\\nreactor scram in hall 7"}]
    passes: [{exit_code: 3, log_tail: "reactor ready in hall 7"}]
"""


def answers(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_record_a_line_is_answered_a_line_in_the_same_order(forestay: Shell) -> None:
    text = (
        '{"exit_code": 139}\nno json\n{"exit_code": "0:24", "new_field": [1]}\n[]\n{"exit_code": 127, "signal": null}'
    )
    ended = forestay("classify", "--json", stdin=text)
    assert ended.code == 0
    first, wrong, second, none, third = answers(ended.out)
    assert [record["cause"] for record in (first, second, third)] == ["code", "time", "code"]
    assert "JSON" in str(wrong["error"])
    assert "error" in none
    assert first.keys() == {
        "cause",
        "confidence",
        "retry",
        "tries",
        "wait",
        "pattern",
        "lines",
        "words",
        "advice",
        "also",
    }
    assert (first["pattern"], first["retry"], first["lines"]) == ("exit-segmentation-fault", "no", [])
    assert "2 of 5 lines" in ended.err


def test_no_server_and_no_login_is_needed(forestay: Shell, tmp_path: Path) -> None:
    for name in ("FORESTAY_TOKEN", "FORESTAY_SERVER"):
        forestay.environment.pop(name, None)
    file = tmp_path / "failures.jsonl"
    file.write_text('{"exit_code": 139}\n')
    ended = forestay("classify", str(file))
    assert ended.code == 0
    assert "1: code" in ended.out
    assert "a retry will not help\n" in ended.out


def test_a_file_that_is_not_there_is_said(forestay: Shell, tmp_path: Path) -> None:
    ended = forestay("classify", str(tmp_path / "none.jsonl"))
    assert (ended.code, ended.out) == (2, "")
    assert "cannot be read" in ended.err


def test_nothing_in_is_nothing_out(forestay: Shell) -> None:
    ended = forestay("classify", "--json", stdin="")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_secrets_are_not_repeated(forestay: Shell, tmp_path: Path) -> None:
    packs = tmp_path / "packs"
    packs.mkdir()
    (packs / "mine.yaml").write_text(PATTERN)
    forestay.environment["FORESTAY_PACKS"] = str(packs)
    line = "reactor scram in hall 7 at https://ada:hunter2@plant.example/ API_TOKEN=s3cr3t-value"
    ended = forestay("classify", "--json", stdin=json.dumps({"exit_code": 3, "log_tail": line}))
    (answer,) = answers(ended.out)
    assert answer["pattern"] == "reactor-scram"
    assert "hunter2" not in ended.out
    assert "s3cr3t" not in ended.out
    assert "[redacted]" in ended.out


def test_packs_are_listed_shown_and_tested(forestay: Shell) -> None:
    assert "signals" in forestay("packs").out
    named = forestay("packs", "patterns", "--json").json["patterns"]
    assert {"name": "exit-kill", "cause": "memory"}.items() <= next(
        entry for entry in named if entry["name"] == "exit-kill"
    ).items()
    assert "SIGKILL" in forestay("packs", "show", "exit-kill").out
    assert forestay("packs", "show", "--json", "exit-kill").json["when"] == {"signal": ["SIGKILL"]}
    assert forestay("packs", "show", "no-such").code == 3
    assert forestay("packs", "sing").code == 2


def test_a_folder_of_ones_own_is_tested(forestay: Shell, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        (folder / "mine").mkdir(parents=True)
    (good / "mine" / "hall.yaml").write_text(PATTERN)
    ended = forestay("packs", "test", str(good))
    assert ended.code == 0, ended.out
    assert "1 patterns, 2 fixtures: good" in ended.out
    (bad / "mine" / "hall.yaml").write_text(
        PATTERN.replace("reactor ready", "reactor scram").replace("weight: 80", "weight: 800")
    )
    ended = forestay("packs", "test", str(bad))
    assert ended.code == 1
    assert "mine/hall.yaml:9:5: patterns[0].weight" in ended.out
    (bad / "mine" / "hall.yaml").write_text(PATTERN.replace("reactor ready", "reactor scram"))
    ended = forestay("packs", "test", str(bad))
    assert ended.code == 1
    assert "reactor-scram: pass 1 is matched" in ended.out
