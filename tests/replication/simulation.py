"""A master and a slave on disks that lose what was not synced, a network that delays, cuts and tears, and a clock that
stands still: everything that happens is drawn from one seed, and can be read afterwards.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.engine import Attached, Engine
from rmqstore.errors import StoreError
from rmqstore.replica.following.follower import Follower
from rmqstore.replica.following.session import ConnectionLost, SlaveSession
from rmqstore.replica.link.master_link import Acknowledged, MasterLink, Pace, SendRegion
from rmqstore.replica.link.slave_link import Drop
from rmqstore.replica.serving.log_for_slaves import LogForSlaves
from tests.crash.disks import MemoryDisk

CONFIG = StoreConfig(log_file_size=4096, queue_file_size=400, index_enabled=False, preallocate=False, statistics=False)
PACE = Pace(block_size=700, rate_bytes_s=0)
_STEPS = 150
# How often the slave finds nothing more to take, after a delivery.
_SETTLES = 0.6
# So many deliveries without a new byte at the end mean that the link is stuck.
_PATIENCE = 400


class Violation(AssertionError):
    """Something that must never happen has happened."""


@dataclass
class Cable:
    """A connection: bytes under way in both directions; `is_cut` once one side knows nothing of the other."""

    to_master: bytearray = field(default_factory=bytearray)
    to_slave: bytearray = field(default_factory=bytearray)


class Pair:
    """Both sides, and what the producer was promised."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.trace: list[str] = [f"seed {seed}"]
        self.clock = ManualClock()
        self.disks = {"master": MemoryDisk(), "slave": MemoryDisk()}
        self.master, self.slave = self._opened("master"), self._opened("slave")
        self.follower = Follower(self.slave, lambda: None)
        self.put_ends: list[tuple[int, bytes]] = []  # end and body of what was put since the master's last crash
        self.promised: dict[bytes, int] = {}  # body -> where its record ends, of what both have
        self.count = 0
        self.cable: Cable | None = None
        self.link: MasterLink | None = None
        self.session: SlaveSession | None = None

    def _opened(self, side: str) -> Engine:
        attached = Attached(follows="the master" if side == "slave" else "")
        return Engine("/store", CONFIG, self.clock, self.disks[side], attached, threads=False)

    def run(self) -> None:
        """Some steps, then peace; checks after each what must hold.  Raises Violation."""
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self.put), (3, self.flush_master), (8, self.connect), (30, self.carry), (16, self.serve), (1, self.cut),
            (2, self.crash_master), (1, self.crash_slave), (2, self.pass_time), (2, self.dispatch), (1, self.delete),
        ]  # fmt: skip
        weights = [weight for weight, _ in actions]
        for _ in range(_STEPS):
            ((_, action),) = self.chance.choices(actions, weights)
            action()
            self.check()
        self.settle()

    def settle(self) -> None:
        """Nothing goes wrong any more: the slave must come to have all that the master has."""
        self.say("peace")
        for _ in range(6):  # in every queue: those of a topic that was deleted begin again
            self.put()
        self.flush_master()
        for _ in range(_PATIENCE):
            if self.slave.log.marks.flushed == self.master.log.marks.appended:
                break
            if self.cable is None:
                self.connect()
            self.serve()
            self.carry(whole=True)
            self.check()
        else:
            raise Violation(f"stuck: the slave is at {self.slave.log.marks.appended}, {self.states()}")
        for engine in (self.master, self.slave):
            engine.catch_up()
            engine.close()
        ours, theirs = map(self._queue_files, ("slave", "master"))
        if ours != theirs:
            different = [path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)]
            raise Violation(f"other queues: {different}")

    def check(self) -> None:
        """What must hold at any moment.  Raises Violation."""
        size = min(self.master.log.marks.appended, self.slave.log.marks.appended)
        if self._log_of(self.slave)[:size] != self._log_of(self.master)[:size]:
            raise Violation("the logs are not the same")
        if self.slave.log.marks.appended > self.master.log.marks.appended:
            raise Violation("the slave has what the master has not")
        for body, end in self.promised.items():
            for name, engine in (("master", self.master), ("slave", self.slave)):
                if engine.log.marks.flushed < end:
                    raise Violation(f"{body!r} was promised up to {end}, and the {name} lost it")

    def put(self) -> None:
        self.count += 1
        body = b"%d " % self.count + b"x" * self.chance.choice((0, 10, 300, 1500))
        result = self.master.put(Message(f"T{self.count % 2}", body, queue_id=self.count % 3))
        self.put_ends.append((result.physical_offset + result.size, body))
        self.say(f"put {self.count} at {result.physical_offset}, {result.size} bytes")

    def delete(self) -> None:
        """A topic goes, and is made again by the next put."""
        topic = f"T{self.chance.randrange(2)}"
        self.say(f"deletes {topic}: {self.master.features.deletion.delete(topic)}")

    def flush_master(self) -> None:
        self.master.log.sync_to(self.master.log.marks.appended, 1)
        self.say(f"master flushed to {self.master.log.marks.flushed}")

    def connect(self) -> None:
        if self.cable is not None:
            return
        self.cable = Cable()
        self.link = MasterLink(self.clock.monotonic_s(), pace=PACE)
        self.session = SlaveSession(self.follower, self.clock.monotonic_s())
        self.cable.to_master += self.session.begin()
        self.say(f"connected, the slave at {self.slave.log.marks.appended}")

    def serve(self) -> None:
        """The master sends a block or two."""
        if self.cable is None or self.link is None:
            return
        log = LogForSlaves(self.master.log)
        if self.chance.random() < 0.5:
            log.sync()
        for _ in range(self.chance.randint(1, 3)):
            more = self.link.more(log.bounds(), self.clock.monotonic_s())
            if isinstance(more, Drop):
                raise Violation(f"the master lets go: {more.reason}")
            if isinstance(more, SendRegion):
                self.cable.to_slave += more.header + self.master.log.read(more.offset, more.size)
                self.say(f"master sends [{more.offset}, {more.offset + more.size})")
            elif more is not None:
                self.cable.to_slave += more.data

    def carry(self, *, whole: bool = False) -> None:
        """Some bytes arrive on either side."""
        if self.cable is None or self.link is None or self.session is None:
            return
        sizes = (5, 1 << 20) if whole else (1, 8, 12, 700, 3000, 1 << 20)
        data = self._taken(self.cable.to_master, self.chance.choice(sizes))
        for answer in self.link.received(data, LogForSlaves(self.master.log).bounds(), self.clock.monotonic_s()):
            if isinstance(answer, Drop):
                self.say(f"the master lets go: {answer.reason}")
                self.cut()
                return
            self._acknowledged(answer)
        data = self._taken(self.cable.to_slave, self.chance.choice(sizes))
        try:
            now_s = self.clock.monotonic_s()
            self.cable.to_master += self.session.received(data, now_s) if data else b""
            if whole or not self.session.takes_more(now_s) or self.chance.random() < _SETTLES:
                self.cable.to_master += self.session.settle(now_s)
        except ConnectionLost as lost:
            self.say(f"the slave lets go: {lost}")
            self.cut()
        except StoreError as error:
            raise Violation(f"the slave ends: {error}") from error

    def pass_time(self) -> None:
        self.clock.advance(self.chance.choice((10, 1000, 6000)))
        self.say(f"time {self.clock.monotonic_s():.2f}")
        if self.cable is None or self.session is None or self.link is None:
            return
        try:
            self.cable.to_master += self.session.tick(self.clock.monotonic_s())
        except ConnectionLost as lost:
            self.say(f"the slave lets go: {lost}")
            self.cut()
            return
        if self.link.tick(self.clock.monotonic_s()):
            self.say("the master lets go: silence")
            self.cut()

    def cut(self) -> None:
        if self.cable is not None:
            self.say("cut")
        self.cable = self.link = self.session = None

    def crash_master(self) -> None:
        """The power of the master goes; what it had not synced may be gone."""
        self.cut()
        self.master = self._after_crash("master", self.master)
        end = self.master.log.marks.appended
        self.put_ends = [put for put in self.put_ends if put[0] <= end]
        self.say(f"master crashed, and is at {end}")

    def crash_slave(self) -> None:
        self.cut()
        self.slave = self._after_crash("slave", self.slave)
        self.follower = Follower(self.slave, lambda: None)
        self.say(f"slave crashed, and is at {self.slave.log.marks.appended}")

    def dispatch(self) -> None:
        for engine in (self.master, self.slave):
            engine.catch_up()

    def _after_crash(self, side: str, engine: Engine) -> Engine:
        engine.abandon()
        how = self.chance.choice(("lost", "kept", "killed", self.chance))
        self.disks[side] = self.disks[side].crash(how)
        again = self._opened(side)
        again.catch_up()
        return again

    def _acknowledged(self, answer: Acknowledged) -> None:
        self.say(f"acknowledged {answer.offset}")
        for end, body in self.put_ends:
            if end <= answer.offset:
                self.promised[body] = end
        self.put_ends = [put for put in self.put_ends if put[0] > answer.offset]

    @staticmethod
    def _taken(data: bytearray, size: int) -> bytes:
        taken = bytes(data[:size])
        del data[:size]
        return taken

    @staticmethod
    def _log_of(engine: Engine) -> bytes:
        return engine.log.read(0, engine.log.marks.appended)

    def _queue_files(self, side: str) -> dict[str, bytes]:
        return {path: data for path, data in self.disks[side].image().items() if "/consumequeue/" in path}

    def states(self) -> str:
        link, session = self.link, self.session
        sent, phase = link and link.next, session and session.link.phase
        return f"master {self.master.log.marks.appended}, sent {sent}, {phase}"

    def say(self, line: str) -> None:
        self.trace.append(line)


def replay(seed: int) -> Pair:
    """Runs a seed.  Raises Violation, with all that happened before it."""
    pair = Pair(seed)
    try:
        pair.run()
    except Exception as error:
        told = "\n  ".join(pair.trace[-60:])
        raise Violation(f"{type(error).__name__}: {error}\n  {told}") from error
    return pair
