"""A pair of stores over a network and disks that fail, from one seed each; and faults that the simulation must find."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from rmqstore.replica.following.follower import Follower
from rmqstore.replica.link import slave_link
from rmqstore.replica.link.master_link import Acknowledged, LogBounds, MasterLink
from rmqstore.replica.link.slave_link import OwnEnd, SlaveLink
from rmqstore.replica.link.wire import Block, BlockReader, ReportReader
from rmqstore.replica.serving.log_for_slaves import LogForSlaves
from tests.replication.simulation import Violation, replay

pytestmark = pytest.mark.stores

# `make sim N=…` asks for more.
SEEDS = int(os.environ.get("RMQSTORE_SIM_SEEDS", "200"))
_FAULT_SEEDS = 40

Patch = pytest.MonkeyPatch


@pytest.mark.some(10)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_slave_comes_to_have_the_masters_log_and_no_promise_is_broken(seed: int) -> None:
    pair = replay(seed)
    assert pair.count
    assert pair.slave.log.marks.flushed == pair.master.log.marks.appended


def no_sync(patch: Patch) -> None:
    """The slave acknowledges what is in its memory only."""
    patch.setattr(Follower, "sync", lambda self: self.end)


def undurable(patch: Patch) -> None:
    """The master sends what its disk has not."""
    patch.setattr(
        LogForSlaves, "bounds",
        lambda self: LogBounds(self._log.start, self._log.marks.appended, self._log.files.file_size),
    )  # fmt: skip


def forgets_a_cut_block(patch: Patch) -> None:
    """The slave begins a new block with every read."""
    plain = BlockReader.read

    def read(self: BlockReader, data: bytes) -> Iterator[Block]:
        self._held.clear()
        return plain(self, data)

    patch.setattr(BlockReader, "read", read)


def forgets_a_cut_report(patch: Patch) -> None:
    """The master begins a new report with every read."""
    plain = ReportReader.read

    def read(self: ReportReader, data: bytes) -> list[int]:
        self._held = b""
        return plain(self, data)

    patch.setattr(ReportReader, "read", read)


def keeps_what_comes_again(patch: Patch) -> None:
    """The rest of a record that one connection left stays for the next one."""
    plain = Follower.own_end

    def own_end(self: Follower) -> OwnEnd:
        held = bytes(self._pending)
        found = plain(self)
        self._pending += held
        return found

    patch.setattr(Follower, "own_end", own_end)


def believes_too_much(patch: Patch) -> None:
    """The master takes an acknowledgement for more than it says."""
    plain = MasterLink.received

    def received(self: MasterLink, *given: Any) -> list[Any]:
        return [Acknowledged(one.offset + 600) if isinstance(one, Acknowledged) else one for one in plain(self, *given)]

    patch.setattr(MasterLink, "received", received)


def says_too_much(patch: Patch) -> None:
    """The slave acknowledges what it has taken and not appended yet."""
    plain = Follower.append

    def append(self: Follower) -> int:
        taken = self.end + len(self._pending)
        return max(plain(self), taken) if len(self._pending) > 2000 else taken

    patch.setattr(Follower, "append", append)


def holds_back(patch: Patch) -> None:
    """The slave waits for more than there is."""
    plain = Follower.append
    patch.setattr(Follower, "append", lambda self: plain(self) if len(self._pending) > 900 else self.end)


def asks_too_far(patch: Patch) -> None:
    """The slave asks for the byte after the one that it needs."""
    plain = SlaveLink.begin

    def begin(self: SlaveLink) -> list[Any]:
        self._reported += 1
        return plain(self)

    patch.setattr(SlaveLink, "begin", begin)


def begins_with_the_newest_file(patch: Patch) -> None:
    """The master sends its newest file, whatever is asked for."""
    patch.setattr(MasterLink, "_first", lambda _self, _report, log: log.end - log.end % log.file_size)


def leaves_out_a_byte(patch: Patch) -> None:
    """The slave loses the last byte of large blocks."""
    plain = SlaveLink._append

    def append(self: SlaveLink, offset: int, data: bytes) -> slave_link.Append:
        found = plain(self, offset, data)
        return slave_link.Append(found.offset, found.data[:-1] if len(data) == 700 else found.data)

    patch.setattr(SlaveLink, "_append", append)


def gives_up_at_once(patch: Patch) -> None:
    """The slave calls a master silent that has only just been heard."""
    patch.setattr(SlaveLink, "received", lambda self, _data, _now_s: iter([slave_link.Drop("silence")]))


FAULTS: list[Callable[[Patch], None]] = [
    no_sync, undurable, forgets_a_cut_block, forgets_a_cut_report, keeps_what_comes_again, believes_too_much,
    says_too_much, holds_back, asks_too_far, begins_with_the_newest_file, leaves_out_a_byte, gives_up_at_once,
]  # fmt: skip


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(Violation):
        replay_all(range(_FAULT_SEEDS))


def replay_all(seeds: Iterable[int]) -> None:
    for seed in seeds:
        replay(seed)
