"""Where the real servers are, for tests marked ``live``.

``scripts/servers env`` prints the addresses as environment variables. A missing one fails the test:
a skipped proof would look like a proof.
"""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "servers"


def address(variable: str) -> str:
    """The value of an environment variable, or a failed test that says how to set it."""
    value = os.environ.get(variable, "")
    if not value:
        pytest.fail(
            f'{variable} is not set: start the servers (just servers-up), then eval "$(scripts/servers env)"',
            pytrace=False,
        )
    return value


def opensearch() -> tuple[str, ...]:
    """The addresses of every node of the OpenSearch cluster under test."""
    return tuple(address("FORESTAY_TEST_OPENSEARCH").split(","))


def opensearch_cluster(name: str) -> tuple[str, ...]:
    """The addresses of every node of a cluster started with ``--name`` other than ``one``."""
    return tuple(address(f"FORESTAY_TEST_OPENSEARCH_{name.upper()}").split(","))


def postgres() -> str:
    """The URL of a PostgreSQL database in which tests may create schemas and databases."""
    return address("FORESTAY_TEST_POSTGRES")


def temporal() -> str:
    """Host and port of Temporal's frontend."""
    return address("FORESTAY_TEST_TEMPORAL")


def toxiproxy() -> str:
    """The URL at which Toxiproxy takes orders."""
    return address("FORESTAY_TEST_TOXIPROXY")


def slurm() -> str:
    """The path of the configuration of the Slurm under test, which everyone shares: nobody kills its parts."""
    address("FORESTAY_TEST_SLURM")
    return address("SLURM_CONF")


def htcondor() -> Path:
    """The folder with the commands of the HTCondor under test."""
    return Path(address("FORESTAY_TEST_HTCONDOR"))


def kubernetes() -> Path:
    """The folder with the address, the certificates and the tokens of the Kubernetes under test."""
    return Path(address("FORESTAY_TEST_KUBERNETES"))


def versions() -> dict[str, str]:
    """The version of every program that is installed for tests, by its name in ``scripts/versions.env``."""
    lines = (SCRIPT.parent / "versions.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def installed(folder: str, *programs: str) -> Path | None:
    """The folder in which ``scripts/servers install`` has put programs, if it has."""
    for place in (os.environ.get("FORESTAY_CACHE_DIR", ""), "/var/cache/forestay", Path.home() / ".cache/forestay"):
        if place and all(Path(place, folder, program).exists() for program in programs):
            return Path(place, folder)
    return None


def order(*words: str) -> str:
    """Give ``scripts/servers`` an order, such as ``kill9 opensearch --name three 2``, and get its output."""
    return subprocess.run([SCRIPT, *words], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
