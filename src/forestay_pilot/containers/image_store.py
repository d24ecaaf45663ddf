"""The images of a host: each is pulled once, kept, and shared by all pilots of this user on the host.

An image has a folder of its own under the folder of images. Whoever brings or removes it has its lock alone, whoever runs a job in it shares the lock; locks are
the kernel's, so that those of the dead are free. What Podman brings is in Podman's own store, and only what is known of it is here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable

from forestay_pilot.cache.cache_area import digest_of
from forestay_pilot.containers.image_error import FULL, NOT_FOUND, RUNTIME, ImageError
from forestay_pilot.containers.image_pull import pull_podman, pull_sif, remove_podman
from forestay_pilot.containers.image_reference import FOLDER, LAYOUT, PODMAN, SIF, read_reference
from forestay_pilot.containers.oci_layout import OciLayout
from forestay_pilot.staging.transfer import FULL as FULL_DISK
from forestay_pilot.staging.transfer import StoppedError

if TYPE_CHECKING:
    from forestay_pilot.containers.image_reference import ImageReference
    from forestay_pilot.containers.runtimes import ContainerRuntimes

log = logging.getLogger("forestay_pilot")

FRESH = 24 * 3600.0
"""Seconds after which a tag is resolved again: it may refer to another image by then. A digest never is."""
_LOOK = 0.05
_ABOUT = "about.json"


@dataclass(frozen=True)
class StagedImage:
    """An image on this host, and how a runtime refers to it."""

    reference: str
    runtime: str
    program: str
    location: str  # a path, or Podman's id
    digest: str = ""  # of what was asked for: sha256:…, or sif-sha256:… of a file of Apptainer; a folder has none
    environment: dict[str, str] = field(default_factory=dict)  # what the image itself sets, where the runtime does not
    origin: str = "host"  # where it came from this time
    size: int = 0
    seconds: float = 0.0
    folder: str = ""  # what is kept of it
    lock: int = -1  # shared while it is used

    def release(self) -> None:
        """Nothing of the job runs in it any more."""
        if self.lock >= 0:
            os.close(self.lock)

    def forget(self) -> None:
        """Discard an image whose stored copy was wrong: the next job pulls it again."""
        if self.folder:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, _ABOUT))

    def report(self) -> dict[str, Any]:
        """How it came, for the end of the job: as of any other input."""
        fields: dict[str, Any] = {
            "name": self.reference[:1000],
            "file": self.digest,
            "from": self.origin,
            "kind": "image",
        }
        if self.origin != "host":
            fields.update(bytes=self.size, seconds=round(self.seconds, 6), tries=1)
        return fields


class ImageStore:
    """The area that all pilots of a host (and user) share for images. For any thread."""

    def __init__(self, runtimes: ContainerRuntimes) -> None:
        self._runtimes = runtimes
        self._area = runtimes.images

    def obtain(self, text: str, stopped: Callable[[], bool]) -> StagedImage:
        """Bring an image, if it is not here. Raises ImageError, StoppedError, and NoContainerError where nothing here can run it."""
        try:
            reference = read_reference(text)
        except ValueError as error:
            raise ImageError(NOT_FOUND, f"the image {text}: {error}") from error
        runtime, program = self._runtimes.choose(reference)
        if reference.kind == FOLDER:
            if not os.path.isdir(reference.place):
                raise ImageError(NOT_FOUND, f"the image {text}: there is no such folder on this host")
            return StagedImage(text, runtime, program, reference.place)
        if not self._area:
            raise ImageError(RUNTIME, f"the image {text}: this pilot has no folder for images")
        try:
            return self._kept(reference, runtime, program, stopped)
        except OSError as error:
            name = FULL if error.errno in FULL_DISK else RUNTIME
            raise ImageError(name, f"the image {text}: {error}") from error

    def _kept(self, reference: ImageReference, runtime: str, program: str, stopped: Callable[[], bool]) -> StagedImage:
        name = hashlib.sha256(f"{runtime}\0{reference.text}".encode()).hexdigest()
        folder = os.path.join(self._area, name)
        os.makedirs(self._area, mode=0o700, exist_ok=True)
        while True:
            lock = _locked(folder, fcntl.LOCK_SH, stopped)
            try:
                image = self._known(reference, runtime, program, folder)
                if image is not None:
                    os.utime(os.path.join(folder, _ABOUT))
                    return replace(image, lock=lock)
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
            # Exclusively, so that only one of all processes pulls it; the others find it when their turn comes.
            alone = _locked_at_once(folder, fcntl.LOCK_EX)
            if alone is None:
                image = self._in_use(reference, runtime, program, folder, stopped)
                if image is not None:
                    return image
                time.sleep(_LOOK)
                continue
            try:
                image = self._known(reference, runtime, program, folder)
                brought = None if image is not None else self._bring(reference, runtime, program, folder, stopped)
                if brought is not None:
                    fcntl.flock(alone, fcntl.LOCK_SH)
                    if self._known(reference, runtime, program, folder) is not None:
                        image, alone = replace(brought, lock=alone), -1
                        self._make_room(folder)
                        return image
            finally:
                if alone >= 0:
                    os.close(alone)

    def _in_use(
        self, reference: ImageReference, runtime: str, program: str, folder: str, stopped: Callable[[], bool]
    ) -> StagedImage | None:
        """An image in use by others, however old the resolution of its tag: waiting for exclusive access would mean waiting for their jobs."""
        lock = _locked(folder, fcntl.LOCK_SH, stopped)
        image = self._known(reference, runtime, program, folder, at_any_age=True)
        if image is not None:
            return replace(image, lock=lock)
        os.close(lock)
        if stopped():
            raise StoppedError
        return None

    def _known(
        self, reference: ImageReference, runtime: str, program: str, folder: str, *, at_any_age: bool = False
    ) -> StagedImage | None:
        try:
            with open(os.path.join(folder, _ABOUT), encoding="utf-8") as source:
                about = json.load(source)
            image = StagedImage(
                reference.text,
                runtime,
                program,
                str(about["location"]),
                digest=str(about["digest"]),
                environment={str(name): str(value) for name, value in about["environment"].items()},
                folder=folder,
            )
            if about["mark"] != _mark(reference) or (runtime != PODMAN and not os.path.exists(image.location)):
                return None
            moved = not at_any_age and not reference.digest and reference.kind not in (SIF, LAYOUT)
            return None if moved and not 0 <= time.time() - about["at"] < FRESH else image
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _bring(
        self, reference: ImageReference, runtime: str, program: str, folder: str, stopped: Callable[[], bool]
    ) -> StagedImage:
        began = time.monotonic()
        _empty(folder)
        mark = _mark(reference)
        image = StagedImage(reference.text, runtime, program, "", origin="registry", folder=folder)
        if reference.kind == SIF:
            if mark is None:
                raise ImageError(NOT_FOUND, f"the image {reference.text}: there is no such file on this host")
            digest, size = f"sif-sha256:{digest_of(reference.place)}", os.path.getsize(reference.place)
            image = replace(image, location=reference.place, digest=digest, size=size, origin="file")
        elif reference.kind == LAYOUT and runtime != PODMAN:
            layout = OciLayout(reference.place, reference.tag)
            root = os.path.join(folder, "root")

            def go_on() -> None:
                if stopped():
                    raise StoppedError

            try:
                size = layout.unpack(root, self._runtimes.space, go_on)
            except BaseException:
                _empty(folder)  # nothing would ever remove half of an image to make room
                raise
            image = replace(
                image, location=root, digest=layout.digest, environment=layout.environment, size=size, origin="file"
            )
        elif runtime == PODMAN:
            location, digest, size = pull_podman(program, reference, stopped)
            image = replace(image, location=location, digest=reference.digest or digest, size=size)
        else:
            path = os.path.join(folder, "image.sif")
            pull_sif(program, reference, path, stopped)
            digest = reference.digest or f"sif-sha256:{digest_of(path)}"
            image = replace(image, location=path, digest=digest, size=os.path.getsize(path))
        image = replace(image, seconds=time.monotonic() - began)
        about = {
            "reference": image.reference, "runtime": runtime, "location": image.location, "digest": image.digest,
            "environment": image.environment, "size": image.size, "mark": mark, "at": time.time(),
        }  # fmt: skip
        partial_file = os.path.join(folder, _ABOUT + ".new")
        with open(partial_file, "w", encoding="utf-8") as sink:
            json.dump(about, sink)
        os.rename(partial_file, os.path.join(folder, _ABOUT))
        log.info("the image %s is here after %.1f s: %s", image.reference, image.seconds, image.digest)
        return image

    def _make_room(self, newest: str) -> None:
        """Remove the images that were used longest ago, until what is left has room; none that a job uses."""
        kept: list[tuple[float, int, str]] = []
        for name in os.listdir(self._area):
            folder = os.path.join(self._area, name)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                path = os.path.join(folder, _ABOUT)
                with open(path, encoding="utf-8") as source:
                    about = json.load(source)
                own = not str(about["reference"]).startswith("/")  # a file of the site's takes no room here
                kept.append((os.stat(path).st_mtime, int(about["size"]) if own else 0, folder))
        used = sum(size for _, size, _ in kept)
        for _, size, folder in sorted(kept):
            if used <= self._runtimes.space:
                return
            if folder != newest and size and self._removed(folder):
                used -= size

    def _removed(self, folder: str) -> bool:
        """Remove an unused image; returns whether it is gone."""
        try:
            lock = _open_lock(folder)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(os.path.join(folder, _ABOUT), encoding="utf-8") as source:
                about = json.load(source)
            if about["runtime"] == PODMAN and not remove_podman(self._runtimes.podman, str(about["location"])):
                return False
            log.info("the image %s makes room", about["reference"])
            _empty(folder)  # the lock's own file stays: someone may wait for it
        except (OSError, ValueError, KeyError, TypeError):
            return False
        else:
            return True
        finally:
            os.close(lock)


def _mark(reference: ImageReference) -> list[int] | None:
    """What changes when the file behind a path is another one; None for what is no file, and for one that is missing."""
    path = os.path.join(reference.place, "index.json") if reference.kind == LAYOUT else reference.place
    if not reference.place.startswith("/"):
        return None
    try:
        about = os.stat(path)
    except OSError:
        return None
    return [about.st_size, about.st_mtime_ns, about.st_ino]


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == "lock":
            continue
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def _open_lock(folder: str) -> int:
    return os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _locked_at_once(folder: str, kind: int) -> int | None:
    """A descriptor that holds the lock of an image; None while others hold it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    lock = _open_lock(folder)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return lock


def _locked(folder: str, kind: int, stopped: Callable[[], bool]) -> int:
    """A descriptor that holds the lock of an image; waits for it."""
    while (lock := _locked_at_once(folder, kind)) is None:
        if stopped():
            raise StoppedError
        time.sleep(_LOOK)
    return lock
