"""The settings of a site agent: the page for operators shows a file that is right, and names every setting."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from forestay.apps.compose.site import pilot_command
from forestay.apps.config.site_settings import (
    KubernetesTable,
    NodesTable,
    PaceTable,
    PilotTable,
    SiteSettings,
    SizeTable,
    UsersTable,
    load_site,
    read_site,
)
from forestay.domain.jobs.resources import Resources
from forestay.ports.errors import Permanent

PAGE = Path(__file__).parents[3] / "docs/how-to/site-agent.md"
OWN = {"run_as": "submitter", "program": "/usr/libexec/forestay-pilot.pyz"}
NODES_PAGE = Path(__file__).parents[3] / "docs/how-to/several-nodes.md"
CLOUD_PAGE = Path(__file__).parents[3] / "docs/how-to/kubernetes.md"
CLOUD: dict[str, object] = {"batch": "kubernetes", "kubernetes": {"image": "registry.example.org/pilot:1"}}
WIDE: list[dict[str, object]] = [{"nodes": 2, "cpus": 4, "memory": "1 GiB", "wall": "1 h"}]
RANKS = {"work": "/shared/ranks"}
SHOWN = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]


def test_the_file_that_is_shown_to_operators_is_right(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(SHOWN)
    settings = load_site(file)
    standard, large = settings.policy.sizes
    assert (standard.slots, standard.offers.cpus, standard.offers.wall) == (4, 4, 4 * 3600 - 60)
    assert standard.at_once(Resources(cpus=1, memory=4 << 30)) == 2
    assert large.slots == 32
    assert settings.policy.thresholds.min_idle == 2


def test_the_file_that_is_shown_for_kubernetes_is_right(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(re.findall(r"```toml\n(.*?)```", CLOUD_PAGE.read_text(), re.DOTALL)[0])
    settings = load_site(file)
    assert settings.kubernetes is not None
    assert settings.kubernetes.volumes[0].claim == "outputs"
    assert settings.kubernetes.tolerations[0].operator == "Exists"
    assert settings.sizes[1].image == "registry.example.org/analysis-cuda:3"


def test_the_settings_that_are_shown_for_several_nodes_are_right() -> None:
    shown = re.findall(r"```toml\n(.*?)```", NODES_PAGE.read_text(), re.DOTALL)[0]
    settings = read_site(tomllib.loads(SHOWN) | tomllib.loads(shown), "site.toml")
    (size,) = settings.policy.sizes
    assert (size.slots, size.offers.nodes, size.offers.cpus) == (1, 4, 32)
    assert size.at_once(Resources(cpus=2, nodes=4)) == 1
    assert size.at_once(Resources(cpus=2)) == 0
    assert settings.nodes is not None
    words = pilot_command(settings, settings.sizes[0], Path("/p.pyz"), "l1", "")
    assert words[words.index("--nodes-launcher") + 1] == json.dumps(settings.nodes.launcher)
    assert words[words.index("--work") + 1] == "/shared/forestay/ranks"


@pytest.mark.parametrize(
    ("table", "prefix"),
    [
        (SiteSettings, ""),
        (PaceTable, "pace."),
        (PilotTable, "pilot."),
        (SizeTable, "sizes."),
        (UsersTable, "users."),
        (KubernetesTable, "kubernetes."),
        (NodesTable, "nodes."),
    ],
)
def test_every_setting_is_on_the_page(table: type[BaseModel], prefix: str) -> None:
    text = PAGE.read_text().split("## All settings")[1]
    tables = {"nodes", "pace", "pilot", "users", "kubernetes"}
    missing = [name for name in table.model_fields if f"`{prefix}{name}`" not in text and name not in tables]
    assert missing == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spool": "spool"}, r"spool: .*absolute path"),
        ({"min_pilots": 50}, "min_pilots is greater than max_pilots"),
        ({"sizes": []}, "sizes: "),
        ({"max_pilot": 3}, "max_pilot: "),
        ({"batch": "sge"}, "batch: "),
        ({"users": {"run_as": "submitter"}}, r"users\.program is required"),
        ({"users": OWN}, "min_pilots and min_idle must be 0"),
        ({"users": OWN, "batch": "htcondor", "min_idle": 0}, "available with Slurm, not with htcondor"),
        ({"users": OWN, "min_idle": 0, "pilot": {"certificate": "/c.pem"}}, r"pilot\.certificate cannot be used"),
        ({"users": {"names": {"ann": "-u root"}}}, "users.names.ann: "),
        ({"users": {"folder": "relative"}}, "users.folder: "),
        ({"every": "a while"}, r"every: .*a time is a number of seconds"),
        ({"sizes": [{"memory": "1 GiB", "wall": "1 h"}] * 2}, "two sizes have the same name"),
        ({"batch": "kubernetes"}, "the table kubernetes belongs to"),
        ({"kubernetes": {"image": "a"}}, "the table kubernetes belongs to"),
        ({"sizes": [{"memory": "1 GiB", "wall": "1 h", "image": "a"}]}, r"sizes\.image is available with Kubernetes"),
        ({"sizes": WIDE}, "the table nodes is required"),
        ({"sizes": WIDE, "nodes": RANKS, "batch": "htcondor"}, "available with Slurm, not with htcondor"),
        ({"sizes": WIDE, "nodes": RANKS, "users": OWN, "min_idle": 0}, "one node is available with users.run_as"),
        ({"sizes": [WIDE[0] | {"slots": 2}], "nodes": RANKS}, "runs one job at a time"),
        ({"nodes": {"work": "relative"}}, r"nodes\.work: .*absolute path"),
        (CLOUD | {"site": "hall@cern"}, "site: Kubernetes accepts"),
        (CLOUD | {"sizes": [{"memory": "1 GiB", "wall": "1 h", "account": "a"}]}, "Kubernetes has no accounts"),
        (CLOUD | {"sizes": [{"memory": "1 GiB", "wall": "1 h", "queue": "a b"}]}, "a local queue of Kueue"),
        (CLOUD | {"kubernetes": {}}, r"kubernetes\.image: "),
        (CLOUD | {"kubernetes": {"image": "a", "address": "http://insecure"}}, r"kubernetes\.address: "),
        (CLOUD | {"kubernetes": {"image": "a", "user": 0}}, r"kubernetes\.user: "),
        (CLOUD | {"kubernetes": {"image": "a", "volumes": [{"path": "/a"}]}}, "set either claim or secret"),
    ],
)
def test_what_is_wrong_is_said(change: dict[str, object], words: str) -> None:
    with pytest.raises(Permanent, match=words):
        read_site(tomllib.loads(SHOWN) | change, "site.toml")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="cannot be read"):
        load_site(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("site = ")
    with pytest.raises(Permanent, match="cannot be read"):
        load_site(tmp_path / "bad.toml")
    (tmp_path / "wrong.toml").write_text('site = "a"')
    with pytest.raises(Permanent, match=r"servers: .*; token_file: "):
        load_site(tmp_path / "wrong.toml")
