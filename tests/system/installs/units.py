"""Processes as their systemd units start them, in a root file system without systemd as its first process."""

from __future__ import annotations

import re
import shlex

from tests.system.installs.root_fs import Daemon, RootFs

PLACE = "/usr/lib/systemd/system"


def settings(root: RootFs, unit: str) -> dict[str, list[str]]:
    """The lines of a unit's section `Service`, by their names."""
    found: dict[str, list[str]] = {}
    section = root.text(f"{PLACE}/{unit}").split("[Service]")[1].split("[Install]")[0]
    for name, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def start(root: RootFs, unit: str, instance: str = "") -> Daemon:
    """Its command, as its user, with its state folders, environment and input; what systemd would close off besides is open."""
    lines = settings(root, unit)
    user = lines["User"][0]
    lines = {name: [value.replace("%i", instance) for value in values] for name, values in lines.items()}
    for folder in lines.get("StateDirectory", ()):
        root.run(f"install -d -m {lines['StateDirectoryMode'][0]} -o {user} -g {user} /var/lib/{folder}")
    environment = dict(value.split("=", 1) for value in lines.get("Environment", ()))
    for file in lines.get("EnvironmentFile", ()):
        text = (
            root.run(f"cat {shlex.quote(file.lstrip('-'))}", code=0)
            if not file.startswith("-")
            else root.run(f"cat {file[1:]} 2>/dev/null; true")
        )
        environment |= dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    source = lines.get("StandardInput", ["null"])[0].removeprefix("file:")
    line = f"umask {lines.get('UMask', ['0022'])[0]}; exec {lines['ExecStart'][0]}"
    name = unit.removesuffix(".service") + instance
    if source == "null":
        return root.start(name, line, user=user, environment=environment)
    # Opened as root, as systemd does.
    values = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
    as_user = f"setpriv --reuid={user} --regid={user} --init-groups env {values} sh -c {shlex.quote(line)}"
    return root.start(name, f"exec {as_user} <{source}", environment=environment)
