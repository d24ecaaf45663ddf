"""Runs every command of `forestay` in an installation without extras and prints what became of each, as JSON.

`python every_command.py` in an environment that has only the default packages; with `--hide` in any environment, in which
then everything else cannot be imported. Imports nothing of the tests, so that it runs from an installed wheel.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions, requires
from typing import Any

PARTS = ("forestay.client", "forestay.client.executor", "forestay.client.script", "forestay.flows", "forestay_pilot")
"""What users import and compute nodes run."""
ENDLESS = ("pilot", "watcher")
"""Run until they are stopped; the test starts the watcher itself."""
MORE = (
    ("rules", "check", "rules.yaml"),
    ("rules", "apply", "-f", "rules.yaml", "--patience", "0"),
    ("rules", "apply", "--starter", "--patience", "0"),
    ("submit", "--patience", "0", "--", "true"),
)
"""Further than the enumeration comes."""


def default_packages() -> set[str]:
    """The names of the packages that `pip install forestay` brings."""
    names, todo = set[str](), ["forestay"]
    while todo:
        name = todo.pop()
        if name in names:
            continue
        names.add(name)
        for requirement in requires(name) or ():
            wanted, _, marker = requirement.partition(";")
            if "extra" not in marker and not re.search(r"(python_version|sys_platform|platform_\w+)", marker):
                todo.append(_plain(re.split(r"[\s\[<>=!~]", wanted.strip())[0]))
    return names


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class _OnlyDefault(PathFinder):
    allowed: frozenset[str] = frozenset()

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if path is None and fullname not in cls.allowed and not fullname.startswith("_sysconfigdata"):
            return None
        return PathFinder.find_spec(fullname, path, target)


def hide_others() -> None:
    packages = default_packages()
    ours = {
        module
        for module, names in packages_distributions().items()
        if packages & {_plain(name) for name in names} and module != "google"
    }
    _OnlyDefault.allowed = frozenset(ours | sys.stdlib_module_names | {"forestay", "forestay_pilot"})
    sys.meta_path = [_OnlyDefault if finder is PathFinder else finder for finder in sys.meta_path]


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.commands:
        command = group.commands[name]
        if hasattr(command, "commands"):
            if name == "bpel":  # its sub-commands are in a package of its own, which has its own test
                continue
            yield from commands(command, (*words, name))
        else:
            yield (*words, name), command


def call(words: Sequence[str]) -> tuple[int, str, str]:
    """Exit code and both streams of one command."""
    from forestay.apps.entry import main

    out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.TextIOWrapper(io.BytesIO(), write_through=True)
    sys.argv = ["forestay", *words]
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            code = -1
            err.write(traceback.format_exc())
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1]


def arguments(command: Any) -> list[str]:
    """Something for everything that must be given."""
    words: list[str] = []
    for parameter in command.params:
        if not parameter.required:
            continue
        value = "30d" if parameter.name == "older_than" else "/dev/null"
        words += [parameter.opts[0], value] if parameter.opts[0].startswith("-") else [value]
    return words


def main() -> None:
    if "--hide" in sys.argv:
        hide_others()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {
            "HOME": folder, "XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "FORESTAY_SERVER": "http://127.0.0.1:9",
            "FORESTAY_TOKEN": "none", "FORESTAY_STATE": folder, "COLUMNS": "100",
        }  # fmt: skip
        for part in PARTS:
            importlib.import_module(part)
        from typer.main import get_command

        from forestay.apps.entry import app

        results = {}
        for words, command in list(commands(get_command(app))):
            described = call([*words, "--help"])
            name = " ".join(words)
            talks = any(param.name == "patience" for param in command.params)
            if name in ENDLESS:
                ran = (0, "", "")
            else:
                sys.stdin = open(os.devnull)  # noqa: SIM115 - until the process ends
                ran = call([*words, *(("--patience", "0") if talks else ()), *arguments(command)])
            results[name] = {"help": described[0], "code": ran[0], "out": ran[1], "err": ran[2] + described[2]}
        with open("rules.yaml", "w") as file:
            file.write(call(["rules", "starter"])[1])
        for words in MORE:
            ran = call(words)
            results[" ".join(words)] = {"help": 0, "code": ran[0], "out": ran[1], "err": ran[2]}
        json.dump(results, sys.__stdout__ or sys.stdout)


if __name__ == "__main__":
    main()
