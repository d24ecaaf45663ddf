"""The command line of each runtime: secrets are neither on it nor in a file of the working folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from forestay_pilot.containers.container_command import SECRETS, VARIABLES, ContainerRequest, in_container
from forestay_pilot.containers.image_store import StagedImage

VALUES = {"GO_PASSWORD": "the-password '$HOME'", "KEY": "first line\nsecond line"}


@pytest.mark.parametrize("runtime", ["podman", "apptainer", "bubblewrap"])
def test_secrets_are_given_apart_from_other_variables(runtime: str, tmp_path: Path) -> None:
    folder, secrets, root = tmp_path / "job", tmp_path / "secrets", tmp_path / "root"
    for made in (folder, secrets / "files", root):
        made.mkdir(parents=True)
    image = StagedImage("image", runtime=runtime, program=f"/usr/bin/{runtime}", location=str(root))
    variables = {"MODE": "fast", "FORESTAY_CLAIM": "c", **VALUES, "FILE": f"{folder}/{SECRETS}/FILE"}
    words, environment = in_container(
        ContainerRequest(
            image=image,
            argv=["run"],
            environment=variables,
            folder=str(folder),
            own={"PATH": "/bin", "HOME": "/"},
            claim="c",
            secret=frozenset({*VALUES, "FILE"}),
            secret_files=str(secrets / "files"),
        )
    )
    for value in VALUES.values():
        assert not any(value in word for word in words)
        for path in folder.rglob("*"):
            assert not path.is_file() or value not in path.read_text(), path
    if runtime == "podman":
        assert (folder / VARIABLES).read_text().splitlines()[:2] == [f"HOME={folder}", "MODE=fast"]
        file = secrets / "files" / VARIABLES
        assert os.stat(file).st_mode & 0o777 == 0o600
        command = words[words.index("/bin/sh") :]
        assert command == ["/bin/sh", "-c", '. "$0" && exec "$@"', f"{folder}/{SECRETS}/{VARIABLES}", "run"]
        shown = subprocess.run(
            [*command[:3], str(file), "sh", "-c", 'printf "%s|%s" "$GO_PASSWORD" "$KEY"'],
            capture_output=True,
            check=True,
        )
        assert shown.stdout.decode() == "|".join(VALUES.values())
        assert f"{secrets}/files:{folder}/{SECRETS}:ro" in words
        assert not set(VALUES) & set(environment), "Podman would take them for its own, or keep them in its database"
    elif runtime == "apptainer":
        assert f"{secrets}/files:{folder}/{SECRETS}:ro" in words
        assert environment["APPTAINERENV_GO_PASSWORD"] == VALUES["GO_PASSWORD"]
    else:
        at = words.index("--ro-bind", words.index(str(folder)))
        assert words[at : at + 3] == ["--ro-bind", f"{secrets}/files", f"{folder}/{SECRETS}"]
        assert environment["KEY"] == VALUES["KEY"]
