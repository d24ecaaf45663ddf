"""Calls as workflows of DBOS, durable in a database of PostgreSQL that is given. It runs them in threads of its process.

Short calls have as many threads as DBOS takes by itself, since each waits for the database; of the longer ones so many run at once as there are workers.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS, DBOSConfig

from bench.peers import calls
from bench.peers.answering import answer, timed

SENDERS = 8
"""Threads that start workflows, since each start waits for the database's disk."""


def main(workers: int, database: str) -> None:
    DBOS(config=DBOSConfig(name="bench", system_database_url=database, log_level="WARNING"))
    room = threading.Semaphore(workers)

    @DBOS.workflow()
    def plus(number: int) -> int:
        return calls.plus(number)

    @DBOS.workflow()
    def nap(seconds: float) -> float:
        with room:
            return calls.nap(seconds)

    DBOS.launch()
    senders = ThreadPoolExecutor(SENDERS)

    def mapped(many: int, seconds: float) -> float:
        def work() -> None:
            begin = (
                (lambda _: DBOS.start_workflow(nap, seconds)) if seconds else (lambda n: DBOS.start_workflow(plus, n))
            )
            waiting = list(senders.map(begin, range(many)))
            calls.check((entry.get_result() for entry in waiting), many, seconds)

        return timed(work)

    answer(map=mapped)
    DBOS.destroy()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
