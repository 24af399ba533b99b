"""Programs with delays, transactions and a consumer that are killed for real, again and again:
`python -m tests.crash.broker_killed_writer DIRECTORY CYCLES SEED`.

As `killed_writer.py`.  Each program has a thread for the store's own work, as time runs a hundred times as fast in it,
and one each that puts delayed messages, decides transactions, and consumes.  What was answered goes into a pipe.
"""

import json
import os
import random
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.broker.transaction_messages import TransactionState
from rmqstore.engine.store import Store, open_store
from rmqstore.formats.stored_message import StoredMessage
from tests.crash.killed_child import told_failure, told_until_killed

CONFIG = StoreConfig(
    flush="SYNC", preallocate=False, log_file_size=32 * 1024, queue_file_size=2000, index_slot_count=50,
    index_item_count=100,
    default_queue_nums=2, delay_levels="1s 2s 4s", transaction_timeout_ms=10**9, transaction_check_interval_ms=10**9,
    busy_timeout_ms=10**9, sync_flush_timeout_ms=60_000,
)  # fmt: skip
SPEED = 100
GROUP, TOPIC, QUEUES = "billing", "orders", 2
KILLS_PER_STORE = 10


class FastClock:
    """A clock that all programs of a run share, in which time runs fast."""

    def now_ms(self) -> int:
        return time.time_ns() * SPEED // 1_000_000 % 10**13

    def monotonic_s(self) -> float:
        return time.monotonic() * SPEED


@dataclass(slots=True)
class Told:
    """What the programs of a store were told, by the body of a message or the number of a queue."""

    delayed: dict[str, tuple[int, int]] = field(default_factory=dict)  # -> when it was put, level
    prepared: set[str] = field(default_factory=set)
    asked: dict[str, str] = field(default_factory=dict)  # -> "commit" or "rollback", maybe without an answer
    decided: dict[str, str] = field(default_factory=dict)
    got: set[str] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)

    def take(self, line: str) -> None:
        verb, name, *numbers = line.split(" ")
        if verb == "delayed":
            self.delayed[name] = int(numbers[0]), int(numbers[1])
        elif verb == "prepared":
            self.prepared.add(name)
        elif verb == "asked":
            self.asked[name] = numbers[0]
        elif verb == "decided":
            self.decided[name] = numbers[0]
        elif verb == "got":
            self.got.add(name)
        elif verb == "offset":
            self.offsets[int(name)] = int(numbers[0])


def read_all(store: Store) -> list[StoredMessage]:
    found = []
    for queue_id in range(QUEUES):
        offset, behind = store.bounds(TOPIC, queue_id)
        while offset < behind:
            messages = store.get(TOPIC, queue_id, offset, 200).messages
            assert messages, (queue_id, offset)
            found += messages
            offset += len(messages)
    return found


def verify(store: Store, told: Told) -> None:
    """Fates, offsets and times, as they are right after the opening."""
    messages = read_all(store)
    shown = Counter((message.body or b"").decode() for message in messages)
    pending = Counter(each.transaction_id for each in store.transactions.pending())
    for message in messages:
        assert message.is_whole, message.corrupt_reason
        put_ms, level = told.delayed.get((message.body or b"").decode(), (0, 0))
        assert message.store_timestamp_ms >= put_ms + (1000 << level >> 1 if level else 0), f"{message} came early"
    for name in told.prepared:
        fate, asked = told.decided.get(name, ""), told.asked.get(name, "")
        assert pending[name] + shown[name] <= 2, name
        assert shown[name] <= (asked == "commit"), f"{name} is there {shown[name]} times, asked: {asked!r}"
        if fate:
            assert not pending[name], f"{name} is open again, and was told {fate}"
            assert shown[name] == (fate == "commit"), f"{name} is there {shown[name]} times, and was told {fate}"
        elif asked != "rollback":
            assert pending[name] == 1 or shown[name], f"{name} is lost"
    for queue_id, offset in told.offsets.items():
        found = store.offsets.committed(GROUP, TOPIC, queue_id)
        assert found is not None, f"queue {queue_id}: {offset} was committed, now nothing"
        assert offset <= found <= store.bounds(TOPIC, queue_id)[1], (queue_id, offset, found)


def verify_last(root: str, told: Told) -> None:
    """Lets all delays pass: none is lost, and the group has got everything."""
    clock = ManualClock(FastClock().now_ms() + 1000)
    with open_store(root, CONFIG, clock=clock, workers=False) as store:
        consumer = store.consumer(GROUP, TOPIC)
        for _ in range(20):
            clock.advance(10_000)
            store.step()
        assert (store.delay.pending_count, store.health().dispatch_behind_bytes) == (0, 0)
        while messages := consumer.poll():
            told.got.update((message.body or b"").decode() for message in messages)
        shown = {(message.body or b"").decode() for message in read_all(store)}
        assert not told.delayed.keys() - shown, f"lost: {sorted(told.delayed.keys() - shown)[:5]}"
        assert not shown - told.got, f"passed over: {sorted(shown - told.got)[:5]}"


def stored(result: PutResult) -> PutResult:
    assert result.status is PutStatus.PUT_OK, result
    return result


class Program:
    """One process's threads; each line it writes is an answer that it had."""

    def __init__(self, store: Store, cycle: int, pipe: int) -> None:
        self.store, self.cycle, self.pipe = store, cycle, pipe
        self.clock = FastClock()
        self.asked_before: dict[str, str] = {}

    def tell(self, *words: object) -> None:
        os.write(self.pipe, " ".join(map(str, words)).encode() + b"\n")

    def run(self) -> None:
        threads = [threading.Thread(target=self.guarded, args=(each,), daemon=True)
                   for each in (self.work, self.delay, self.decide, self.consume)]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def guarded(self, part) -> None:
        try:
            part()
        except BaseException:  # noqa: BLE001  it is all to be told
            os.write(self.pipe, told_failure())

    def work(self) -> None:
        while True:
            self.store.step()
            assert self.store.health().is_writable, self.store.health()
            threading.Event().wait(0.001)

    def delay(self) -> None:
        chance = random.Random(self.cycle)
        for number in range(1_000_000):
            name, level = f"d{self.cycle}-{number}", chance.randint(1, 3)
            put_ms = self.clock.now_ms()
            message = Message(TOPIC, name.encode(), properties={"DELAY": str(level)}, queue_id=number % QUEUES)
            stored(self.store.put(message))
            self.tell("delayed", name, put_ms, level)

    def decide(self) -> None:
        chance = random.Random(-self.cycle)
        transactions = self.store.transactions
        for prepared in transactions.pending():  # what earlier programs left
            self.end(prepared.transaction_id, prepared, chance.choice(("commit", "rollback")))
        for number in range(1_000_000):
            name = f"t{self.cycle}-{number}"
            message = Message(TOPIC, name.encode(), properties={"UNIQ_KEY": name}, queue_id=number % QUEUES)
            prepared = transactions.prepared(stored(transactions.prepare(message, "shop")))
            self.tell("prepared", name)
            if number % 3:
                self.end(name, prepared, chance.choice(("commit", "rollback")))

    def end(self, name: str, prepared, fate: str) -> None:
        transactions = self.store.transactions
        before = self.asked_before.get(name)
        fate = before or fate  # a producer does not change its mind
        if before is None:
            self.tell("asked", name, fate)
        stored((transactions.commit if fate == "commit" else transactions.rollback)(prepared))
        self.tell("decided", name, fate)

    def consume(self) -> None:
        consumer = self.store.consumer(GROUP, TOPIC)
        while True:
            messages = consumer.poll(5)
            for message in messages:
                self.tell("got", (message.body or b"").decode())
            consumer.commit()
            if messages:
                positions = {queue_id: consumer.position(TOPIC, queue_id) for queue_id in range(QUEUES)}
                for queue_id, position in positions.items():
                    if position is not None:
                        self.tell("offset", queue_id, position)
            else:
                threading.Event().wait(0.002)


def cycle_of(root: str, cycle: int, told: Told, chance: random.Random) -> str | None:
    """One program and its end; takes in what it was told.  Returns what went wrong, if anything."""

    def run(pipe: int) -> None:
        store = open_store(root, CONFIG, clock=FastClock(), workers=False, check=lambda _: TransactionState.UNKNOWN)
        verify(store, told)
        os.write(pipe, b"ready -\n")
        program = Program(store, cycle, pipe)
        program.asked_before = dict(told.asked)
        program.run()

    lines, failure = told_until_killed(run, chance, opening_share=0.2, opening_s=0.03, lines_max=60)
    if failure is None:
        for line in lines:
            told.take(line)
    return failure


def main(directory: str, cycles: int, seed: int) -> dict[str, object]:
    """All cycles, until one fails."""
    chance = random.Random(seed)
    told = Told()
    counts: Counter[str] = Counter()
    for cycle in range(cycles):
        root = os.path.join(directory, f"store{cycle // KILLS_PER_STORE}")
        failure = cycle_of(root, cycle, told, chance)
        if failure is None and cycle % KILLS_PER_STORE == KILLS_PER_STORE - 1:
            try:
                verify_last(root, told)
            except BaseException:  # noqa: BLE001  it is all to be told
                failure = traceback.format_exc()
            counts.update(delayed=len(told.delayed), decided=len(told.decided), got=len(told.got))
            told = Told()
        if failure is not None:
            return {"cycles": cycle, "failure": failure, "store": root}
        if cycle % KILLS_PER_STORE == KILLS_PER_STORE - 1:
            shutil.rmtree(root)
    return {"cycles": cycles, "failure": None, **counts}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))  # noqa: T201
