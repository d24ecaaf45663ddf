"""``forestay-pilot``: the command that a batch job starts."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import threading

from forestay_pilot import __version__
from forestay_pilot.cache.cache import CacheSettings
from forestay_pilot.cache.cache_policy import POLICIES
from forestay_pilot.claims.lifetime import batch_job_name, least, told_by_batch_system
from forestay_pilot.containers.runtimes import ContainerRuntimes, find_bubblewrap, find_program, read_mount
from forestay_pilot.job_secrets.site_secrets import SiteSecretsFile
from forestay_pilot.link.announcement import announce
from forestay_pilot.link.environment import PilotEnvironment, check_environment
from forestay_pilot.link.features import machine_features
from forestay_pilot.link.server_link import ServerRing
from forestay_pilot.nodes.ranks import SeveralNodes
from forestay_pilot.pilot import EnrolmentRefusedError, PilotProcess, PilotSettings
from forestay_pilot.process import libc
from forestay_pilot.process.control_group import usable_memory
from forestay_pilot.process.devices import Device, found_devices, named_devices
from forestay_pilot.process.payload import Surroundings
from forestay_pilot.process.payload_cgroup import find_parent

log = logging.getLogger("forestay_pilot")

_TOKEN_VARIABLE = "FORESTAY_ENROL_TOKEN"  # noqa: S105 - the name of the variable, not what is in it
_SECRET_VARIABLE = "FORESTAY_ENROLMENT"  # noqa: S105
UNFIT = 3
_SIGNALS = {signal.SIGTERM, signal.SIGINT}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forestay-pilot", description="Pull jobs from a Forestay server and run them."
    )
    add = parser.add_argument
    add("--server", action="append", required=True, metavar="URL", help="address of a server; may be repeated")
    add(
        "--enrolment-file",
        metavar="PATH",
        help="file with the enrolment secret of this one pilot, removed once it is used; "
        f"else the variable {_SECRET_VARIABLE}",
    )
    add(
        "--token-file",
        metavar="PATH",
        help="file with an enrolment token that is valid for many pilots, which jobs can read if this user can; "
        f"- for the standard input; else the variable {_TOKEN_VARIABLE}",
    )
    add("--launch", default="", metavar="ID", help="the site agent's name for the launch that started this pilot")
    add("--ca-file", metavar="PATH", help="CA certificates to trust instead of the system's")
    add("--certificate", metavar="PATH", help="this pilot's certificate with its key, for servers that require one")
    add("--outputs", required=True, metavar="DIR", help="where outputs are committed")
    add("--work", metavar="DIR", help="local disk for working folders, logs and undelivered completions")
    add("--slots", type=int, default=1, metavar="N", help="jobs at once (1)")
    add(
        "--batch",
        type=int,
        default=1,
        metavar="N",
        help="short jobs held ready for each slot, at most 32 (1)",
    )
    add(
        "--calls",
        type=int,
        default=32,
        metavar="N",
        help="calls of functions held ready for each slot while they are short, at most 32 (32)",
    )
    add("--cpus", type=int, metavar="N", help="processors for jobs (those of this process)")
    add("--memory", type=int, metavar="BYTES", help="memory for jobs (this machine's)")
    add("--disk", type=int, metavar="BYTES", help="disk for jobs (what is free in --work)")
    add("--gpus", type=int, metavar="N", help="accelerators for jobs (those that are found or named)")
    add(
        "--device",
        action="append",
        default=[],
        metavar="NAME[,model=M][,vendor=V][,memory=BYTES]",
        help="a device for jobs instead of those that nvidia-smi and rocm-smi find; may be repeated",
    )
    add("--no-devices", action="store_true", help="do not look for devices")
    add(
        "--feature",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a feature of this machine that jobs may require; may be repeated",
    )
    add(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="nodes of this pilot's allocation; more than 1: for jobs of as many (1)",
    )
    add(
        "--nodes-launcher",
        default="[]",
        metavar="JSON",
        help="the command that starts a job on all nodes, as a list of words; `{nodes}` and `{cpus}` are what the job asks for",
    )
    add("--site", default="local", metavar="NAME", help="the site that started this pilot (local)")
    add(
        "--host",
        default=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        metavar="NAME",
        help="name of this machine (the one its batch system uses)",
    )
    add("--time-left", type=float, metavar="S", help="seconds until the allocation ends (the batch system's)")
    add(
        "--time-margin",
        type=float,
        default=60.0,
        metavar="S",
        help="claim nothing in the last S seconds (60)",
    )
    add("--batch-job", metavar="ID", help="the batch system's name for this pilot (its own)")
    add("--grace", type=float, default=10.0, metavar="S", help="between SIGTERM and SIGKILL of a payload (10)")
    add(
        "--cgroup",
        default="auto",
        metavar="DIR",
        help="control group under which each payload gets its own; `auto`: this pilot's, if it may; `off`: none (auto)",
    )
    for name, program in (("apptainer", "apptainer"), ("podman", "podman"), ("bubblewrap", "bwrap")):
        words = f"the program of this container runtime; `off`: it is not used ({program})"
        add(f"--{name}", default=program, metavar="NAME", help=words)
    add("--images", metavar="DIR", help="keep container images here for all pilots of this host (below --work)")
    add(
        "--images-space",
        type=int,
        default=50 * 1000**3,
        metavar="BYTES",
        help="space that container images may take (50 GB)",
    )
    add(
        "--mount",
        action="append",
        default=[],
        metavar="PATH[:rw]",
        help="a folder that every container sees, read-only unless `:rw` follows; may be repeated",
    )
    add(
        "--secrets",
        metavar="FILE",
        help="what secrets of the site which owners' jobs may have, as JSON; /dev/fd/N: read once from that descriptor",
    )
    add(
        "--claim-wait",
        type=float,
        default=20.0,
        metavar="S",
        help="how long a server may hold a claim request (20)",
    )
    add(
        "--end-wait", type=float, default=60.0, metavar="S", help="how long to try to deliver the last completions (60)"
    )
    add(
        "--needs",
        action="append",
        default=[],
        metavar="NAME",
        help="a program that must be on the PATH; may be repeated",
    )
    add(
        "--check",
        action="append",
        default=[],
        metavar="PATH",
        help="a program whose failure means that this machine is unfit; may be repeated",
    )
    add("--check-wait", type=float, default=60.0, metavar="S", help="how long such a program may take (60)")
    add("--space", type=int, default=64 << 20, metavar="BYTES", help="what must be free in --work (64 MiB)")
    add(
        "--clock-skew",
        type=float,
        default=300.0,
        metavar="S",
        help="maximum difference between this clock and the server's (300)",
    )
    add(
        "--server-wait",
        type=float,
        default=120.0,
        metavar="S",
        help="how long to wait for a server to respond (120)",
    )
    add("--max-jobs", type=int, metavar="N", help="end after N jobs")
    add("--idle-exit", type=float, metavar="S", help="end after S seconds without work")
    add("--cache", metavar="DIR", help="keep files for later jobs here, on local disk")
    add(
        "--cache-space",
        type=int,
        default=10 * 1000**3,
        metavar="BYTES",
        help="space of this pilot for cached files and the running job (10 GB)",
    )
    add("--cache-keep", type=int, metavar="BYTES", help="of that, what a running job needs (a fifth)")
    add("--cache-policy", choices=sorted(POLICIES), default="lru", help="which cached files are evicted first (lru)")
    add(
        "--cache-scope",
        choices=("host", "pilot"),
        default="host",
        help="share the cache with the pilots of this host, or with nobody (host)",
    )
    add("--share", metavar="ADDRESS", help="serve cached files to pilots of other hosts at HOST or HOST:PORT")
    add("--version", action="version", version=__version__)
    add("-v", "--verbose", action="store_true", help="print more on stderr")
    return parser


def _enrol_token(arguments: argparse.Namespace) -> str:
    """The secret of this pilot, or the token for many; raises ValueError when there is neither."""
    secret, token = libc.forget_variable(_SECRET_VARIABLE), libc.forget_variable(_TOKEN_VARIABLE)
    if arguments.enrolment_file is not None:
        secret = _first_words(arguments.enrolment_file)
    elif arguments.token_file is not None and not secret:
        secret = _first_words(arguments.token_file)
    enrol_token = (secret or token).strip()
    if not enrol_token:
        raise ValueError(
            "it has no enrolment secret: use --enrolment-file or "
            f"{_SECRET_VARIABLE}; `forestay pilots enrol` creates one"
        )
    return enrol_token


def _first_words(path: str) -> str:
    if path == "-":
        words = sys.stdin.read(8192)
        # What was opened by another user stays closed to the payloads, which have this one.
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, sys.stdin.fileno())
        os.close(null)
        return words
    with open(path, encoding="utf-8") as source:
        return source.read(8192)


def _resources(arguments: argparse.Namespace, work: str, devices: list[Device]) -> dict[str, int]:
    disk = os.statvfs(work)
    several = {"nodes": arguments.nodes} if arguments.nodes > 1 else {}
    return {
        **several,
        "cpus": arguments.cpus or len(os.sched_getaffinity(0)),
        "memory": arguments.memory or usable_memory(),
        "disk": arguments.disk or disk.f_bavail * disk.f_frsize,
        "gpus": arguments.gpus or len(devices),
    }


def _devices(arguments: argparse.Namespace) -> list[Device]:
    """The units that jobs are bound to."""
    devices = named_devices(arguments.device)
    if arguments.nodes > 1:
        return []  # those of the other nodes cannot be bound from here: the launcher gives each rank its own
    if not devices and not arguments.no_devices and arguments.gpus != 0:
        devices = found_devices()
    if arguments.gpus is not None and devices:
        devices = devices[: arguments.gpus]
    if arguments.gpus and len(devices) < arguments.gpus:
        if devices:
            raise ValueError(f"it is to offer {arguments.gpus} accelerators, and there are {len(devices)}")
        log.warning("accelerators are counted and not bound: no device was found or named (--device)")
    return devices


def _work(arguments: argparse.Namespace) -> str:
    """The work folder; in one place for all pilots of this user unless another is given."""
    own = os.path.join(tempfile.gettempdir(), f"forestay-pilot-{os.getuid()}")
    return os.path.realpath(arguments.work or own)


def _own_certificate(path: str | None) -> str | None:
    """The file with certificate and key; raises ValueError if others can read it."""
    if path is not None and os.stat(path).st_mode & 0o077:
        raise ValueError(f"{path} contains a key and can be read by others; run: chmod 600 {path}")
    return path


def _place(arguments: argparse.Namespace) -> PilotEnvironment:
    return PilotEnvironment(
        ring=ServerRing(arguments.server, arguments.ca_file, _own_certificate(arguments.certificate)),
        work=_work(arguments),
        outputs=os.path.realpath(arguments.outputs),
        memory=arguments.memory,
        space=arguments.space,
        needs=arguments.needs,
        scripts=arguments.check,
        script_seconds=arguments.check_wait,
        skew=arguments.clock_skew,
        server_wait=arguments.server_wait,
        cgroup="" if arguments.cgroup in ("auto", "off") else os.path.realpath(arguments.cgroup),
    )


def _unfit(arguments: argparse.Namespace, token: str) -> bool:
    """Look at this machine; when it is not fit to run jobs, say so here and to the servers."""
    place = _place(arguments)
    findings = check_environment(place)
    for finding in findings:
        print(f"forestay-pilot: this machine is unfit to run jobs: {finding}", file=sys.stderr)  # noqa: T201
    if findings:
        body = {
            "host": arguments.host,
            "site": arguments.site,
            "batch_job": arguments.batch_job or batch_job_name(),
            "launch": arguments.launch,
            "version": __version__,
        }
        announce(place.ring, token, body, findings)
    return bool(findings)


def _groups(named: str) -> str:
    """The control group under which payloads get their own; empty for none."""
    if named == "off":
        return ""
    parent = find_parent() if named == "auto" else os.path.realpath(named)
    if not parent:
        log.warning("memory limits are not enforced: no control groups for jobs can be made here (--cgroup)")
    return parent


def _settings(arguments: argparse.Namespace, token: str) -> PilotSettings:
    work = _work(arguments)
    devices = _devices(arguments)
    secrets = None if arguments.secrets is None else SiteSecretsFile(arguments.secrets)
    nodes = _several_nodes(arguments)
    sources = [] if secrets is None else secrets.sources
    return PilotSettings(
        servers=arguments.server,
        enrol_token=token,
        enrolment_file=arguments.enrolment_file,
        launch=arguments.launch,
        outputs=os.path.realpath(arguments.outputs),
        work=work,
        host=arguments.host,
        site=arguments.site,
        slots=1 if nodes else max(1, arguments.slots),
        batch=1 if nodes else min(32, max(1, arguments.batch)),
        calls=min(32, max(1, arguments.calls)),
        resources=_resources(arguments, work, devices),
        devices=devices,
        features=machine_features([*arguments.feature, *(f"secrets.{source}=yes" for source in sources)]),
        time_left=least(arguments.time_left, told_by_batch_system()),
        time_margin=arguments.time_margin,
        batch_job=arguments.batch_job or batch_job_name(),
        max_jobs=arguments.max_jobs,
        idle_exit=arguments.idle_exit,
        claim_wait=min(30.0, max(0.0, arguments.claim_wait)),
        end_wait=arguments.end_wait,
        ca_file=arguments.ca_file,
        certificate=arguments.certificate,
        cache=_cache_settings(arguments),
        share=arguments.share,
        secrets=secrets,
        nodes=nodes,
        surroundings=Surroundings(
            grace=arguments.grace,
            groups=_groups(arguments.cgroup),
            containers=_containers(arguments, work),
        ),
    )


def _several_nodes(arguments: argparse.Namespace) -> SeveralNodes | None:
    """The nodes of this pilot and their launcher, if there are several; raises ValueError when no launcher is named."""
    if arguments.nodes < 2:
        return None
    launcher = json.loads(arguments.nodes_launcher)
    if not isinstance(launcher, list) or not launcher or not all(isinstance(word, str) and word for word in launcher):
        raise ValueError("a pilot of several nodes needs --nodes-launcher, a list of words as JSON")
    if not arguments.work:
        raise ValueError("a pilot of several nodes needs --work, a folder that its nodes share")
    return SeveralNodes(arguments.nodes, launcher)


def _containers(arguments: argparse.Namespace, work: str) -> ContainerRuntimes:
    for mount in arguments.mount:
        read_mount(mount)
    return ContainerRuntimes(
        apptainer=find_program(arguments.apptainer),
        podman=find_program(arguments.podman),
        bubblewrap=find_bubblewrap(arguments.bubblewrap),
        images=os.path.realpath(arguments.images or os.path.join(work, "images")),
        space=max(0, arguments.images_space),
        mounts=tuple(arguments.mount),
    )


def _cache_settings(arguments: argparse.Namespace) -> CacheSettings | None:
    if arguments.cache is None:
        if arguments.share is not None:
            raise ValueError("--share needs --cache")
        return None
    space = max(0, arguments.cache_space)
    return CacheSettings(
        folder=os.path.realpath(arguments.cache),
        space=space,
        keep=space // 5 if arguments.cache_keep is None else max(0, arguments.cache_keep),
        policy=arguments.cache_policy,
        shared=arguments.cache_scope == "host",
    )


def _await_signals(pilot: PilotProcess) -> None:
    """Take signals in a thread of their own: a handler would run inside whatever lock the pilot just holds."""
    while True:
        signal.sigwait(_SIGNALS)
        pilot.on_signal()


def main(words: list[str] | None = None) -> int:
    """Run a pilot; 0 after a good end, 1 when ends are undelivered, 2 when it could not begin, 3 when a check failed."""
    libc.forbid_dumps()
    arguments = _parser().parse_args(words)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if arguments.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(threadName)s: %(message)s",
    )
    try:
        token = _enrol_token(arguments)
        if _unfit(arguments, token):
            return UNFIT
        pilot = PilotProcess(_settings(arguments, token))
    except (OSError, ValueError) as error:
        print(f"forestay-pilot: {error}", file=sys.stderr)  # noqa: T201
        return 2
    # Orphans of a guard that was killed come to the pilot, so that their numbers stay theirs until it has
    # ended them.
    libc.adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # before any thread, so that all have it
    threading.Thread(target=_await_signals, args=(pilot,), name="signals", daemon=True).start()
    try:
        return pilot.run()
    except OSError as error:
        print(f"forestay-pilot: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except EnrolmentRefusedError as refusal:
        print(f"forestay-pilot: the server refuses this pilot: {refusal}", file=sys.stderr)  # noqa: T201
        return 2


if __name__ == "__main__":
    sys.exit(main())
