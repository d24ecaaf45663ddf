"""A payload inside a container, by Apptainer: the command line that is run instead of the payload's own.

The container sees its own file system, the working folder under the path it has outside, and nothing else of the machine: no home, no
processes of others, none of the pilot's variables. The payload's variables go by the environment, never on the command line, which
everybody on the machine can read.
"""

from __future__ import annotations

_PASSED = "APPTAINERENV_"
_OWN = ("PATH", "HOME")  # the container has its own


def in_container(
    program: str, image: str, argv: list[str], environment: dict[str, str], *, folder: str, own: dict[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment with which Apptainer runs a payload in an image."""
    words = [program, "exec", "--containall", "--bind", folder, "--pwd", folder, image, *argv]
    passed = {
        _PASSED + name: value for name, value in environment.items() if name not in _OWN or value != own.get(name)
    }
    kept = {name: own[name] for name in _OWN if name in own}
    # How payloads are known again when they have left their session: by a variable of the process itself.
    kept["FORESTAY_CLAIM"] = environment["FORESTAY_CLAIM"]
    return words, {**kept, **passed}
