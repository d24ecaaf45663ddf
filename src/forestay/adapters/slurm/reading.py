"""Parses the output of squeue and sacct, and joins the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from forestay.adapters.slurm.words import TOLD_BY_NODE, exit_of, seconds_of, state_of
from forestay.domain.sites.batch import FORGOTTEN, OVER, SILENT, BatchJob, BatchOutcome, BatchState, ended_event
from forestay.formats.text.host_list import nodes_of

QUEUE_FIELDS = "JobID:|,ArrayJobID:|,ArrayTaskID:|,State:|,Reason:|,NodeList:|,exit_code:|,RestartCnt:|,StartTime:|,EndTime:|,Name:"
"""The name comes last: it is the only field chosen by a user. Bars are replaced by the `separator`."""
ACCOUNTING_FIELDS = "JobID,JobIDRaw,State,Reason,NodeList,ExitCode,Start,End,JobName"
_NO_REASON = frozenset({"", "None", "(null)"})


def read_queue(text: str, separator: str) -> dict[str, BatchJob]:
    """The jobs that the controller knows, by id; elements of arrays by theirs, ``12_3``."""
    jobs: dict[str, BatchJob] = {}
    for line in text.splitlines():
        parts = line.split(separator, 10)
        if len(parts) != 11:
            continue
        job, array, element, word, reason, nodes, status, restarts, started, ended, name = parts
        state, bare = state_of(word)
        code, signal = exit_of(status) if state in OVER else (None, None)
        outcome = BatchOutcome(
            state,
            word=bare,
            reason="" if reason in _NO_REASON else reason,
            exit_code=code,
            signal=signal,
            nodes=nodes_of(nodes),
            restarts=int(restarts) if restarts.isdigit() else 0,
            started=seconds_of(started) if state not in (BatchState.WAITING, BatchState.UNKNOWN) else None,
            ended=seconds_of(ended) if state in OVER else None,
        )
        if element.isdigit():
            job = f"{array}_{element}"
        jobs[job] = BatchJob(job, name, outcome)
    return jobs


def read_accounting(text: str, separator: str) -> dict[str, BatchJob]:
    """The jobs that the accounting knows, by id: of a restarted job the last start, with the outcomes of the earlier ones."""
    jobs: dict[str, BatchJob] = {}
    for line in text.splitlines():
        parts = line.split(separator, 8)
        if len(parts) != 9:
            continue
        shown, job, word, reason, nodes, status, started, ended, name = parts
        state, bare = state_of(word)
        code, signal = exit_of(status) if state in OVER else (None, None)
        by = word.partition(" ")[2]
        outcome = BatchOutcome(
            state,
            word=bare,
            reason=by if reason in _NO_REASON else reason,
            exit_code=code,
            signal=signal,
            nodes=nodes_of(nodes),
            started=seconds_of(started),
            ended=seconds_of(ended) if state in OVER else None,
        )
        if "_" in shown:
            job = shown
        before = jobs.get(job)
        if before is not None:
            gone = before.outcome
            outcome = replace(
                outcome, restarts=gone.restarts + 1, node_events=(*gone.node_events, ended_event(gone))[-8:]
            )
        jobs[job] = BatchJob(job, name, outcome)
    return jobs


def joined(
    queue: BatchOutcome | None, accounting: BatchOutcome | None, *, queue_answers: bool, accounting_answers: bool
) -> BatchOutcome:
    """One outcome from two sources. The queue is newer; only the accounting has what the queue forgot; absence proves nothing."""
    if queue is not None and queue.state is not BatchState.UNKNOWN:
        if accounting is None:
            return queue
        events = accounting.node_events
        if queue.state is BatchState.WAITING and accounting.state in OVER:
            # Queued again: the accounting learns of the new start only when it may begin, and still reports the one before.
            events = (*events, ended_event(accounting))[-8:]
        return replace(
            queue,
            reason=queue.reason or (accounting.reason if accounting.state in OVER else ""),
            nodes=queue.nodes or accounting.nodes,
            restarts=max(queue.restarts, accounting.restarts),
            node_events=events,
        )
    if accounting is not None:
        if accounting.state in OVER:
            return accounting
        # Recorded at its start and never closed: the queue would know whether it still runs.
        why = "the queue no longer lists it" if queue_answers else "the queue does not respond"
        return replace(accounting, state=BatchState.UNKNOWN, reason=f"{accounting.word} by the accounting; {why}")
    if queue is not None:
        return queue
    return FORGOTTEN if queue_answers and accounting_answers else SILENT


@dataclass(frozen=True, slots=True)
class NodeWord:
    """The present state of a node in Slurm."""

    state: str
    reason: str

    @property
    def unheard(self) -> bool:
        """Whether it is down, or does not respond (an asterisk after its state)."""
        return self.state.endswith("*") or self.state.lower().startswith(("down", "fail", "powered_down"))

    def __str__(self) -> str:
        bare = self.state.rstrip("*").upper()
        state = f"{bare} and not responding" if self.state.endswith("*") else bare
        return f"{state} ({self.reason})" if self.reason else state


def read_nodes(text: str) -> dict[str, NodeWord]:
    """Nodes by name, from ``name|state|reason`` lines."""
    words: dict[str, NodeWord] = {}
    for line in text.splitlines():
        name, _, rest = line.partition("|")
        state, _, reason = rest.partition("|")
        if state:
            words[name] = NodeWord(state, "" if reason == "none" else reason)
    return words


def with_nodes(outcome: BatchOutcome, nodes: Mapping[str, NodeWord]) -> BatchOutcome:
    """The outcome with the states of its nodes; an end that an unreachable node cannot have confirmed does not count."""
    unheard = [node for node in outcome.nodes if node in nodes and nodes[node].unheard]
    if not unheard:
        return outcome
    events = (*outcome.node_events, *(f"{node}: {nodes[node]}" for node in unheard))[-8:]
    lost = outcome.state is BatchState.ENDED and outcome.word not in TOLD_BY_NODE and outcome.started is not None
    return replace(outcome, node_events=events, state=BatchState.LOST if lost else outcome.state)


def oldest_first(jobs: Iterable[BatchJob]) -> tuple[BatchJob, ...]:
    """The jobs by Slurm's ids, which increase."""
    return tuple(sorted(jobs, key=lambda job: (len(job.id), job.id)))
