"""A nightly script whose steps are recovered by rules: run it beside `forestay dev`, or without any server.

The first call of `fetch` fails as a network does. Without a rule the script fails as it would without Forestay, and leaves an incident (`forestay inbox --state failed`). Write a rule for it,

    forestay rules add --from INCIDENT --if 'cause == "network"' --then resubmit

let another person promote it, and run the script again: the step is called a second time, and the script goes on.
"""

from forestay.client import script_run

tries = 0


def fetch(where: str) -> list[str]:
    global tries
    tries += 1
    if tries == 1:
        raise ConnectionResetError(104, "Connection reset by peer")
    return [f"{where} line {n}" for n in range(3)]


def publish(lines: list[str]) -> int:
    return len(lines)


if __name__ == "__main__":
    with script_run("nightly", data={"source": "example"}) as nightly:
        lines = nightly.task("fetch", fetch, "example")
        print(f"published {nightly.task('publish', publish, lines)} lines; forestay runs history {nightly.id}")  # noqa: T201 - for whoever runs it
