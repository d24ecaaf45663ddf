"""Unpacking images of strangers: what they mean, and what they may not do."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pilot.containers.images import LayoutFolder, layer, member

from forestay_pilot.containers.image_error import ImageError
from forestay_pilot.containers.oci_layout import OciLayout
from forestay_pilot.staging.transfer import StoppedError

LINK, HARD, FOLDER, DEVICE = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE
MOST = 1 << 30


def unpack(tmp_path: Path, *layers: bytes) -> Path:
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("v1", list(layers))
    target = tmp_path / "root"
    OciLayout(str(layout.folder), "v1").unpack(str(target), MOST, lambda: None)
    return target


def test_later_layers_change_earlier_ones(tmp_path: Path) -> None:
    root = unpack(
        tmp_path,
        layer(
            (member("usr/lib/a"), b"1"), (member("usr/lib/b"), b"1"), (member("lib", LINK, "usr/lib"), b""),
            (member("etc/x/old"), b"1"), (member("script", mode=0o4755), b"#!"), (member("same", HARD, "usr/lib/a"), b""),
        ),
        layer((member("lib/a"), b"2"), (member("usr/lib/.wh.b"), b""), (member("etc/x/.wh..wh..opq"), b""), (member("etc/x/new"), b"2")),
    )  # fmt: skip
    assert (root / "usr/lib/a").read_text() == "2", "a link of an earlier layer is followed inside the image"
    assert (root / "lib").is_symlink()
    assert (root / "same").read_text() == "1"
    assert sorted(path.name for path in (root / "usr/lib").iterdir()) == ["a"]
    assert sorted(path.name for path in (root / "etc/x").iterdir()) == ["new"]
    assert (root / "script").stat().st_mode & 0o7777 == 0o755, "nothing runs with the rights of another user"


@pytest.mark.parametrize("name", [".wh...", ".wh..", ".wh.", "etc/.wh..."])
def test_a_whiteout_removes_nothing_but_a_name_beside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").write_text("kept")
    root = unpack(tmp_path, layer((member("etc/a"), b"1"), (member("usr/b"), b"1")), layer((member(name), b"")))
    assert (tmp_path / "precious").read_text() == "kept"
    assert (root / "etc/a").exists()
    assert (root / "usr/b").exists()


def test_nothing_gets_out_of_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    root = unpack(
        tmp_path,
        layer(
            (member("../outside/a"), b"x"), (member("/outside/b"), b"x"), (member("up", LINK, "../outside"), b""), (member("up/c"), b"x"),
            (member("whole", LINK, str(outside)), b""), (member("whole/d"), b"x"), (member("whole/.wh.file"), b""), (member("loop", LINK, "loop"), b""),
            (member("loop/e"), b"x"), (member("stolen", HARD, str(outside / "file")), b""), (member("null", DEVICE), b""), (member("deep/../../outside/f"), b"x"),
        ),
    )  # fmt: skip
    assert sorted(path.name for path in outside.iterdir()) == ["file"]
    assert (outside / "file").read_text() == "kept"
    assert not (root / "stolen").exists()
    assert not (root / "null").exists()


def test_a_blob_that_is_not_what_it_is_called_is_refused(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("v1", [layer((member("a"), b"1"))])
    manifest = json.loads((layout.folder / "blobs/sha256" / str(layout.manifests[0]["digest"])[7:]).read_text())
    blob = layout.folder / "blobs/sha256" / manifest["layers"][0]["digest"][7:]
    blob.write_bytes(blob.read_bytes() + b" ")
    with pytest.raises(ImageError) as caught:
        OciLayout(str(layout.folder), "v1").unpack(str(tmp_path / "root"), MOST, lambda: None)
    assert caught.value.error == "corrupt"
    blob.unlink()
    with pytest.raises(ImageError, match="missing"):
        OciLayout(str(layout.folder), "v1").unpack(str(tmp_path / "other"), MOST, lambda: None)


BROKEN_INDEXES = {
    "no object": "[]",
    "no JSON": "{",
    "nested too deeply": "[" * 100_000,
    "manifests that are no list": '{"manifests": 7}',
    "an entry that is no object": '{"manifests": ["v1"]}',
    "too long": " " * (5 << 20),
}


@pytest.mark.parametrize("index", BROKEN_INDEXES.values(), ids=list(BROKEN_INDEXES))
def test_a_broken_index_is_a_corrupt_image(tmp_path: Path, index: str) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    (layout.folder / "index.json").write_text(index)
    with pytest.raises(ImageError) as caught:
        OciLayout(str(layout.folder), "")
    assert caught.value.error == "corrupt"


BROKEN_MANIFESTS: dict[str, object] = {
    "no object": [],
    "no configuration": {"layers": []},
    "a configuration that is no entry": {"config": "x", "layers": []},
    "layers that are no list": {"config": {}, "layers": {"a": 1}},
    "manifests that are no list": {"manifests": 3},
    "a platform that is no object": {"manifests": [{"platform": "linux"}]},
}


@pytest.mark.parametrize("manifest", BROKEN_MANIFESTS.values(), ids=list(BROKEN_MANIFESTS))
def test_a_broken_manifest_is_an_error_of_the_image(tmp_path: Path, manifest: object) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    layout.manifests = [layout.blob(json.dumps(manifest).encode(), "image.manifest.v1+json")]
    layout.write()
    with pytest.raises(ImageError) as caught:
        OciLayout(str(layout.folder), "")
    assert caught.value.error in ("corrupt", "platform")


def test_a_layout_without_images_has_none(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    layout.write()
    with pytest.raises(ImageError, match="no image"):
        OciLayout(str(layout.folder), "")


@pytest.mark.parametrize("kind", ["gzip", "bz2", "lzma", ""])
def test_a_layer_that_is_cut_off_is_a_corrupt_image(tmp_path: Path, kind: str) -> None:
    """Not every Python has all of them."""
    compress: Callable[[bytes], bytes] = pytest.importorskip(kind).compress if kind else bytes
    whole = compress(layer((member("a"), os.urandom(100_000))))
    with pytest.raises(ImageError) as caught:
        unpack(tmp_path, whole[: len(whole) // 2])
    assert caught.value.error == "corrupt"


@pytest.mark.parametrize("env", [None, 7, "A=1", {"A": "1"}, [1, None]])
def test_variables_that_are_no_list_are_left_out(tmp_path: Path, env: object) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    config = layout.blob(json.dumps({"config": {"Env": env}}).encode())
    manifest = json.dumps({"config": config, "layers": []}).encode()
    layout.manifests = [layout.blob(manifest, "image.manifest.v1+json")]
    layout.write()
    assert OciLayout(str(layout.folder), "").environment == {}


def test_of_an_image_for_several_architectures_the_hosts_is_taken(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    digests = {name: layout.image(name, [], architecture=name if name == "s390x" else "") for name in ("own", "s390x")}
    entries = [
        {**entry, "platform": {"architecture": config_of(layout, entry)}, "annotations": {}}
        for entry in layout.manifests
    ]
    index = layout.blob(json.dumps({"schemaVersion": 2, "manifests": entries}).encode(), "image.index.v1+json")
    layout.manifests = [index]
    layout.write()
    assert OciLayout(str(layout.folder), "").digest == index["digest"] != digests["own"]
    layout.manifests = [layout.blob(json.dumps({"manifests": entries[1:]}).encode(), "image.index.v1+json")]
    layout.write()
    with pytest.raises(ImageError) as caught:
        OciLayout(str(layout.folder), "")
    assert caught.value.error == "platform"


def config_of(layout: LayoutFolder, entry: dict[str, object]) -> str:
    blobs = layout.folder / "blobs/sha256"
    manifest = json.loads((blobs / str(entry["digest"])[7:]).read_text())
    return str(json.loads((blobs / manifest["config"]["digest"][7:]).read_text())["architecture"])


def test_a_layer_that_unpacks_to_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Two megabytes of it stand for a file of two gigabytes."""
    head = tarfile.TarInfo("zeros")
    head.size = 2 << 30
    packed = gzip.compress(head.tobuf(tarfile.PAX_FORMAT) + bytes(1 << 20))
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("v1", [packed])
    with pytest.raises(ImageError, match="takes more than") as caught:
        OciLayout(str(layout.folder), "v1").unpack(str(tmp_path / "root"), MOST, lambda: None)
    assert caught.value.error == "unsupported", "it is not this host's disk that is full"
    assert not list((tmp_path / "root").iterdir())


def test_a_stop_ends_the_unpacking_of_one_large_file(tmp_path: Path) -> None:
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("v1", [layer((member("large"), bytes(8 << 20)))])
    calls = 0

    def stop_at_the_third() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        OciLayout(str(layout.folder), "v1").unpack(str(tmp_path / "root"), MOST, stop_at_the_third)


def test_empty_files_take_room_too(tmp_path: Path) -> None:
    many = layer(*((member(f"f{number}"), b"") for number in range(300)))
    layout = LayoutFolder(tmp_path / "layout")
    layout.image("v1", [many])
    with pytest.raises(ImageError, match="takes more than"):
        OciLayout(str(layout.folder), "v1").unpack(str(tmp_path / "root"), 100_000, lambda: None)
