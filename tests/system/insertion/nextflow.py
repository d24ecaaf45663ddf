"""How the real Nextflow is called, from its own jars, which take minutes to fetch the first time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.system.insertion.shell import VERSIONS

OPENED = ["lang", "io", "nio", "net", "util", "util.concurrent.locks", "util.concurrent.atomic", "util.regex"]
MORE_OPENED = ["sun.nio.ch", "sun.nio.fs", "sun.net.www.protocol.http", "sun.net.www.protocol.https", "sun.net.www.protocol.ftp", "sun.net.www.protocol.file", "jdk.internal.misc", "jdk.internal.vm"]  # fmt: skip
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>nextflow-jars</artifactId><version>1</version>
<dependencies><dependency><groupId>io.nextflow</groupId><artifactId>nextflow</artifactId><version>{version}</version></dependency></dependencies></project>
"""
QUIET = {"NXF_OFFLINE": "true", "NXF_PLUGINS_DEFAULT": "false", "NXF_DISABLE_CHECK_LATEST": "true"}
"""Variables with which it asks nobody on the network."""


def nextflow_command() -> list[str]:
    """The command; its jars are kept."""
    version = VERSIONS["NEXTFLOW_VERSION"]
    usual = "/var/cache/forestay" if os.getuid() == 0 else str(Path.home() / ".cache" / "forestay")
    jars = Path(os.environ.get("FORESTAY_CACHE_DIR", usual)) / f"nextflow-{version}"
    if not jars.exists():
        draft = jars.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        (draft / "pom.xml").write_text(POM.format(version=version))
        words = ["mvn", "-q", "-B", "-f", str(draft), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*words, f"-DoutputDirectory={draft}"], check=True)
        draft.rename(jars)
    opened = [f"java.base/java.{name}" for name in OPENED] + [f"java.base/{name}" for name in MORE_OPENED]
    flags = [f"--add-opens={name}=ALL-UNNAMED" for name in opened]
    return ["java", *flags, "-Xmx400m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "nextflow.cli.Launcher"]
