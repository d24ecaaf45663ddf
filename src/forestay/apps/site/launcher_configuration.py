"""The launcher's configuration from a site's settings: what root installs as `/etc/forestay/launch.conf`, after reading it."""

from __future__ import annotations

import shlex
from pathlib import Path

from forestay.apps.compose.site import pilot_command
from forestay.apps.config.site_settings import SiteSettings, SizeTable
from forestay.domain.sites.launch import NAME
from forestay.ports.errors import Permanent

SLURM = "/usr/bin"


def launcher_configuration(settings: SiteSettings, environment: dict[str, str]) -> str:
    """The file's text; `Permanent` when jobs of this site run as the agent."""
    program = settings.users.program
    if settings.own_users is None or program is None:
        raise Permanent('jobs of this site run as the agent: set users.run_as = "submitter" first')
    lines = [
        f"# /etc/forestay/launch.conf of site {settings.site}: everything that forestay-launch may start. Owned by root, mode 0644.",
        "[launcher]",
        f"group = {settings.users.group}",
        f"folder = {settings.users.folder}",
        "",
        "[environment]",
        *(f"{name} = {environment[name]}" for name in ("SLURM_CONF", "TZ") if name in environment),
        "",
        "[cancel]",
        f"command = {SLURM}/scancel --name={NAME}{{launch}} {{job}}",
    ]
    for size in settings.sizes:
        lines += ["", f"[size {size.name}]", f"submit = {_submit(size)}", f"pilot = {_pilot(settings, size, program)}"]
    if any("\n" in line or "\r" in line for line in lines):
        raise Permanent("a setting has a line break")
    return "\n".join(lines) + "\n"


def _pilot(settings: SiteSettings, size: SizeTable, program: Path) -> str:
    return shlex.join(pilot_command(settings, size, program, "{launch}", "{folder}/{launch}.secret"))


def _submit(size: SizeTable) -> str:
    options = [
        f"--job-name={NAME}{{launch}}",
        "--output={folder}/{launch}.log",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={size.cpus}",
        f"--mem={-(-size.memory // 2**20)}M",
        f"--time={-(-size.wall // 60)}",
        *([f"--partition={size.queue}"] if size.queue is not None else []),
        *([f"--account={size.account}"] if size.account is not None else []),
        *size.options,
    ]
    # The last ones count: no option of a site makes Slurm start a pilot twice.
    return shlex.join([f"{SLURM}/sbatch", *options, "--parsable", "--no-requeue"])
