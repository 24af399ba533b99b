"""One queue along the scan of a recovery: what its records say of their queue offsets, as a state machine.

A queue is followed in runs: records of it that stand one after the other in the log and say consecutive numbers.  What
a run says, beside the number that is expected, leads from one state to another, by `TABLE`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rmqstore.formats.names import QueueKey


class State(Enum):
    """The state of knowledge about a queue at a place of the log."""

    EMPTY = 0  # no entry of it stays and no record of it was met: any number may come
    FOLLOWING = 1  # one number is expected
    REPEATING = 2  # one number is expected, and another one from numbers that come a second time
    DOUBTFUL = 3  # a single record did not continue the queue: the next one tells whether it lies


class Says(Enum):
    """The meaning of a run's numbers."""

    FIRST = 0  # they are the first of the queue
    NEXT = 1  # the number that is expected
    SECOND = 2  # they go on coming a second time
    ALONE = 3  # any other number, and it is a single record
    BACK = 4  # numbers that the queue has already
    ZERO = 5  # the queue begins again, at 0 or where its files begin
    AHEAD = 6  # numbers that leave some out
    BEFORE_ONE = 7  # they go back, and all that was met before is one record, in a log that has lost nothing


class Step(Enum):
    """The step that a run leads to: how much of it is kept."""

    TAKE = 0  # it continues the queue
    LEAVE = 1  # as in RocketMQ, the records that had these numbers first have the places
    HOLD = 2  # nothing yet
    BEGIN = 3  # the queue begins with it: its topic was deleted and made again
    JUMP = 4  # the queue begins with it, and what is between is missing
    DISOWN = 5  # the queue begins with it: the one record before it lies


# A doubt is settled before the next run is looked at: see `QueueTrack._settle`.
TABLE: Mapping[tuple[State, Says], tuple[State, Step]] = {
    (State.EMPTY, Says.FIRST): (State.FOLLOWING, Step.BEGIN),
    (State.FOLLOWING, Says.NEXT): (State.FOLLOWING, Step.TAKE),
    (State.FOLLOWING, Says.ALONE): (State.DOUBTFUL, Step.HOLD),
    (State.FOLLOWING, Says.BACK): (State.REPEATING, Step.LEAVE),
    (State.FOLLOWING, Says.ZERO): (State.FOLLOWING, Step.BEGIN),
    (State.FOLLOWING, Says.AHEAD): (State.FOLLOWING, Step.JUMP),
    (State.FOLLOWING, Says.BEFORE_ONE): (State.FOLLOWING, Step.DISOWN),
    (State.REPEATING, Says.SECOND): (State.REPEATING, Step.LEAVE),
    (State.REPEATING, Says.NEXT): (State.REPEATING, Step.TAKE),
    (State.REPEATING, Says.ALONE): (State.DOUBTFUL, Step.HOLD),
    (State.REPEATING, Says.BACK): (State.REPEATING, Step.LEAVE),
    (State.REPEATING, Says.ZERO): (State.FOLLOWING, Step.BEGIN),
    (State.REPEATING, Says.AHEAD): (State.FOLLOWING, Step.JUMP),
    (State.REPEATING, Says.BEFORE_ONE): (State.FOLLOWING, Step.DISOWN),
}


@dataclass(frozen=True, slots=True)
class Contradiction:
    """The record at `offset` of the log says a queue offset that cannot be; `expected` is the one that could.

    `is_lie`: the records after it go on as if it had said `expected`, or there is none.  Else they go on from what
    it says: the messages between the two are missing in the log; or it says 0, and nobody can tell.
    """

    offset: int
    key: QueueKey
    says: int
    expected: int
    is_lie: bool

    @property
    def reason(self) -> str:
        """The contradiction as a sentence."""
        name = f"{self.key[0]}/{self.key[1]}"
        if self.key[1] < 0:
            return f"the record says queue id {self.key[1]}, which no queue has"
        if not self.is_lie and not self.says:
            return (
                f"{name} is at queue offset {self.expected}, and one record says 0: it is damaged, or its topic was "
                "deleted and made again"
            )
        if self.is_lie:
            return f"the record says queue offset {self.says} of {name}, which is at {self.expected}"
        return f"the queue offsets of {name} jump from {self.expected} to {self.says}"


class Run(NamedTuple):
    """`message_count` records of one queue that say queue offsets from `says` on, the first at `offset` of the log.

    `is_known`: an entry of the queue's files agrees with that.
    """

    offset: int
    says: int
    message_count: int
    is_known: bool = False

    @property
    def end(self) -> int:
        """The queue offset after the run."""
        return self.says + self.message_count


@dataclass(frozen=True, slots=True)
class ScanFacts:
    """`compare`: entries are held against records, and right ones stay.  `begins_with_log`: nothing older than
    what the scan meets can be found; `is_complete`: and that log has lost nothing either, it begins at 0.
    """

    compare: bool
    begins_with_log: bool
    is_complete: bool


@dataclass(slots=True)
class QueueTrack:
    """One queue along the scan.

    The entries of its files below queue offset `kept` stay (None: the files are of no use); `next` is the queue offset
    after the records seen.  Records before `begin` of the log are not for it: they belong to an older queue of its
    name, or cannot be reached.  `restart` is the queue offset at which it begins again where no entry is kept.
    `rewriting`: what comes is to be written, whatever entries there are.  `made_again_at`: records of it were met in
    front of this place, where the first message stands that its files have: its topic was deleted and made again.

    `matched` counts the records that entries which stay point at, and `newest` has queue offset and place of the last
    such; `repeats`: some say numbers that older ones have.
    `again` is the other number that is expected while numbers come a second time, `left` the first run of such;
    `held` the record in doubt, and `doubted_in` the state that it was met in.
    """

    key: QueueKey
    kept: int | None
    next: int | None
    begin: int = 0
    restart: int | None = None
    first_missing: int | None = None
    message_count: int = 0
    matched: int = 0
    newest: tuple[int, int] | None = None
    has_hole: bool = False
    rewriting: bool = False
    repeats: bool = False
    made_again_at: int | None = None
    state: State = State.EMPTY
    again: int | None = None
    left: Run | None = None
    held: Run | None = None
    doubted_in: State = State.FOLLOWING

    def __post_init__(self) -> None:
        if self.next is not None:
            self.state = State.FOLLOWING

    @property
    def left_out(self) -> Run | None:
        """The first run, where entries stay and no record is theirs or goes on from them: all have lower numbers."""
        return self.left if self.kept is not None and self.first_missing is None and not self.matched else None

    def match(self, count: int, queue_offset: int, place: int) -> None:
        """Entries that stay point at `count` records, the last of which says that queue offset, and stands there."""
        self.matched += count
        self.newest = queue_offset, place

    def cut(self, kept: int | None) -> None:
        """Only the entries below `kept` stay, None: none do; what follows is to be written again."""
        self.kept = self.next = kept
        self.state = State.EMPTY if kept is None else State.FOLLOWING
        self.rewriting = True

    def follow(self, run: Run, facts: ScanFacts, *, may_lack_older: bool) -> list[Contradiction]:
        """Takes the next run; what it contradicts.  `may_lack_older`: if the first number that is met is not 0, older
        messages of the queue are missing.
        """
        found = self._settle(run.says, facts) if self.state is State.DOUBTFUL else []
        self.has_hole |= self.state is State.EMPTY and run.says > 0 and may_lack_older
        before = self.state
        self.state, step = TABLE[before, self._meaning(run, facts)]
        if step is Step.HOLD:
            self.held, self.doubted_in = run, before
            return found
        found += self._keep(step, run, facts)
        self.next = max(self.next or 0, run.end)
        self.message_count += run.message_count
        self._end_repetition()
        return found

    def finish(self, facts: ScanFacts) -> list[Contradiction]:
        """No record comes any more: one that is in doubt lies, unless older ones are still to be read."""
        if self.state is not State.DOUBTFUL:
            return []
        assert self.held is not None
        if not self.message_count and not facts.begins_with_log:
            self.has_hole = True  # its older records will tell
            self.held, self.state = None, self.doubted_in
            return []
        if self.held.says == 0:  # the queue of a topic made again just before a crash looks like that
            return [self._doubt(), *self._believe(facts)]
        return [self._lie()]

    def doubt_entries(self, left: Run, facts: ScanFacts) -> list[Contradiction]:
        """`left_out` contradicts the entries that stay, and these lead to nothing.  Older records tell, if any."""
        self.has_hole |= not facts.begins_with_log
        if self.has_hole:
            return []
        return [Contradiction(left.offset, self.key, left.says, self.kept or 0, is_lie=False)]

    def _meaning(self, run: Run, facts: ScanFacts, *, is_backed: bool = False) -> Says:
        """The meaning of a run in the present state; `is_backed`: it is known to be more than a single record."""
        if self.state is State.EMPTY:
            return Says.FIRST
        assert self.next is not None
        if self.state is State.REPEATING and run.says == self.again:
            return Says.SECOND
        if run.says == self.next:
            return Says.NEXT
        if run.message_count == 1 and not is_backed and not run.is_known:
            return Says.ALONE
        if run.is_known and run.says < self.next:
            return Says.ZERO
        if not 0 < run.says < self.next:
            return Says.AHEAD if run.says > self.next else Says.ZERO
        is_one = bool(self.restart) and self.message_count == 1 and facts.is_complete
        return Says.BEFORE_ONE if is_one else Says.BACK

    def _keep(self, step: Step, run: Run, facts: ScanFacts) -> list[Contradiction]:
        """Does what the table says of a run, but for counting it."""
        found = []
        expected = self.next or 0
        if step is Step.TAKE:
            self.first_missing = run.offset if self.first_missing is None else self.first_missing
        elif step is Step.LEAVE:
            self.again, self.repeats = run.end, True
            self.left = self.left or run
        elif step is Step.DISOWN:
            found.append(Contradiction(self.first_missing or 0, self.key, expected - 1, run.says - 1, is_lie=True))
        elif step is Step.JUMP and not self.message_count and not facts.begins_with_log:
            self.has_hole = True
        elif step is Step.JUMP:
            found.append(Contradiction(run.offset, self.key, run.says, expected, is_lie=False))
        if step in (Step.BEGIN, Step.JUMP, Step.DISOWN):
            self._begin_with(run, facts)
        return found

    def _begin_with(self, run: Run, facts: ScanFacts) -> None:
        if facts.compare or self.first_missing is not None:
            self.begin = run.offset
        self.restart, self.first_missing = run.says, run.offset
        self.kept, self.next, self.message_count, self.again = None, run.says, 0, None

    def _settle(self, says: int, facts: ScanFacts) -> list[Contradiction]:
        """`says` is where the queue goes on after the record in doubt: by it, or as if it had said another number."""
        assert self.held is not None
        held = self.held
        if says == held.says == 0:  # begun again, and again
            return self._believe(facts)
        if says != held.end:
            found = [self._lie()]
            if self.next is not None and says == self.next + 1:
                self.next = says  # the lying record has the place between
            return found
        return self._believe(facts)

    def _believe(self, facts: ScanFacts) -> list[Contradiction]:
        """The record in doubt is right."""
        assert self.held is not None
        held, self.held, self.state = self.held, None, self.doubted_in
        self.state, step = TABLE[self.state, self._meaning(held, facts, is_backed=True)]
        found = self._keep(step, held, facts)
        if self.state is not State.REPEATING:
            self.next = held.end
        return found

    def _doubt(self) -> Contradiction:
        """Nobody can tell whether the record in doubt is right."""
        assert self.held is not None
        return Contradiction(self.held.offset, self.key, self.held.says, self.next or 0, is_lie=False)

    def _lie(self) -> Contradiction:
        """The record in doubt lies: the queue is as it was before it."""
        assert self.held is not None
        held, self.held, self.state = self.held, None, self.doubted_in
        return Contradiction(held.offset, self.key, held.says, self.next or 0, is_lie=True)

    def _end_repetition(self) -> None:
        if self.again is not None and self.again == self.next:
            self.again, self.state = None, State.FOLLOWING
