"""The tutorial's first ten minutes, typed where Forestay was installed: up to a flow that failed and was recovered."""

from __future__ import annotations

import shlex
import signal
import time

from tests.servers import SCRIPT, installed, versions
from tests.system.installs.root_fs import RootFs
from tests.system.walks import first_ten_minutes

TEMPORAL = "/usr/local/bin/temporal"


def put_temporal(root: RootFs) -> None:
    """Temporal's development server, which `forestay dev` would download."""
    folder = installed(f"temporal-{versions()['TEMPORAL_CLI_VERSION']}", "temporal")
    assert folder is not None, f"Temporal is not here: {SCRIPT} install temporal"
    root.mount(folder / "temporal", TEMPORAL)


def recover(root: RootFs) -> float:
    """Type what the tutorial says, from `forestay dev` on, as an ordinary user; the seconds that it took."""
    put_temporal(root)
    root.run("id ada >/dev/null 2>&1 || useradd --create-home ada")
    began = time.monotonic()
    dev_line, *typed = first_ten_minutes.commands()
    assert dev_line == "forestay dev"
    environment = {"HOME": "/home/ada", "FORESTAY_TEMPORAL_PROGRAM": TEMPORAL}
    port = first_ten_minutes.free_port()
    dev = root.start("dev", f"exec forestay dev --port {port}", user="ada", environment=environment)
    try:
        dev.wait_for("Ctrl-C stops it")
        for name, text in first_ten_minutes.files().items():
            root.run(f"printf %s {shlex.quote(text)} >/home/ada/{name}", user="ada")
        shell = root.words("env", "-C", "/home/ada", "bash", "-u", user="ada", environment=environment)
        first_ten_minutes.judge(first_ten_minutes.type_in(typed, {}, None, first_ten_minutes.MAY_FAIL, shell))
        taken = time.monotonic() - began
    finally:
        code = dev.stop(signal.SIGINT)
    assert code == 0, dev.log()
    return taken
