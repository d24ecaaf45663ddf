"""A site agent whose batch system is Kubernetes, as it is built from its settings."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest
from tests.contract.batch_rooms import closed_port

from forestay.adapters.kubernetes.batch import KubernetesBatch
from forestay.apps.compose.site import SiteComponents
from forestay.apps.config.site_settings import SiteSettings, read_site
from forestay.apps.site.process import check_site
from forestay.domain.sites.launch import NAME
from forestay.ports.errors import Permanent

SECRET = "a secret of one launch"


def settings(folder: Path, **kubernetes: object) -> SiteSettings:
    table = {
        "image": "pilot:1",
        "address": "https://127.0.0.1:6443",
        "tolerations": [{"key": "batch", "operator": "Exists"}],
    }
    return read_site(
        {
            "site": "cloud",
            "servers": ["https://forestay.example.org"],
            "token_file": str(folder / "token"),
            "spool": str(folder / "spool"),
            "outputs": "/outputs",
            "max_pilots": 3,
            "batch": "kubernetes",
            "kubernetes": table | kubernetes,
            "sizes": [{"name": "gpu", "cpus": 2, "memory": "1 GiB", "wall": "1 h", "gpus": 1, "queue": "physics"}],
        },
        "site.toml",
    )


async def test_a_pilot_has_its_secret_in_the_environment_and_nothing_of_the_agents_file_system(tmp_path: Path) -> None:
    components = SiteComponents(settings(tmp_path))
    try:
        assert isinstance(components.submitter, KubernetesBatch)
        place = await components.spool.keep("abc", SECRET)
        job = components.pilot_job("abc", "gpu", place)
        assert job.name == f"{NAME}abc"
        assert job.environment == {"FORESTAY_ENROLMENT": SECRET}
        assert (job.size, job.queue, job.wall, job.output) == ("gpu", "physics", 3600, None)
        assert str(tmp_path) not in " ".join(job.command)
        assert SECRET not in repr(job)
        body = components.submitter._object(job)
        pod = body["spec"]["template"]["spec"]
        assert pod["tolerations"] == [{"key": "batch", "operator": "Exists"}]
        assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        assert components._greeting()["batch"] == "kubernetes"
    finally:
        await components.close()


def test_outside_of_a_cluster_the_address_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Permanent, match=r"set kubernetes\.address"):
        SiteComponents(settings(tmp_path, address=""))


@pytest.mark.parametrize(
    ("host", "address"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
async def test_inside_of_a_cluster_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, address: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.delenv("KUBERNETES_SERVICE_PORT", raising=False)
    components = SiteComponents(settings(tmp_path, address=""))
    try:
        assert components.kubernetes is not None
        assert components.kubernetes.api._server.address == address
    finally:
        await components.close()


async def test_a_check_names_what_does_not_answer_and_the_sizes_that_were_not_checked(tmp_path: Path) -> None:
    """Nothing listens at the addresses, which is told from a network that is down."""
    for name in ("token", "cluster-token"):
        (tmp_path / name).write_text("t")
    own = settings(tmp_path, address=f"https://127.0.0.1:{closed_port()}", token_file=str(tmp_path / "cluster-token"))
    authorities = {"ca_file": Path(certifi.where())}
    assert own.kubernetes is not None
    table = own.kubernetes.model_copy(update=authorities)
    wrong = await check_site(own.model_copy(update={"kubernetes": table, "servers": ("https://127.0.0.1:1",)}))
    assert len(wrong) == 3
    assert wrong[0].startswith("the server: ")
    assert wrong[1].startswith("the batch system: https://127.0.0.1:")
    assert wrong[1].endswith("refuses connections")
    assert wrong[2].startswith("size gpu: https://127.0.0.1:")
