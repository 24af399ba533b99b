"""A check cycle over 10,000 open transactions, and finding them again when the store is opened.

python -m bench.bench_transactions
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from bench.figures import Figure, table
from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.broker.transaction_check import CheckLimits
from rmqstore.engine.broker.transaction_messages import TransactionState
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.stored_message import StoredMessage
from tests.broker.open_log import Opened

OPEN, OPEN_SMALL = 10_000, 1000
BODY_SIZE = 100
# RocketMQ ends a cycle after 60 s, and begins one every 30 s.  A tenth of that, for a worker beside others.
CYCLE_GOAL_S, LOAD_GOAL_S = 3.0, 3.0
LIMITS = CheckLimits(check_max=15)


def measure(scratch: Path, *, is_small: bool) -> list[Figure]:
    """All figures; the stores are removed again."""
    count = OPEN_SMALL if is_small else OPEN
    figures = []
    for line, state in (("no answer", TransactionState.UNKNOWN), ("all commit", TransactionState.COMMIT)):
        path = scratch / "transactions"
        try:
            figures += _cycles(path, count, line, state)
        finally:
            shutil.rmtree(path, ignore_errors=True)
    return figures


def _cycles(path: Path, count: int, line: str, state: TransactionState) -> list[Figure]:
    asked: list[int] = []

    def check(half: StoredMessage) -> TransactionState:
        asked.append(half.queue_offset)
        return state

    opened = _opened(path, ManualClock(), check)
    for number in range(count):
        message = Message("BenchTopic", bytes(BODY_SIZE), tags="TagA", keys=f"key{number}", queue_id=number % 4)
        assert opened.transactions.prepare(message, "bench").is_stored
    young_s = _seconds(opened.check)
    assert not asked
    opened.clock.advance(30_000)
    opened.dispatch()
    cycle_s = _seconds(opened.transactions.cycle.run)
    assert len(asked) == count
    found = len(opened.transactions.pending())
    assert found == (count if state is TransactionState.UNKNOWN else 0)
    figures = [
        Figure(
            line=f"check cycle, {count} open, {line}", value=cycle_s * 1000, unit="ms",
            against=f"while all are young {young_s * 1000:.1f} ms", judged=cycle_s, goal=CYCLE_GOAL_S, at_least=False,
        )
    ]  # fmt: skip
    opened.dispatch()
    opened.close()
    if found:
        load_s = _seconds(lambda: _opened(path, opened.clock, check).close())
        figures.append(
            Figure(
                line=f"opening with {count} open",
                value=load_s * 1000,
                unit="ms",
                judged=load_s,
                goal=LOAD_GOAL_S,
                at_least=False,
            )
        )
    return figures


def _opened(path: Path, clock: ManualClock, check: Callable[[StoredMessage], TransactionState]) -> Opened:
    config = StoreConfig.embedded(preallocate=False)
    return Opened(RealFileSystem(), config, clock=clock, check=check, limits=LIMITS, path=str(path))


def _seconds(action: Callable[[], object]) -> float:
    began = perf_counter()
    action()
    return perf_counter() - began


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rmqstore-bench-") as directory:
        print(table(measure(Path(directory), is_small=False)))
