"""Which task, and which round of it, a job was submitted for, by the name of the work in its flow reference."""

from __future__ import annotations


def instance_of(work: str) -> tuple[str, int]:
    """The task of a round, as verbs name it, and the number of the round; of a compensation its own name, which has none."""
    instance, _, after = work.rpartition("@")
    number, undoing, rest = after.partition("!")
    if undoing:
        return f"!{rest.partition('.')[0]}", 0
    return instance, int(number)


def task_of(instance: str) -> str:
    """The task whose instance it is: inside loops and choices its name comes after the round that it is in."""
    return instance.rpartition("/")[2]
