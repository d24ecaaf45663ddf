"""The files of deploy/: they parse, they name settings, commands and versions that exist, they agree with each other, and no secret is in them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from configparser import RawConfigParser
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.servers import SCRIPT, installed, versions

from forestay.apps.config.settings import Settings, load
from forestay.apps.entry import app
from forestay.client.api.sizing import OPEN_FILES, SPARE_FILES, Load, plan

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CHART = DEPLOY / "helm/forestay"
COMPOSE = DEPLOY / "compose/compose.yaml"
OWN = {"server", "reconciler", "orchestrator"}
NOT_SETTINGS = {"CLIENT_CONFIG", "CONFIG", "ENROLMENT", "IMAGE", "SHIM", "SHIM_SPOOL"}
"""Variables that are read by others than the processes' settings."""


@cache
def commands() -> set[str | None]:
    """The names of all commands of the command line."""
    return {command.name for command in typer.main.get_group(app).commands.values()}


def unit(path: Path) -> dict[str, list[tuple[str, str]]]:
    """The sections of a unit; names may come more than once in one."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            lines.append((name, value))
    return sections


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return read


def test_every_variable_and_setting_that_is_named_exists() -> None:
    known = {name.upper() for name in Settings.model_fields} | NOT_SETTINGS
    named: set[str] = set()
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix not in {".json", ".tgz"} and "prometheus" not in path.parts:
            named |= set(re.findall(r"FORESTAY_([A-Z_]+)", path.read_text()))
    assert len(named) > 8
    assert named - known == set()
    load({"FORESTAY_CONFIG": str(DEPLOY / "systemd/forestay.toml")})
    Settings.model_validate(yaml.safe_load((CHART / "values.yaml").read_text())["settings"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_closed_and_start_commands_that_exist(path: Path) -> None:
    service = unit(path)["Service"]
    settings = dict(service)
    words = settings["ExecStart"].split()
    assert words[0] in {"/opt/forestay/bin/forestay", "/opt/forestay/bin/forestay-pilot"}
    if words[0].endswith("forestay"):
        assert words[1] in commands()
    assert settings["NoNewPrivileges"] == "yes"
    assert settings["User"].startswith("forestay")
    assert settings["Restart"] == "always"
    assert settings["ProtectSystem"] in {"strict", "full"}
    if words[-1] in OWN:
        assert settings["ProtectSystem"] == "strict"
        assert settings["CapabilityBoundingSet"] == ""
        assert settings["SystemCallFilter"] == "@system-service"
    assert {name for name, _ in unit(path)["Install"]} == {"WantedBy"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """As they are, but for the programs, which must be there for it."""
    program = tmp_path / "forestay"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in UNITS:
        text = re.sub(r"/opt/forestay/bin/forestay(-pilot)?\b", str(program), path.read_text())
        (tmp_path / path.name.replace("@", "@x")).write_text(text)
    made = sorted(map(str, tmp_path.glob("*.service")))
    assert len(made) == len(UNITS)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *made], capture_output=True, text=True
    )
    own = [line for line in done.stderr.splitlines() if "forestay" in line and "Failed to" not in line.split(":")[-1]]
    assert done.returncode == 0, done.stderr
    assert own == []


def test_compose_has_the_three_profiles_and_its_parts_fit() -> None:
    read = compose()
    services = read["services"]
    profiles = {name: set(service["profiles"]) for name, service in services.items()}
    assert set().union(*profiles.values()) == {"laptop", "site", "fleet"}
    for name, service in services.items():
        for needed in service.get("depends_on", ()):
            assert profiles[name] <= profiles[needed], f"{name} needs {needed}"
        for secret in service.get("secrets", ()):
            assert secret in read["secrets"]
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in read["volumes"]
        assert ":latest" not in service["image"]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "open to the world only by somebody's own decision"
        if "command" in service:
            assert service["command"][0] in commands()
    for profile, wanted in (("site", OWN), ("fleet", {f"fleet-{name}" for name in OWN})):
        assert wanted <= {name for name, its in profiles.items() if profile in its}
    environment = services["fleet-server"]["environment"]
    hosts = environment["FORESTAY_STORE"].removeprefix("opensearch://").partition("/")[0].split(",")
    assert {host.partition(":")[0] for host in hosts} == {name for name in services if name.startswith("opensearch")}
    assert services["server"]["environment"]["FORESTAY_TEMPORAL"] == "temporal:7233"


def test_versions_and_ports_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    services = compose()["services"]
    assert chart["appVersion"] == project
    assert services["server"]["image"].removesuffix("}").rpartition(":")[2] == project
    assert f"image.version {project}" in (DEPLOY / "apptainer/pilot.def").read_text()
    assert services["opensearch-1"]["image"].rpartition(":")[2] == versions()["OPENSEARCH_VERSION"]
    assert f"uv=={versions()['UV_VERSION']}" in (DEPLOY / "Containerfile").read_text()
    port = Settings.model_fields["port"].default
    assert {values["server"]["port"], values["service"]["port"]} == {port}
    assert f"EXPOSE {port}" in (DEPLOY / "Containerfile").read_text()
    assert tomllib.loads((DEPLOY / "systemd/forestay.toml").read_text())["port"] == port


def test_apptainer_definition_has_its_parts_and_options_that_exist() -> None:
    text = (DEPLOY / "apptainer/pilot.def").read_text()
    assert set(re.findall(r"^%(\w+)", text, re.M)) == {"files", "post", "environment", "runscript", "test", "labels"}
    assert re.search(r"^Bootstrap: docker$", text, re.M)
    assert "dist/forestay-pilot.pyz" in text
    assert "dist" in (ROOT / "scripts/build_pilot.py").read_text()
    pilot = DEPLOY / "systemd/forestay-pilot@.service"
    from forestay_pilot.__main__ import main

    with pytest.raises(SystemExit):
        main(["--help"])
    returned_text = (ROOT / "docs/reference/pilot.md").read_text()
    for option in re.findall(r"--[a-z-]+", dict(unit(pilot)["Service"])["ExecStart"]):
        assert option in returned_text


def test_images_are_built_on_one_base_that_is_pinned_by_digest() -> None:
    named = [
        re.findall(r"(?:ARG BASE=|^From: )(\S+)", (DEPLOY / name).read_text(), re.M)
        for name in ("Containerfile", "apptainer/pilot.def")
    ]
    assert named[0] == named[1]
    assert re.fullmatch(r"docker\.io/library/python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", named[0][0])
    assert re.findall(r"^FROM (\S+)", (DEPLOY / "Containerfile").read_text(), re.M) == ["${BASE}", "${BASE}"]


SECRET = re.compile(
    r"(?i)(password|passwd|secret_key|access_key|token|pwd)\s*[:=]\s*['\"]?(?!\$|\{|/|env:|file:)[A-Za-z0-9+/]{6,}"
)
IN_URL = re.compile(r"://[^/\s:@]+:(?!PASSWORD)[^/\s@]+@")


def test_no_secret_is_in_any_of_them() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".tgz":
            text = path.read_text()
            assert SECRET.search(text) is None, (path, SECRET.search(text))
            assert IN_URL.search(text) is None, path
    assert SECRET.search("password: hunter22")
    assert IN_URL.search("postgresql://forestay:hunter22@db/x")


def helm() -> Path:
    """Where `scripts/servers install helm` puts it."""
    if folder := installed(f"helm-{versions()['HELM_VERSION']}", "helm"):
        return folder / "helm"
    if program := shutil.which("helm"):
        return Path(program)
    pytest.skip(f"helm is not here: {SCRIPT} install helm")


TEMPLATE = ("template", "site", "--kube-version", "1.31.0")


def drawn(folder: Path, *words: str) -> list[dict[str, Any]]:
    """The chart's manifests. Its dependencies are left out: they come over the network, and are off by default."""
    target = folder / "forestay"
    if not target.exists():
        shutil.copytree(CHART, target)
        chart = yaml.safe_load((target / "Chart.yaml").read_text())
        assert {dependency["name"] for dependency in chart.pop("dependencies")} == {"temporal", "opensearch"}
        (target / "Chart.yaml").write_text(yaml.safe_dump(chart))
    done = subprocess.run([helm(), *TEMPLATE, target, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [entry for entry in yaml.safe_load_all(done.stdout) if entry]


def test_chart_is_clean_and_draws_what_is_meant(tmp_path: Path) -> None:
    made = drawn(tmp_path)
    done = subprocess.run(
        [helm(), "lint", "--strict", "--kube-version", "1.31.0", tmp_path / "forestay"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    by = {(record["kind"], record["metadata"]["name"]): record for record in made}
    assert {name for kind, name in by if kind == "Deployment"} == {f"site-{name}" for name in OWN}
    settings = tomllib.loads(by["ConfigMap", "site-settings"]["data"]["forestay.toml"])
    assert Settings.model_validate(settings).lease == 600
    for kind in OWN:
        pod = by["Deployment", f"site-{kind}"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert container["args"] == [kind]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        names = {entry["name"] for entry in container["env"]}
        assert {name.removeprefix("FORESTAY_").lower() for name in names} <= {*Settings.model_fields, "config"}
        (store,) = [entry for entry in container["env"] if entry["name"] == "FORESTAY_STORE"]
        assert store["valueFrom"]["secretKeyRef"]["name"] == "forestay-store"
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {volumemount["name"] for volumemount in container["volumeMounts"]} <= volumes
    picked = by["Service", "site"]["spec"]["selector"]
    labels = by["Deployment", "site-server"]["spec"]["template"]["metadata"]["labels"]
    assert picked.items() <= labels.items()
    more = tmp_path / "mine.yaml"
    more.write_text(
        "peerKey: {existingSecret: theirs}\nvolumes: [{name: shared, nfs: {server: nas, path: /flows}}]\n"
        "volumeMounts: [{name: shared, mountPath: /shared}]\n"
    )
    for record in drawn(tmp_path, "-f", str(more)):
        if record["kind"] == "Deployment":
            pod = record["spec"]["template"]["spec"]
            (container,), (first,) = pod["containers"], pod["initContainers"]
            assert first["command"][-2:] == ["/secret/signing-key", "/secret/peer-key"]
            assert {"name": "FORESTAY_PEER_KEY", "value": "/run/forestay/peer-key"} in container["env"]
            assert {"name": "shared", "mountPath": "/shared"} in container["volumeMounts"]
            (keys,) = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "keys"]
            assert [source["secret"]["name"] for source in keys["sources"]] == ["forestay-signing-key", "theirs"]
            assert "shared" in {volume["name"] for volume in pod["volumes"]}
    without = drawn(tmp_path, "--set", "orchestrator.replicas=0")
    assert "site-orchestrator" not in {record["metadata"]["name"] for record in without}
    target = tmp_path / "forestay"
    for wrong in ("settings.store=x", "ingress.enabled=true", "reconciler.replicas=0", "store.existingSecret="):
        refused = subprocess.run([helm(), *TEMPLATE, target, "--set", wrong], capture_output=True, text=True)
        assert refused.returncode != 0, wrong
    assert json.loads((CHART / "values.schema.json").read_text())


def test_sysusers_has_every_user_of_the_units() -> None:
    users = re.findall(r"^u (\S+)", (DEPLOY / "systemd/forestay.sysusers").read_text(), re.M)
    assert {dict(unit(path)["Service"])["User"] for path in UNITS} == set(users)
    reader = RawConfigParser(strict=False)
    for path in UNITS:
        reader.read_string(path.read_text())


@pytest.mark.finding("F-F1")
def test_opensearch_is_deployed_with_the_block_that_was_decided_on() -> None:
    """Decision 11 measured `all` as harmful: each node drops its shards when the manager is gone, and writes stall for longer."""
    decision = (ROOT / "docs/decisions/0011-require-opensearch-3-7-and-fixed-durability-settings.md").read_text()
    decided = re.search(r"\| `cluster\.no_cluster_manager_block` \| `(\w+)` \|", decision)
    assert decided is not None
    chart = yaml.safe_load((CHART / "values.yaml").read_text())["opensearch"]["config"]["opensearch.yml"]
    named = {
        "compose": compose()["x-opensearch"]["environment"]["cluster.no_cluster_manager_block"],
        "chart": yaml.safe_load(chart)["cluster.no_cluster_manager_block"],
    }
    for page in sorted((ROOT / "docs/how-to").glob("*.md")):
        for value in re.findall(r"no_cluster_manager_block: (\w+)", page.read_text()):
            named[page.name] = value
    assert "three-nodes.md" in named
    assert set(named.values()) == {decided[1]} == {"write"}, named


@pytest.mark.finding("F-F2")
@pytest.mark.parametrize("pilots", [1_000, 40_000, 60_000, 100_000, 1_000_000])
def test_a_server_may_open_as_many_files_as_its_plan_needs_with_one_server_down(pilots: int) -> None:
    limits = {
        "unit": int(dict(unit(DEPLOY / "systemd/forestay-server.service")["Service"])["LimitNOFILE"]),
        "compose": compose()["services"]["server"]["ulimits"]["nofile"]["soft"],
    }
    assert set(limits.values()) == {OPEN_FILES}, "doctor speaks of the limit that is deployed"
    assert str(OPEN_FILES) in (CHART / "templates/NOTES.txt").read_text()
    needed = plan(Load(1e7, pilots)).sockets_one_down + SPARE_FILES
    assert min(limits.values()) >= needed


@pytest.mark.finding("F-C10")
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_the_pilots_unit_is_closed_as_far_as_jobs_can_live_with_it() -> None:
    path = DEPLOY / "systemd/forestay-pilot@.service"
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
    text = subprocess.run(words, check=False, capture_output=True, text=True).stdout
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
    assert level is not None, text
    assert float(level[1]) <= 4.0


@pytest.mark.finding("F-C2")
def test_no_unit_keeps_a_pilots_token_where_its_user_can_read_it() -> None:
    service = dict(unit(DEPLOY / "systemd/forestay-pilot@.service")["Service"])
    assert "LoadCredential" not in service
    assert service["StandardInput"].startswith("file:/etc/forestay/")
    assert "--token-file -" in service["ExecStart"]
