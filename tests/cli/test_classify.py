"""`holdfast classify` and `holdfast packs`: causes are found without a server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Shell

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


def test_a_record_a_line_is_answered_a_line_in_the_same_order(holdfast: Shell) -> None:
    given = (
        '{"exit_code": 139}\nno json\n{"exit_code": "0:24", "new_field": [1]}\n[]\n{"exit_code": 127, "signal": null}'
    )
    ended = holdfast("classify", "--json", given=given)
    assert ended.code == 0
    first, wrong, second, none, third = answers(ended.out)
    assert [one["cause"] for one in (first, second, third)] == ["code", "time", "code"]
    assert "JSON" in str(wrong["error"])
    assert "error" in none
    assert first.keys() == {"cause", "confidence", "retry", "pattern", "lines", "words", "advice", "also"}
    assert (first["pattern"], first["retry"], first["lines"]) == ("exit-segmentation-fault", "no", [])
    assert "2 of 5 lines" in ended.err


def test_no_server_and_no_login_is_needed(holdfast: Shell, tmp_path: Path) -> None:
    for name in ("HOLDFAST_TOKEN", "HOLDFAST_SERVER"):
        holdfast.environment.pop(name, None)
    file = tmp_path / "failures.jsonl"
    file.write_text('{"exit_code": 139}\n')
    ended = holdfast("classify", str(file))
    assert ended.code == 0
    assert "1: code" in ended.out
    assert "trying again will not help" in ended.out


def test_a_file_that_is_not_there_is_said(holdfast: Shell, tmp_path: Path) -> None:
    ended = holdfast("classify", str(tmp_path / "none.jsonl"))
    assert (ended.code, ended.out) == (2, "")
    assert "cannot be read" in ended.err


def test_nothing_in_is_nothing_out(holdfast: Shell) -> None:
    ended = holdfast("classify", "--json", given="")
    assert (ended.code, ended.out, ended.err) == (0, "", "")


def test_secrets_are_not_repeated(holdfast: Shell, tmp_path: Path) -> None:
    packs = tmp_path / "packs"
    packs.mkdir()
    (packs / "mine.yaml").write_text(PATTERN)
    holdfast.environment["HOLDFAST_PACKS"] = str(packs)
    line = "reactor scram in hall 7 at https://ada:hunter2@plant.example/ API_TOKEN=s3cr3t-value"
    ended = holdfast("classify", "--json", given=json.dumps({"exit_code": 3, "log_tail": line}))
    (answer,) = answers(ended.out)
    assert answer["pattern"] == "reactor-scram"
    assert "hunter2" not in ended.out
    assert "s3cr3t" not in ended.out
    assert "[redacted]" in ended.out


def test_packs_are_listed_shown_and_tested(holdfast: Shell) -> None:
    assert "signals" in holdfast("packs").out
    named = holdfast("packs", "list", "--json").json["patterns"]
    assert {"name": "exit-kill", "cause": "memory"}.items() <= next(
        one for one in named if one["name"] == "exit-kill"
    ).items()
    assert "SIGKILL" in holdfast("packs", "show", "exit-kill").out
    assert holdfast("packs", "show", "--json", "exit-kill").json["when"] == {"signal": ["SIGKILL"]}
    assert holdfast("packs", "show", "no-such").code == 3
    assert holdfast("packs", "sing").code == 2


def test_a_folder_of_ones_own_is_tested(holdfast: Shell, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder in (good, bad):
        (folder / "mine").mkdir(parents=True)
    (good / "mine" / "hall.yaml").write_text(PATTERN)
    ended = holdfast("packs", "test", str(good))
    assert ended.code == 0, ended.out
    assert "1 patterns, 2 fixtures: good" in ended.out
    (bad / "mine" / "hall.yaml").write_text(
        PATTERN.replace("reactor ready", "reactor scram").replace("weight: 80", "weight: 800")
    )
    ended = holdfast("packs", "test", str(bad))
    assert ended.code == 1
    assert "mine/hall.yaml:9:5: patterns[0].weight" in ended.out
    (bad / "mine" / "hall.yaml").write_text(PATTERN.replace("reactor ready", "reactor scram"))
    ended = holdfast("packs", "test", str(bad))
    assert ended.code == 1
    assert "reactor-scram: pass 1 is matched" in ended.out
