"""Every text of the pages is there in both languages: those too that the compiler does not compare, such as the words for states and causes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
from tests.system.web.browser import ROOT

pytestmark = pytest.mark.pages

READ = """
const ts = require('typescript'), fs = require('fs');
const shown = (value) => typeof value === 'function' ? '(words)' : Array.isArray(value) ? value.map(shown)
  : value && typeof value === 'object' ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, shown(one)])) : value;
const told = {};
for (const language of ['en', 'zh']) {
  const text = fs.readFileSync(`src/texts/${language}.ts`, 'utf8');
  const exports = {};
  new Function('exports', ts.transpileModule(text, {compilerOptions: {module: 'commonjs', target: 'es2022'}}).outputText)(exports);
  told[language] = shown(exports[language]);
}
console.log(JSON.stringify(told));
"""
SAME = {"app.tenant", "language"}
"""Texts that may be alike in both."""
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def _flat(texts: Any, path: str = "") -> dict[str, str]:
    if isinstance(texts, str):
        return {path: texts}
    pairs = texts.items() if isinstance(texts, dict) else enumerate(texts)
    return {key: entry for name, value in pairs for key, entry in _flat(value, f"{path}.{name}".lstrip(".")).items()}


def test_every_text_is_there_in_both_languages() -> None:
    node = shutil.which("node")
    assert node is not None, "Node comes with the Python group `pages`"
    result = subprocess.run([node, "-e", READ], cwd=ROOT / "web", capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    texts = {language: _flat(load) for language, load in json.loads(result.stdout).items()}
    english, chinese = texts["en"], texts["zh"]
    assert len(english) > 300
    assert set(english) ^ set(chinese) == set()
    # What is no command and no unit was translated, and not only copied.
    copied = {
        key
        for key, words in chinese.items()
        if words == english[key]
        and words != "(words)"
        and not CHINESE.search(words)
        and not words.startswith("forestay")
    }
    assert copied <= SAME, sorted(copied)
