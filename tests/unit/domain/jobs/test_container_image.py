"""What images are called, and who can run them: the servers' reading is the pilots'."""

from __future__ import annotations

import pytest

from forestay.domain.jobs.container_image import image_problem, may_run, suitable_runtimes
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay_pilot.containers.image_reference import read_reference

PULLED, UNPACKED = ("apptainer", "podman"), ("bubblewrap", "apptainer", "podman")
IMAGES = {
    "debian:12": PULLED,
    "docker://quay.io/name/tool:1.2": PULLED,
    f"localhost:5000/tool@sha256:{'a' * 64}": PULLED,
    "oras://registry/tool:1": ("apptainer",),
    "library://user/tool": ("apptainer",),
    "/images/tool.sif": ("apptainer",),
    "/images/tool.img": ("apptainer",),
    "/cvmfs/unpacked/tool": UNPACKED,
    "oci:/images/layout:tag": UNPACKED,
    "oci-archive:/images/tool.tar": PULLED,
    "docker-archive:/images/tool.tar": PULLED,
}


@pytest.mark.parametrize(("image", "runtimes"), IMAGES.items())
def test_servers_and_pilots_read_images_alike(image: str, runtimes: tuple[str, ...]) -> None:
    assert suitable_runtimes(image) == runtimes
    assert read_reference(image).suitable == runtimes
    assert image_problem(image) is None


@pytest.mark.parametrize(
    "image", ["ftp://x/y", "docker://", "./tool.sif", "oci-archive:tool.tar", "a b", "", "x" * 1001]
)
def test_a_name_that_means_nothing_is_refused_with_words(image: str) -> None:
    assert image_problem(image)
    if " " not in image and len(image) < 1000:
        with pytest.raises(ValueError, match=r".+"):
            read_reference(image)


def test_a_job_says_what_can_run_it() -> None:
    def extra(container: str) -> dict[str, object]:
        spec = Specification("s", "t", "n", ("true",), resources=Resources(), container=container)
        return dict(new_job(Submission(spec, "ann"), job="j", now=1, by="ann").extra)

    assert extra("") == {}
    pulled = extra("debian:12")
    assert may_run(pulled, {"podman"})
    assert may_run(pulled, None), "a pilot of the previous release does not say what it has"
    assert not may_run(pulled, {"bubblewrap"})
    assert not may_run(pulled, set())
    assert may_run(extra("/cvmfs/image"), {"bubblewrap"})
    assert may_run({}, set())
