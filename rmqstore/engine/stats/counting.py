"""Counting what a store does, thread by thread, and the samples that its rates are made of."""

import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rmqstore.clock import Clock
from rmqstore.core.message import GetResult, GetStatus, PutResult, PutStatus
from rmqstore.engine.stats import BOUNDS_MS, LatencyHistogram, Rates, StoreGauges, StoreStatistics, TopicPuts

_BOUNDS_S = tuple(bound / 1000 for bound in BOUNDS_MS)
_SAMPLING_S = 1.0
_PERIOD_S = 60.0  # putMessageDistributeTime and putLatency99 are of the last of these
_SPANS_S = (10, 60, 600)
_SAMPLES_MAX = 601


class _Tally:
    """The counts of one thread.  Only that thread changes them, so `+=` needs no lock, with the GIL or without.
    Other threads that sum up read whole numbers, though the count and the bytes of a put may be of different moments.
    """

    __slots__ = (
        "failed", "found", "get_max_s", "get_size", "latency", "messages", "missed", "put_max_s", "put_s", "topics",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics: dict[str, list[int]] = {}  # messages, bytes
        self.latency = [0] * (len(_BOUNDS_S) + 1)
        self.put_s = self.put_max_s = self.get_max_s = 0.0
        self.failed = self.found = self.missed = self.messages = self.get_size = 0

    def add(self, other: "_Tally") -> None:
        """Takes over what another counted."""
        for topic, (times, size) in other.topics.copy().items():
            cell = self.topics.setdefault(topic, [0, 0])
            cell[0] += times
            cell[1] += size
        self.latency = [mine + more for mine, more in zip(self.latency, other.latency, strict=True)]
        self.put_s += other.put_s
        self.put_max_s = max(self.put_max_s, other.put_max_s)
        self.get_max_s = max(self.get_max_s, other.get_max_s)
        self.failed += other.failed
        self.found += other.found
        self.missed += other.missed
        self.messages += other.messages
        self.get_size += other.get_size

    def histogram(self) -> LatencyHistogram:
        """The latencies as a value."""
        return LatencyHistogram(tuple(self.latency), self.put_s)


class _Life:
    """Dies with the thread in whose locals it is."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True)
class _Sample:
    """The totals at a moment."""

    at_s: float
    puts: int
    found: int
    missed: int
    messages: int


class Statistics:
    """Counts what a store does; any thread may count and ask.  `gauges` is asked when a value is taken.

    Each thread has a tally of its own, and leaves it to the others when it ends: a put costs 0.25 µs.
    """

    def __init__(self, clock: Clock, gauges: Callable[[], StoreGauges] = StoreGauges) -> None:
        self._clock = clock
        self._gauges = gauges
        self._boot_ms = clock.now_ms()
        self._local = threading.local()
        self._lock = threading.Lock()  # guards all below
        self._tallies: list[tuple[weakref.ref[_Life], _Tally]] = []
        self._ended = _Tally()  # of threads that have ended
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES_MAX)
        self._period_began_s = clock.monotonic_s()
        self._period_start = LatencyHistogram()
        self._minute: LatencyHistogram | None = None

    def put_done(self, topic: str, size: int, seconds: float, count: int = 1) -> None:
        """Counts one put that stored `count` messages of a topic in records of `size` bytes, all together."""
        try:
            tally = self._local.tally
            cell = tally.topics[topic]
        except (AttributeError, KeyError):
            tally = self._mine()
            cell = tally.topics.setdefault(topic, [0, 0])
        cell[0] += count
        cell[1] += size
        tally.latency[bisect_right(_BOUNDS_S, seconds)] += 1
        tally.put_s += seconds
        if seconds > tally.put_max_s:  # noqa: PLR1730  max() costs a third of all this
            tally.put_max_s = seconds

    def columns_done(self, topics: Mapping[str, tuple[int, int]], seconds: float) -> None:
        """Counts one put of messages of several topics: how many of each, and the bytes of their records."""
        tally = self._mine()
        for topic, (count, size) in topics.items():
            cell = tally.topics.setdefault(topic, [0, 0])
            cell[0] += count
            cell[1] += size
        self._took(tally, seconds)

    def put_answered(self, topic: str, result: PutResult, seconds: float) -> None:
        """Counts one put by what it was answered."""
        if result.is_stored:
            self.put_done(topic, result.size, seconds, result.message_count)
        else:
            self.put_failed(seconds)

    def columns_answered(self, amounts: Mapping[str, tuple[int, int]], result: PutResult, seconds: float) -> None:
        """Counts one put of columns, of which `amounts` were stored, by what it was answered."""
        if amounts or result.status is PutStatus.PUT_OK:
            self.columns_done(amounts, seconds)
        else:
            self.put_failed(seconds)

    def many_answered(self, amounts: Mapping[str, tuple[int, int]], failed_count: int, seconds: float) -> None:
        """Counts one put of many messages, of which `amounts` were stored, and each of the others as a failed put."""
        self.columns_done(amounts, seconds)
        self._mine().failed += failed_count

    def put_failed(self, seconds: float) -> None:
        """Counts one put that stored nothing."""
        tally = self._mine()
        tally.failed += 1
        self._took(tally, seconds)

    def get_done(self, result: GetResult, seconds: float) -> None:
        """Counts one read of a queue and what it brought."""
        tally = self._mine()
        if result.status is GetStatus.FOUND:
            tally.found += 1
            tally.messages += len(result.messages)
            tally.get_size += sum([message.store_size for message in result.messages])
        else:
            tally.missed += 1
        tally.get_max_s = max(tally.get_max_s, seconds)

    def step(self) -> float:
        """Takes the sample that rates are made of; returns after how many seconds to call again."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            total = self._total()
            puts = sum(times for times, _ in total.topics.values())
            self._samples.append(_Sample(now_s, puts, total.found, total.missed, total.messages))
            if now_s - self._period_began_s >= _PERIOD_S:
                latency = total.histogram()
                self._minute = latency.since(self._period_start)
                self._period_start, self._period_began_s = latency, now_s
        return _SAMPLING_S

    def snapshot(self) -> StoreStatistics:
        """Everything as one value."""
        gauges = self._gauges()
        with self._lock:
            total = self._total()
            return StoreStatistics(
                boot_ms=self._boot_ms,
                taken_ms=self._clock.now_ms(),
                put_topics={topic: TopicPuts(*cell) for topic, cell in total.topics.items()},
                put_failed=total.failed,
                put_latency=total.histogram(),
                put_minute=self._minute,
                put_max_ms=total.put_max_s * 1000,
                get_found=total.found,
                get_missed=total.missed,
                get_messages=total.messages,
                get_size=total.get_size,
                get_max_ms=total.get_max_s * 1000,
                put_rates=self._rates(lambda sample: sample.puts),
                found_rates=self._rates(lambda sample: sample.found),
                missed_rates=self._rates(lambda sample: sample.missed),
                message_rates=self._rates(lambda sample: sample.messages),
                gauges=gauges,
            )

    def _mine(self) -> _Tally:
        """This thread's tally, a new one at its first count."""
        tally: _Tally | None = getattr(self._local, "tally", None)
        if tally is None:
            tally, life = _Tally(), _Life()
            with self._lock:
                self._tallies.append((weakref.ref(life), tally))
            self._local.life = life
            self._local.tally = tally
        return tally

    def _took(self, tally: _Tally, seconds: float) -> None:
        tally.latency[bisect_right(_BOUNDS_S, seconds)] += 1
        tally.put_s += seconds
        tally.put_max_s = max(tally.put_max_s, seconds)

    def _total(self) -> _Tally:
        """The counts of all threads, also of those that have ended.  Under the lock."""
        for pair in [pair for pair in self._tallies if pair[0]() is None]:
            self._tallies.remove(pair)
            self._ended.add(pair[1])
        total = _Tally()
        for tally in (self._ended, *(tally for _, tally in self._tallies)):
            total.add(tally)
        return total

    def _rates(self, counted: Callable[[_Sample], int]) -> Rates:
        """How a number grew per second, from the newest sample back to the last one so many seconds before it."""
        samples = self._samples
        rates: list[float | None] = [None, None, None]
        for number, span_s in enumerate(_SPANS_S):
            before = bisect_right(samples, samples[-1].at_s - span_s, key=lambda sample: sample.at_s) if samples else 0
            if before:
                then, now = samples[before - 1], samples[-1]
                rates[number] = (counted(now) - counted(then)) / (now.at_s - then.at_s)
        return Rates(*rates)
