"""Small images for tests: the file system of BusyBox-like programs of this machine, and OCI layouts made by hand."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from forestay_pilot.containers.oci_layout import machine

PROGRAMS = ("sh", "true", "tail", "cat", "ls", "sleep", "touch", "env", "id", "setsid", "ps")


def unpacked(folder: Path) -> Path:
    """A file system with some programs of this machine and the libraries that they need."""
    for name in PROGRAMS:
        program = Path(shutil.which(name, path="/usr/bin:/bin") or "")
        copy(folder, program, f"/usr/bin/{name}")
        listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
        for word in listed.split():
            if word.startswith("/"):
                copy(folder, Path(word), word)
    # As releases of Linux have it: links at the top.
    (folder / "bin").symlink_to("usr/bin")
    for name in ("etc", "var", "srv", "dev", "proc", "sys", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "etc/os-release").write_text("ID=image-of-a-test\n")
    (folder / "var/marker").write_text("of the image\n")
    return folder


def copy(folder: Path, source: Path, path: str) -> None:
    """A file of this machine, in the image."""
    target = folder / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        shutil.copy(source, target)


class LayoutFolder:
    """An OCI layout that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self.manifests: list[dict[str, object]] = []

    def blob(self, content: bytes, kind: str = "image.layer.v1.tar") -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def image(self, tag: str, layers: list[bytes], *, architecture: str = "", env: tuple[str, ...] = ()) -> str:
        """Add an image; gives its digest."""
        config: dict[str, object] = {
            "architecture": architecture or machine(),
            "os": "linux",
            "config": {"Env": list(env)},
        }
        digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        config["rootfs"] = {"type": "layers", "diff_ids": digests}
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.blob(json.dumps(config).encode(), "image.config.v1+json"),
            "layers": [self.blob(layer) for layer in layers],
        }
        entry = self.blob(json.dumps(manifest).encode(), "image.manifest.v1+json")
        self.manifests.append({**entry, "annotations": {"org.opencontainers.image.ref.name": tag}})
        self.write()
        return str(entry["digest"])

    def write(self) -> None:
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": self.manifests}))


def layer_of(folder: Path) -> bytes:
    """A packed layer with all that is in a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(folder / name, arcname=name)
    return out.getvalue()


def layer(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A layer of these members."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, target, mode
    return made
