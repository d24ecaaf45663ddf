"""The command line that replaces the payload's own, for each runtime.

A container sees its image read-only, the working folder under the path that it has outside, a folder of its own at ``/tmp``, the mounts that the operator allows,
and the devices of a job that asked for GPUs. Its variables never appear on a command line, which everybody on the machine can read.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forestay_pilot.containers.image_pull import site_environment
from forestay_pilot.containers.image_reference import APPTAINER, PODMAN
from forestay_pilot.containers.oci_layout import inside
from forestay_pilot.containers.runtimes import read_mount

if TYPE_CHECKING:
    from forestay_pilot.containers.image_store import StagedImage

TMP = ".forestay-tmp"
"""The folder for temporary files of a container, in its working folder: no pattern of outputs finds what begins with a dot."""
VARIABLES = ".forestay-environment"
SECRETS = ".forestay-secrets"
"""Where a container sees the files with secrets, in its working folder."""
_TMP = "/tmp"  # noqa: S108 - of the container
_OWN = ("PATH", "HOME")  # the container has its own
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_APPTAINER_PASSED = "APPTAINERENV_"
_NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts")
_TOOLS_OWN = re.compile(
    r"(CONTAINER|PODMAN|DOCKER|REGISTRY|STORAGE|XDG|LD|GO|DBUS)[A-Z0-9_]*|TMPDIR|PATH|HOME|.*_PROXY|.*_proxy"
)


@dataclass(frozen=True)
class ContainerRequest:
    """What is to run in a container, and what it shares with the machine."""

    image: StagedImage
    argv: list[str]
    environment: dict[str, str]
    folder: str
    own: dict[str, str]  # PATH and HOME of the pilot
    claim: str
    mounts: tuple[str, ...] = ()
    devices: list[str] = field(default_factory=list)
    group: str = ""  # the control group of the payload
    secret: frozenset[str] = frozenset()  # the variables with secrets
    secret_files: str = ""  # the folder with the files of secrets, empty for a job without any

    @property
    def variables(self) -> dict[str, str]:
        """The payload's variables, without what is true outside only."""
        return {
            name: value for name, value in self.environment.items() if name not in _OWN or value != self.own.get(name)
        }


def container_name(claim: str) -> str:
    """What Podman calls the container of a claim."""
    return f"forestay-{claim}"


def in_container(request: ContainerRequest) -> tuple[list[str], dict[str, str]]:
    """The command and the environment with which a runtime runs a payload; raises ValueError for variables that cannot be passed on."""
    temporary = os.path.join(request.folder, TMP)
    os.makedirs(temporary, mode=0o700, exist_ok=True)
    if request.folder.startswith(f"{_TMP}/"):
        # The working folder is seen inside that one: where it is mounted has to be there.
        os.makedirs(temporary + request.folder[len(_TMP) :], exist_ok=True)
    if request.secret_files:
        os.makedirs(os.path.join(request.folder, SECRETS), mode=0o700, exist_ok=True)
    if request.image.runtime == APPTAINER:
        return _by_apptainer(request)
    if request.image.runtime == PODMAN:
        return _by_podman(request)
    return _by_bubblewrap(request)


def _by_apptainer(request: ContainerRequest) -> tuple[list[str], dict[str, str]]:
    folder = request.folder
    words = [
        request.image.program,
        "exec",
        "--containall",
        "--home",
        folder,
        "--bind",
        f"{folder}/{TMP}:/tmp",
        "--bind",
        folder,
    ]
    for mount in request.mounts:
        path, writable = read_mount(mount)
        words += ["--bind", f"{path}:{path}:{'rw' if writable else 'ro'}"]
    if request.secret_files:
        words += ["--bind", f"{request.secret_files}:{folder}/{SECRETS}:ro"]
    if any(device.startswith("/dev/nvidia") for device in request.devices):
        words.append("--nv")
    elif request.devices:
        words.append("--rocm")
    words += ["--pwd", folder, request.image.location, *request.argv]
    passed = {_APPTAINER_PASSED + name: value for name, value in request.variables.items()}
    kept = {name: request.own[name] for name in _OWN if name in request.own}
    site = {name: value for name, value in site_environment().items() if name.startswith(("APPTAINER_", "XDG_"))}
    # How payloads are known again when they have left their session: by a variable of the process itself.
    return words, {**site, **kept, "FORESTAY_CLAIM": request.claim, **passed}


def _by_podman(request: ContainerRequest) -> tuple[list[str], dict[str, str]]:
    """Not as process 1 of its own: that one ignores every signal for which it has no handler, and a stop would wait for its grace."""
    folder = request.folder
    words = [
        request.image.program, "run", "--rm", "--name", container_name(request.claim), "--pull=never", "--network=host", "--pid=host", "--log-driver=none",
        "--read-only", "--read-only-tmpfs=false", "--security-opt", "label=disable", "--entrypoint=",
    ]  # fmt: skip
    words += [f"--user={os.getuid()}:{os.getgid()}"] + (["--userns=keep-id"] if os.getuid() else [])
    words += ["--volume", f"{folder}:{folder}:rw", "--volume", f"{folder}/{TMP}:/tmp:rw", "--workdir", folder]
    for mount in request.mounts:
        path, writable = read_mount(mount)
        words += ["--volume", f"{path}:{path}:{'rw' if writable else 'ro'}"]
    if request.secret_files:
        words += ["--volume", f"{request.secret_files}:{folder}/{SECRETS}:ro"]
    for device in request.devices:
        words += ["--device", device]
    words += _podman_group(request.group)
    argv = request.argv
    if request.secret:
        argv = _reading_variables(request)
    variables = {"HOME": folder, **request.variables}
    lines, passed = [], {}
    for name, value in variables.items():
        if name in request.secret:
            continue
        if "\n" not in value and name.isidentifier():
            lines.append(f"{name}={value}\n")
        elif _TOOLS_OWN.fullmatch(name):
            raise ValueError(f"the variable {name} cannot be passed to Podman with a line break in it")
        else:
            words += ["--env", name]
            passed[name] = value
    path = os.path.join(folder, VARIABLES)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as sink:
        sink.writelines(lines)
    words += ["--env-file", path]
    if request.image.location.startswith("/"):
        words += ["--rootfs", f"{request.image.location}:O", *argv]
    else:
        words += [request.image.location, *argv]
    return words, {**passed, **site_environment(), "FORESTAY_CLAIM": request.claim}


def _reading_variables(request: ContainerRequest) -> list[str]:
    """The command, started by a shell of the image that reads the variables with secrets: Podman keeps those that it is given in its database."""
    path = os.path.join(request.secret_files, VARIABLES)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as sink:
        sink.writelines(f"export {name}={shlex.quote(request.environment[name])}\n" for name in sorted(request.secret))
    return ["/bin/sh", "-c", '. "$0" && exec "$@"', f"{request.folder}/{SECRETS}/{VARIABLES}", *request.argv]


def _podman_group(group: str) -> list[str]:
    """The payload's own control group holds the container, too: its limit, its peak and its kills are the job's."""
    if not group:
        return []
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return ["--cgroups=disabled"]  # it stays in the group in which Podman is started
    _, _, inner = group.partition("/sys/fs/cgroup/memory")
    return [f"--cgroup-parent={inner}"] if inner else []


def leftover_groups(group: str) -> list[str]:
    """The control groups that Podman makes beside the payload's own, one for each other controller, and leaves there."""
    _, _, inner = group.partition("/sys/fs/cgroup/memory")
    if not inner or os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return []
    root = "/sys/fs/cgroup"
    return [f"{root}/{name}{inner}" for name in os.listdir(root) if name != "memory"]


def _by_bubblewrap(request: ContainerRequest) -> tuple[list[str], dict[str, str]]:
    root, folder = request.image.location, request.folder
    mounts: dict[str, list[str]] = {"/dev": ["--dev", "/dev"], "/proc": ["--proc", "/proc"]}
    for path in _NETWORK_FILES:
        if os.path.exists(path) and os.path.isdir(f"{root}/etc"):
            mounts[path] = ["--ro-bind", os.path.realpath(path), path]
    mounts[_TMP] = ["--bind", f"{folder}/{TMP}", _TMP]
    for mount in request.mounts:
        path, writable = read_mount(mount)
        mounts[path] = ["--bind" if writable else "--ro-bind", path, path]
    mounts[folder] = ["--bind", folder, folder]
    if request.secret_files:
        inside_folder = f"{folder}/{SECRETS}"
        mounts[inside_folder] = ["--ro-bind", request.secret_files, inside_folder]
    words = [request.image.program, *_image_words(root, "", frozenset(mounts))]
    for path in sorted(mounts):  # what is inside another comes after it
        words += mounts[path]
    for device in request.devices:
        words += ["--dev-bind", device, device]
    words += ["--remount-ro", "/", "--chdir", folder, "--die-with-parent", "--", *request.argv]
    environment = {"PATH": _USUAL_PATH, **request.image.environment, "HOME": folder, **request.variables}
    return words, environment


def _image_words(root: str, at: str, mounts: frozenset[str]) -> list[str]:
    """The image's folders, each bound read-only; one in which something else is to be mounted is made anew, with its content bound.

    So nothing has to be written into an image, which may be read-only and shared.
    """
    words: list[str] = []
    for name in sorted(os.listdir(f"{root}{at}")):
        path = f"{at}/{name}"
        source = f"{root}{path}"
        if path in mounts:
            continue
        if any(mount.startswith(f"{path}/") for mount in mounts):
            real = inside(root, [part for part in path.split("/") if part])
            if real is not None:
                words += ["--dir", path]
                words += _image_words(root, path, mounts) if real == source else ["--ro-bind", real, path]
        elif os.path.islink(source):
            words += ["--symlink", os.readlink(source), path]
        else:
            words += ["--ro-bind", source, path]
    return words
