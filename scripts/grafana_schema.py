"""Holds the dashboard against Grafana's own published types: every field that it has must be one that Grafana knows, with a value that it takes.

Grafana publishes its types for TypeScript as the package @grafana/schema; the compiler of the pages judges. Run with `uv run just dashboard-check` (fetches a package).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BOARD = ROOT / "deploy/grafana/forestay.json"
TSC = ROOT / "web/node_modules/.bin/tsc"
_ENUM = re.compile(r"export declare enum (\w+) \{(.*?)\n\}", re.DOTALL)
_VALUE = re.compile(r"""=\s*('[^']*'|"[^"]*"|-?\d+)""")
_PANELS = {
    "row": "board.RowPanel",
    "stat": "Panel<stat.Options, Record<string, never>>",
    "timeseries": "Panel<series.Options, series.FieldConfig>",
}
_HEAD = """\
import type * as board from '@grafana/schema/veneer/dashboard.types';
import type * as stat from '@grafana/schema/raw/composable/stat/panelcfg/x/types.gen';
import type * as series from '@grafana/schema/raw/composable/timeseries/panelcfg/x/types.gen';
type Deep<T> = T extends object ? {[K in keyof T]?: Deep<T[K]>} : T;
// The package has no type for queries of Prometheus: these are the fields that we use of it.
type Query = {refId: string; expr: string; legendFormat?: string; instant?: boolean; range?: boolean; datasource?: {type: 'prometheus'; uid: string}};
type Panel<Options, Custom> = Omit<board.Panel, 'options' | 'targets' | 'fieldConfig'> & {
  options: Deep<Options>; targets: Query[]; fieldConfig: {defaults: Deep<Omit<board.FieldConfig, 'custom'>> & {custom?: Deep<Custom>}; overrides: board.FieldConfigSource['overrides']};
};
"""


def as_typescript(dashboard: dict[str, Any]) -> str:
    """One constant a panel, each of the type of its kind; a kind that is not known here fails."""
    rest = {name: value for name, value in dashboard.items() if name != "panels"}
    lines = [f"export const dashboard: Omit<board.Dashboard, 'panels'> = {json.dumps(rest)};"]
    lines += [
        f"export const panel{n}: {_PANELS[panel['type']]} = {json.dumps(panel)};"
        for n, panel in enumerate(dashboard["panels"])
    ]
    return _HEAD + "\n".join(lines) + "\n"


def flatten(types: Path) -> None:
    """JSON has the values of an enumeration and not its names: each becomes the union of its values."""
    for file in types.rglob("*.d.ts"):
        file.write_text(_ENUM.sub(_union, file.read_text()))


def _union(match: re.Match[str]) -> str:
    values = _VALUE.findall(re.sub(r"/\*.*?\*/", "", match[2], flags=re.DOTALL))
    return f"export type {match[1]} = {' | '.join(values)};"


def judge(dashboard: dict[str, Any], types: Path, folder: Path) -> str:
    """What the compiler finds wrong; empty: nothing."""
    (folder / "board.ts").write_text(as_typescript(dashboard))
    options = {
        "strict": True, "noEmit": True, "skipLibCheck": True, "target": "es2022", "module": "esnext", "moduleResolution": "bundler", "types": [],
        "paths": {"@grafana/schema": [f"{types}/index.d.ts"], "@grafana/schema/*": [f"{types}/*.d.ts"]},
    }  # fmt: skip
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": options, "files": ["board.ts"]}))
    done = subprocess.run([str(TSC), "--project", str(folder)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def fetch(version: str, folder: Path) -> Path:
    npm = shutil.which("npm") or sys.exit("npm is not on the path; use `uv run`")
    subprocess.run(
        [npm, "pack", "--silent", f"@grafana/schema@{version}"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package/dist/types"


def main() -> None:
    if not TSC.exists():
        sys.exit("the compiler is not there; `uv run just pages` brings it")
    dashboard = json.loads(BOARD.read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        version = os.environ["GRAFANA_SCHEMA_VERSION"]
        types = fetch(version, folder)
        flatten(types)
        if wrong := judge(dashboard, types, folder):
            sys.exit(wrong)
        # A check that can fail: an unknown field must be found.
        spoilt = json.loads(BOARD.read_text())
        next(panel for panel in spoilt["panels"] if panel["type"] == "stat")["options"]["colourMode"] = "value"
        if "colourMode" not in judge(spoilt, types, folder):
            sys.exit("a spoilt dashboard was not found out: the check is worth nothing")
    sys.stdout.write(f"{len(dashboard['panels'])} panels agree with the types of Grafana {version}\n")


if __name__ == "__main__":
    main()
