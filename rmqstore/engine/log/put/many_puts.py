"""Puts of many messages at once, of any topics and queues: one answer each, those of `Appender.put`, in their order.

All are looked at before one is stored: hooks are asked, types checked, records made.  Then they are appended, runs of
plain messages in vectors, the others as single puts have them, and those that wait for the disk wait once, at the end.
"""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from rmqstore.clock import Clock
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.log.encode.columns import EncodedColumns
from rmqstore.engine.log.encode.message_rows import message_rows
from rmqstore.engine.log.encode.record_frame import Frame, RecordForm, frame_of, has_plain_types
from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.engine.log.put.confirmation import Confirmation, waits_for_disk
from rmqstore.engine.log.put.deferred_put import DeferredPut, DeferredPuts
from rmqstore.engine.log.put.gate import Gate
from rmqstore.engine.log.put.refusal_reasons import refusal_reason
from rmqstore.engine.log.put.turn import Placed, PlacedRows, Turns, WaitingFrame
from rmqstore.errors import StoreClosed, StoreError
from rmqstore.formats import properties, sys_flag
from rmqstore.formats.message_fields import explain, with_plain_numbers
from rmqstore.formats.message_id import offset_message_id, offset_message_ids

# Messages that are made into records in vectors together; from so many on it pays.
_RUN_MAX = 4096
_RUN_MIN = 128

Amounts = MutableMapping[str, tuple[int, int]]
Answer = PutResult | Exception
_result: Any = partial(tuple.__new__, PutResult)  # a fifth of the price of calling it


class PutParts(NamedTuple):
    """The parts of an appender that its puts go by."""

    log: CommitLog
    clock: Clock
    gate: Gate
    form: RecordForm
    turns: Turns
    confirmation: Confirmation
    deferred: DeferredPuts


@dataclass(slots=True)
class _Run:
    """Messages with their `numbers` among all that are put, and what is appended of them."""

    numbers: Sequence[int]
    messages: Sequence[Message]
    made: EncodedColumns | list[WaitingFrame] | DeferredPut
    waits: Sequence[bool] | None  # None: all


class _Together:
    """Frames that are appended in one turn."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._messages: list[Message] = []
        self._frames: list[WaitingFrame] = []
        self._waits: list[bool] = []

    def add(self, number: int, message: Message, frame: Frame, waits: bool) -> None:
        self._numbers.append(number)
        self._messages.append(message)
        self._frames.append(WaitingFrame(frame, 1 if frame.is_counted else 0))
        self._waits.append(waits)

    def taken(self) -> list[_Run]:
        """The run of what was added since, if anything was."""
        if not self._frames:
            return []
        run = _Run(self._numbers, self._messages, self._frames, self._waits)
        self._numbers, self._messages, self._frames, self._waits = [], [], [], []
        return [run]


class ManyPuts:
    """One call of `Appender.put_many`: made for it, with its messages.

    `answers` has one for each message once `put` returned; `amounts` by topic, that of the message as it was given, how
    many were stored, and their bytes; `failed_count` how many were not.  With `keeps_errors` what is no message at all
    gets its error for an answer, and the others are stored; else that is raised, with nothing stored.
    """

    def __init__(self, parts: PutParts, messages: Sequence[Message], *, keeps_errors: bool = False) -> None:
        self._parts = parts
        self._given = messages
        self._keeps_errors = keeps_errors
        self._now_ms = parts.clock.now_ms()
        self.answers: list[Answer] = [_NOT_YET] * len(messages)
        self._waiting: list[int] = []  # the numbers of those that are stored and wait
        self.amounts: dict[str, tuple[int, int]] = {}
        self.failed_count = len(messages)

    def put(self) -> None:
        """Raises WrongType and what a hook raises, with nothing stored, unless errors are kept; DurabilityLost."""
        runs: list[_Run] = []
        for first in range(0, len(self._given), _RUN_MAX):
            messages = self._given[first : first + _RUN_MAX]
            runs += self._runs_of(range(first, first + len(messages)), messages, self._asks_nobody())
        for run in runs:
            if isinstance(run.made, EncodedColumns):
                self._append_rows(run, run.made)
            elif isinstance(run.made, DeferredPut):
                self._append_deferred(run, run.made)
            else:
                self._append_frames(run, run.made)
        if self._waiting:
            self._confirm()

    def refuse(self, answer: PutResult) -> None:
        """Answers all alike, with nothing stored."""
        self.answers = [answer] * len(self._given)

    def _asks_nobody(self) -> bool:
        return not self._parts.gate.hooks

    def _runs_of(self, numbers: Sequence[int], messages: Sequence[Message], is_asked: bool) -> Iterator[_Run]:
        """The messages as they are appended; what is refused gets its answer.  `is_asked`: the hooks were asked."""
        gate, form = self._parts.gate, self._parts.form
        is_plain = is_asked or not gate.asks_of_each
        if len(messages) >= _RUN_MIN and is_plain:
            apart = self._parts.deferred.names if is_asked else gate.deciding | self._parts.deferred.names
            rows = message_rows(messages, form, self._now_ms, apart)
            if rows is not None and (is_asked or gate.admit(rows.records.queues) is None):
                yield _Run(numbers, messages, rows.records, rows.waits)
                return
        if not is_asked:
            yield from self._runs_of(*self._asked(numbers, messages), is_asked=True)
        elif len(messages) >= _RUN_MIN:
            half = len(messages) // 2
            yield from self._runs_of(numbers[:half], messages[:half], is_asked)
            yield from self._runs_of(numbers[half:], messages[half:], is_asked)
        elif messages:
            yield from self._singles(numbers, messages)

    def _asked(self, numbers: Sequence[int], messages: Sequence[Message]) -> tuple[list[int], list[Message]]:
        """Those that the hooks let pass, as they leave them."""
        left: list[int] = []
        chosen: list[Message] = []
        hooked = self._parts.gate.hooked
        for number, message in zip(numbers, messages, strict=True):
            try:
                answer = hooked(message if has_plain_types(message) else with_plain_numbers(message))
            except Exception as error:  # noqa: BLE001  a hook may raise anything
                self._keep(number, message, error)
                continue
            if isinstance(answer, PutResult):
                self.answers[number] = answer
            else:
                left.append(number)
                chosen.append(answer)
        return left, chosen

    def _singles(self, numbers: Sequence[int], messages: Sequence[Message]) -> Iterator[_Run]:
        """Messages as single puts have them: frames that lie next to each other are one run."""
        together = _Together()
        for number, message in zip(numbers, messages, strict=True):
            try:
                made, waits = self._made_of(message), waits_for_disk(message)
            except Exception as error:  # noqa: BLE001  a field may be anything
                self._keep(number, message, error)
                continue
            if isinstance(made, PutStatus):
                self._refuse(number, message, made)
            elif isinstance(made, Frame):
                together.add(number, message, made, waits)
            else:
                yield from together.taken()
                yield _Run([number], [message], made, [waits])
        yield from together.taken()

    def _made_of(self, message: Message) -> Frame | DeferredPut | PutStatus:
        """As `Appender.put` makes it, after the hooks."""
        deferred = self._parts.deferred
        if not has_plain_types(message):
            message = with_plain_numbers(message)
        is_batch = message.sys_flag & sys_flag.INNER_BATCH
        if (is_batch or properties.INNER_COUNT in message.properties) and deferred.refuses(message):
            return PutStatus.MESSAGE_ILLEGAL
        if is_batch or deferred.names:
            put = deferred.put_of(message, self._now_ms)
            if put is not None:
                return put
        return frame_of(message, self._parts.form, self._now_ms)

    def _keep(self, number: int, message: Message, error: Exception) -> None:
        """Raises what a message ended with, in the words of its wrong field if it has one, or keeps that."""
        try:
            explain(error, [message])
        except Exception as better:  # noqa: BLE001  WrongType, or a field that raises whatever it likes
            error = better if isinstance(better, StoreError) else error
        if not self._keeps_errors:
            raise error
        self.answers[number] = error

    def _refuse(self, number: int, message: Message, status: PutStatus) -> None:
        parts = self._parts
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            reason = parts.gate.why_unavailable()
        else:
            reason = refusal_reason(status, [message], parts.form, parts.log.files.file_size)
        self.answers[number] = PutResult(status, reason=reason)

    def _append_rows(self, run: _Run, records: EncodedColumns) -> None:
        done = 0
        while done < records.count:
            placed = self._parts.turns.rows(records, done, records.count)
            if isinstance(placed, PutStatus):  # of this one: there may be room for the next
                self._refuse(run.numbers[done], run.messages[done], placed)
                done += 1
                continue
            results = self._results_of(records, done, placed)
            numbers = run.numbers[done : placed.last]
            if isinstance(numbers, range):  # no hook was asked: they are what was given
                self.answers[numbers.start : numbers.stop] = results
                add_amounts(self.amounts, records.amounts(done, placed.last))
            else:
                for number, result in zip(numbers, results, strict=True):
                    self._answer(number, result)
            self.failed_count -= len(numbers)
            self._note_waiting(run, done, placed.last)
            done = placed.last

    def _results_of(self, records: EncodedColumns, first: int, placed: PlacedRows) -> list[PutResult]:
        last = placed.last
        offsets = records.starts[first:last] + (placed.offset - int(records.starts[first]))
        columns = (
            repeat(PutStatus.PUT_OK),
            offsets.tolist(),
            records.sizes(first, last).tolist(),
            offset_message_ids(self._parts.form.store_host, offsets),
            repeat(placed.store_ms),
            records.queue_offsets(first, last, placed.bases).tolist(),
            repeat(1),
            repeat(""),
        )
        return [*map(_result, zip(*columns, strict=False))]

    def _append_frames(self, run: _Run, frames: list[WaitingFrame]) -> None:
        self._parts.turns.group(frames)
        for place, frame in enumerate(frames):
            outcome = frame.outcome
            if isinstance(outcome, StoreClosed):
                outcome = self._parts.turns.refused(outcome)
            self._settle(run, place, outcome, len(frame.frame.data))

    def _append_deferred(self, run: _Run, put: DeferredPut) -> None:
        placed = self._parts.turns.deferred(put)
        self._settle(run, 0, placed, len(put.frame.data), put.message_count)

    def _settle(self, run: _Run, place: int, outcome: Any, size: int, message_count: int = 1) -> None:
        number = run.numbers[place]
        if isinstance(outcome, PutStatus):
            self._refuse(number, run.messages[place], outcome)
            return
        assert isinstance(outcome, Placed)
        offset, queue_offset, store_ms = outcome
        msg_id = offset_message_id(self._parts.form.store_host, offset)
        self._answer(
            number, _result((PutStatus.PUT_OK, offset, size, msg_id, store_ms, queue_offset, message_count, ""))
        )
        self.failed_count -= 1
        self._note_waiting(run, place, place + 1)

    def _answer(self, number: int, result: PutResult) -> None:
        """That it is stored."""
        self.answers[number] = result
        add_amounts(self.amounts, {self._given[number].topic: (result.message_count, result.size)})

    def _note_waiting(self, run: _Run, first: int, last: int) -> None:
        if not self._parts.confirmation.waits:
            return
        numbers = run.numbers[first:last]
        if run.waits is None:
            self._waiting += numbers
        else:
            self._waiting += [number for number, waits in zip(numbers, run.waits[first:last], strict=True) if waits]

    def _confirm(self) -> None:
        """Waits for the disk, and for slaves, once for all that wait.  Raises DurabilityLost."""
        confirmation, end = self._parts.confirmation, self._parts.log.marks.appended
        status = confirmation.confirm(end) if confirmation.is_sync else PutStatus.PUT_OK
        status = confirmation.replicate(status, end)
        if status is PutStatus.PUT_OK:
            return
        reason = confirmation.reason(status)
        for number in self._waiting:
            answer = self.answers[number]
            assert isinstance(answer, PutResult)
            self.answers[number] = answer._replace(status=status, reason=reason)


def add_amounts(totals: Amounts, more: Mapping[str, tuple[int, int]]) -> None:
    """Adds by topic how many messages, and how many bytes."""
    for topic, (count, size) in more.items():
        before = totals.get(topic, (0, 0))
        totals[topic] = (before[0] + count, before[1] + size)


_NOT_YET = PutResult(PutStatus.UNKNOWN_ERROR)
