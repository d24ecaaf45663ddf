"""Packs in folders: those shipped with Forestay, and those of a site.

A folder of packs contains one folder per pack, and that one file per area: ``packs/base/memory.yaml``. In a checkout the shipped packs are at its root; in an
installed Forestay they are inside the package.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

from forestay.domain.exceptions.causes.classify import Classifier
from forestay.formats.flows.yaml_flow import TextProblem
from forestay.formats.rules.pack_yaml import PackPattern, PackText, failed_fixtures, read_pack_text
from forestay.formats.rules.wording_file import shipped_wording
from forestay.formats.text.shipped_folder import shipped_folder
from forestay.formats.text.yaml_text import MAX_BYTES

FOLDERS = "FORESTAY_PACKS"
"""The environment variable for further folders, separated by colons."""


@dataclass(frozen=True, slots=True)
class PackFile:
    """One file of a pack."""

    file: str
    read: PackText


@dataclass(frozen=True, slots=True)
class Packs:
    """All files of some folders."""

    files: tuple[PackFile, ...]
    problems: tuple[tuple[str, TextProblem], ...]
    """The files with errors, each with the error."""

    @property
    def patterns(self) -> tuple[PackPattern, ...]:
        return tuple(pattern for file in self.files for pattern in file.read.patterns)

    def classifier(self) -> Classifier:
        """All patterns, and the second classifier that comes with Forestay."""
        return Classifier((pack_pattern.pattern for pack_pattern in self.patterns), shipped_wording())

    def failures(self, of: Sequence[PackPattern] | None = None) -> list[str]:
        """The fixtures that fail."""
        classifier = self.classifier()
        return [
            text for pattern in (self.patterns if of is None else of) for text in failed_fixtures(pattern, classifier)
        ]


def shipped() -> Traversable:
    """The folder of the packs that come with Forestay."""
    return shipped_folder("packs")


def folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """The folders of a site's own packs."""
    return [Path(part).expanduser() for part in environment.get(FOLDERS, "").split(":") if part]


def read_packs(more: Iterable[Path] = (), *, with_shipped: bool = True) -> Packs:
    """Read all files; a duplicate pattern is an error of the second one."""
    roots: list[Traversable] = [shipped()] if with_shipped else []
    found_files: list[PackFile] = []
    problems: list[tuple[str, TextProblem]] = []
    names: dict[str, str] = {}
    for root in (*roots, *more):
        for shown, source in _files(root):
            try:
                text = source.read_text(encoding="utf-8")[: MAX_BYTES + 1]
            except (OSError, UnicodeDecodeError) as error:
                problems.append((shown, TextProblem(1, 1, "", f"this file cannot be read: {error}")))
                continue
            read = read_pack_text(text)
            problems += [(shown, problem) for problem in read.problems]
            for pack_pattern in read.patterns:
                first = names.setdefault(pack_pattern.pattern.name, shown)
                if first != shown:
                    problems.append(
                        (
                            shown,
                            TextProblem(
                                pack_pattern.line,
                                1,
                                "name",
                                f"there is a pattern {pack_pattern.pattern.name!r} in {first} already",
                            ),
                        )
                    )
            found_files.append(PackFile(shown, read))
    return Packs(tuple(found_files), tuple(problems))


@cache
def shipped_packs() -> Packs:
    """The packs that come with Forestay, read once."""
    return read_packs()


def _files(root: Traversable) -> list[tuple[str, Traversable]]:
    """The YAML files of a folder and of the folders in it, in the order of their names."""
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not a folder")
    matching_files = []
    for path in sorted(root.iterdir(), key=lambda other_path: other_path.name):
        if path.is_dir():
            matching_files += [
                (f"{path.name}/{name.name}", name)
                for name in sorted(path.iterdir(), key=lambda name: name.name)
                if _is_pack(name.name)
            ]
        elif _is_pack(path.name):
            matching_files.append((path.name, path))
    return matching_files


def _is_pack(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) and not name.startswith(".")
