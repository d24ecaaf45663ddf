"""The conda recipe says of the package what pyproject.toml says. `just conda-recipe` renders it, too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]


def test_the_recipe_agrees_with_the_package() -> None:
    recipe = yaml.safe_load((ROOT / "deploy/conda/recipe.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert recipe["context"]["version"] == project["version"]
    entries = [f"{name} = {function}" for name, function in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == entries
    wanted = {f"python {project['requires-python']}", "__linux"}
    wanted |= {re.sub(r"(?=[<>=])", " ", line, count=1) for line in project["dependencies"]}
    assert set(recipe["requirements"]["run"]) == wanted
    assert recipe["about"]["license"] == project["license"]
