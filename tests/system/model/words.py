"""A counter-example as text: what happened, and what it changed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.system.model.tlc import Checked, Value

ACTIONS = {
    "AskForJob": "a pilot asks for a job; a server sends its claim to the store",
    "StoreExecutes": "the store executes a write",
    "SenderTimesOut": "a server waits no longer for the store; the write may yet happen",
    "IsolatedPrimaryExecutes": "an isolated primary takes a write, shows it, and nobody acknowledges it",
    "RollBack": "the isolated primary is gone, with what only it had",
    "ResolveClaim": "the server reads the document again after an unclear answer",
    "Grant": "the answer with the claim reaches the pilot, or is lost",
    "ServerCrash": "a server is killed",
    "Begin": "the pilot begins the payload",
    "Lapse": "the pilot's lease passes: no heartbeat was acknowledged",
    "Extend": "a heartbeat is acknowledged: the lease is good again",
    "PilotCrash": "a pilot dies",
    "Complete": "the payload has ended well; its completion is on its way to the store",
    "ResolveCompletion": "the server decides on the completion again",
    "Tell": "the pilot is told what became of its completion",
    "Release": "the orphan scanner takes the claim away; its write is on its way",
    "ResolveRelease": "the scanner decides on the release again",
    "ReleaseDone": "the release is acknowledged",
    "Restore": "the store is restored from the backup",
    "Start": "the batch system starts an element",
    "End": "an element ends",
    "Order": "a rule orders that the failed element runs again",
    "TakeUp": "the watcher takes the order up and looks at the job",
    "Requeue": "the watcher has the batch system queue it again, held",
    "Mark": "the watcher marks it with the order",
    "Answer": "the watcher answers the order, or the answer is lost",
    "WatcherCrash": "the watcher is killed",
}
ARRAY_ACTIONS = {"Release": "the watcher lets it go"}
HIDDEN = frozenset({"left", "tried", "ran", "well", "broken"})
NAMES = {"doc": "document", "dirty": "isolated copy", "op": "request", "open": "order is open", "orders": "orders for"}


def trace(checked: Checked) -> str:
    """The counter-example, a step a paragraph."""
    variant = checked.variant
    lines = [f"{variant.name}: without {', '.join(variant.without)}; {variant.bound}", ""]
    array = variant.bound.module == "Steering"
    for number, (before, after) in enumerate(zip(checked.steps, checked.steps[1:], strict=False), start=1):
        words = ARRAY_ACTIONS.get(after.action) if array else None
        lines.append(f"{number}. {words or ACTIONS[after.action]} ({after.action})")
        old, new = dict(_leaves(before.state)), dict(_leaves(after.state))
        for name, value in new.items():
            if old.get(name) != value:
                lines.append(f"     {name} = {value}")
        lines += [f"     {name} is gone" for name in sorted(old.keys() - new.keys()) if name.startswith("write ")]
    return "\n".join([*lines, "", f"Broken: {checked.promise}.", ""])


def _leaves(state: dict[str, Value]) -> Iterator[tuple[str, str]]:
    for name, value in state.items():
        if name in HIDDEN:
            continue
        if name == "net":
            for write in value:
                yield f"write {_write(write)}", "on its way"
        else:
            yield from _below(NAMES.get(name, name), value)


def _below(path: str, value: Value) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _below(f"{path} {key}", inner)
    else:
        yield path, _shown(value)


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return ".".join(map(str, value))
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _write(write: dict[str, Value]) -> str:
    new = write["new"]
    what = f"{new['state']}, attempt {_shown((new['generation'], new['attempt']))}"
    what += "".join(f", {name} {_shown(new[name])}" for name in ("claim", "winner") if new[name] != "NoOne")
    checked = "" if write["checked"] else ", whatever the version"
    return f"[{write['job']} becomes {what}{checked}; from {write['by']}]"
