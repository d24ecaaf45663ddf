"""Steps in words and amounts with their units, as the pages' own code makes them: for every action that a playbook can have, in both languages."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.system.web.browser import ROOT

from forestay.domain.playbooks.action import ActionKind
from forestay.domain.playbooks.playbook import step_as_plain, step_from_plain

pytestmark = pytest.mark.pages

GIB = 1 << 30
# The pages' modules, compiled as they are asked for; the asked calls come on standard input.
CALL = """
const ts = require('typescript'), fs = require('fs');
for (const end of ['.ts', '.tsx']) require.extensions[end] = (module, name) => module._compile(
  ts.transpileModule(fs.readFileSync(name, 'utf8'), {compilerOptions: {module: 'commonjs', target: 'es2022', jsx: 'react-jsx'}}).outputText, name);
const here = process.cwd() + '/src/';
const units = require(here + 'parts/units.ts'), words = require(here + 'parts/step-words.ts');
const texts = {en: require(here + 'texts/en.ts').en, zh: require(here + 'texts/zh.ts').zh};
const palette = require(here + 'pages/rules/palette.ts').PALETTE;
const calls = {
  words: (language, step) => words.stepWords(texts[language], step), written: (step, path, value) => words.withValue(step, path.split('.'), value),
  bytes: units.bytes, exact: units.exact, read: units.read, palette: () => palette,
};
console.log(JSON.stringify(JSON.parse(fs.readFileSync(0, 'utf8')).map(([name, ...args]) => calls[name](...args))));
"""
STEPS: Sequence[tuple[Mapping[str, Any], str]] = (
    ({"action": "resubmit"}, "Run again"),
    ({"action": "resubmit", "how": "changed", "needs": {"memory": {"factor": 2, "at_most": 64 * GIB}}}, "Run again with 2 × memory, at most 64 GiB"),
    ({"action": "resubmit", "how": "changed", "needs": {"wall": {"to": 7200}, "cpus": {"factor": 1.5}}, "wait": 600}, "Run again with 2 h time, 1.5 × cores after 10 min"),
    ({"action": "resubmit", "how": "other-domain", "domain": "north"}, "Send it to north"),
    ({"action": "retry"}, "Try again after the wait of the retry policy"),
    ({"action": "avoid-host", "seconds": 3600, "scope": "site"}, "Avoid this site for 1 h"),
    ({"action": "restage", "how": "changed", "buffer": 1 << 20, "timeout": 90}, "Transfer its files again with Buffer 1 MiB, Time limit 90 s"),
    ({"action": "restage", "how": "other-replica"}, "Transfer its files from another replica"),
    ({"action": "remake"}, "Make the lost input again"),
    ({"action": "free-space", "size": 5 * GIB}, "Free 5 GiB where its files go"),
    ({"action": "reserve-space", "size": 5 * GIB, "seconds": 86_400}, "Reserve 5 GiB where its files go for 1 d"),
    ({"action": "repoll"}, "Answer polls with its next attempt"),
    ({"action": "reregister"}, "Register its next attempt with who waits for it"),
    ({"action": "rollback"}, "Roll back the run"),
    ({"action": "notify", "text": "use {memory}", "to": ["ada"]}, "Notify ada: use {memory}"),
    ({"action": "hold", "target": "run", "reason": "look"}, "Hold the run for a person: look"),
    ({"action": "suspend", "target": "all-runs", "when_refused": "go-on"}, "Suspend all runs of this flow; go on if it is refused"),
    ({"action": "remove", "target": "task"}, "Remove the task"),
    ({"action": "continue", "target": "ancestors"}, "Continue the run and those above it"),
    ({"action": "restart", "target": "task"}, "Restart the task"),
    ({"action": "force-complete", "target": "job"}, "Count the job as completed"),
    ({"action": "force-fail"}, "Count it as failed"),
    ({"action": "compensate", "worklets": ["a" * 64, {"flow": "b" * 64}]}, "Run worklets and wait for them: aaaaaaaaaaaa, bbbbbbbbbbbb"),
    ({"action": "select", "worklet": "c" * 64}, "Run the worklet cccccccccccc instead"),
)  # fmt: skip


def call(*calls: Sequence[Any]) -> list[Any]:
    node = shutil.which("node")
    assert node is not None, "Node comes with the Python group `pages`"
    asked = json.dumps(calls)
    result = subprocess.run(
        [node, "-e", CALL], cwd=ROOT / "web", input=asked, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    answers: list[Any] = json.loads(result.stdout)
    return answers


def test_every_action_has_words_in_both_languages() -> None:
    assert {step["action"] for step, _ in STEPS} == {kind.value for kind in ActionKind}
    english = call(*(("words", "en", step) for step, _ in STEPS))
    assert english == [words for _, words in STEPS]
    chinese = call(*(("words", "zh", step) for step, _ in STEPS))
    assert not [words for words in chinese if "{" in words.replace("{memory}", "")], chinese
    assert all(any("\u4e00" <= letter <= "\u9fff" for letter in words) for words in chinese)


def test_what_can_be_drawn_is_a_step_and_its_values_can_be_written_over() -> None:
    (palette,) = call(("palette",))
    for step in palette:
        # What is left out when it is written down is a default.
        assert step_as_plain(step_from_plain(step)).items() <= step.items()
    step = next(step for step in palette if "needs" in step)
    (changed,) = call(("written", step, "needs.memory.at_most", 8 * GIB))
    assert changed["needs"]["memory"] == {"factor": 2, "at_most": 8 * GIB}


def test_amounts_are_written_with_their_units_and_read_back() -> None:
    shown = call(*(("bytes", value) for value in (0, 1023, 4 * GIB, 15 * GIB // 10, 157_000_000, GIB - 1, 3 << 40)))
    assert shown == ["0 B", "1023 B", "4.0 GiB", "1.5 GiB", "150 MiB", "1.0 GiB", "3.0 TiB"]
    for unit, value, text in (("bytes", 64 * GIB, "64 GiB"), ("bytes", 1500, "1500 B"), ("seconds", 5400, "90 min"), ("seconds", 604_800, "7 d"), ("seconds", 45, "45 s"), ("number", 1.5, "1.5")):  # fmt: skip
        assert call(("exact", unit, value), ("read", unit, text)) == [text, value]
    assert call(("read", "bytes", "1.5g"), ("read", "bytes", "64"), ("read", "seconds", "soon"), ("read", "number", "2x")) == [
        1.5 * GIB, None, None, None,
    ]  # fmt: skip
