"""Faults in a log of DLedger's entries: what is agreed on, what is cut, and who votes."""

from tests.teeth.plant import Edit, Plant, plant

_STORE = "rmqstore/dledger/entry_store.py"
_MEMBER = "rmqstore/dledger/member.py"
_STATE = "rmqstore/dledger/state.py"
_REPAIR = "rmqstore/dledger/repair.py"
_T = "tests/dledger/test_entry_store.py"
_M = "tests/dledger/test_member.py"
_R = "tests/snapshot/survey/test_ledger_stores.py"

PLANTS: tuple[Plant, ...] = (
    plant(
        "entries: what the group agreed on may be gone",
        _STATE,
        "    if committed > last and not may_lack:\n",
        "    if committed > last and not may_lack and last < 0:\n",
        f"{_T}::test_entries_that_the_group_agreed_on_do_not_go_unnoticed",
        finding="DID NOT RAISE StoreDamaged",
    ),
    plant(
        "entries: what the group agreed on is cut",
        _STORE,
        "        if entry.index < self.committed_index:\n",
        "        if entry.index < self.begin_index:\n",
        f"{_T}::test_what_the_group_agreed_on_is_not_cut",
        finding="DID NOT RAISE Rejected",
    ),
    plant(
        "entries: a cut leaves the bytes there",
        _STORE,
        "            self._files.cut(end)\n            self._go_on(end)\n        if not is_same",
        "            self._go_on(end)\n        if not is_same",
        f"{_T}::test_what_is_cut_off_does_not_come_back[5-0-5-366]",
        finding=r"== \(0, 5, 366\)",
    ),
    plant(
        "entries: a follower takes any place",
        _STORE,
        "        self._require_place(entry)\n        self._note_term(entry.term)\n",
        "        self._note_term(entry.term)\n",
        f"{_T}::test_an_entry_that_does_not_follow_is_refused",
        finding=r"AssertionError: \(213, 166\)",
    ),
    plant(
        "entries: a second vote in a term",
        "rmqstore/dledger/entry_rules.py",
        "    if term.number == present.number and present.voted_for not in (None, term.voted_for):\n",
        "    if term.number == present.number and present.voted_for is None and term.voted_for is None:\n",
        f"{_T}::test_one_vote_a_term",
        finding="DID NOT RAISE Rejected|is in it",
    ),
    plant(
        "entries: a torn term counts as none",
        _STATE,
        "    if fs.exists(path):\n",
        "    if not node.directory and fs.exists(path):\n",
        f"{_T}::test_a_torn_term_is_refused",
        finding="DID NOT RAISE StoreDamaged",
    ),
    plant(
        "entries: units of older files are believed",
        _REPAIR,
        "        if not index.is_unit(number, place) or number >= following or not index.is_unit(following - 1):",
        "        if number >= following:",
        f"{_T}::test_an_index_is_made_again_from_the_data[the first unit of an older file]",
        finding="no entry",
    ),
    plant(
        "entries: clean-up looks at no committed entry",
        _STORE,
        "self._space.plan(self._files, flushed, self.committed_end, now_ms, any_age=any_age)",
        "self._space.plan(self._files, flushed, flushed, now_ms, any_age=any_age)",
        f"{_T}::test_clean_space_is_planned_first_and_leaves_what_is_not_agreed_on",
        finding="LogFile",
    ),
    plant(
        "a member: the term stays what it was",
        _MEMBER,
        "        save_term(fs, found.node, Term(self.term, found.settings.self_id))\n",
        "",
        f"{_M}::test_a_member_of_several_goes_on_alone_when_told_to",
        finding=r"currTerm=7.* == .*currTerm=8",
    ),
    plant(
        "a member: a store is converted unasked",
        _MEMBER,
        "    if old and not files and not settings.converts and not term.number:\n",
        "    if old and not files and term.number < 0:\n",
        f"{_M}::test_what_is_refused_is_left_as_it_is[an_ordinary_store]",
        finding="DID NOT RAISE NotAStore",
    ),
    plant(
        "a member: a running node's files are written to",
        _STATE,
        "    if process is not None:\n",
        "    if process == 0:\n",
        f"{_M}::test_files_that_another_process_has_mapped_are_refused",
        finding="DID NOT RAISE StoreInUse",
    ),
    plant(
        "readers: what may be revoked is a row",
        "rmqstore/snapshot/survey/ledger_extent.py",
        "    return min(max(ledger.committed_end, ledger.divided_at, entries.listed_end()), view.end)\n",
        "    return view.end\n",
        f"{_R}::test_what_the_group_may_still_revoke_is_no_row[queue]",
        finding="revoked",
    ),
    Plant(
        "a member: a read-only path gets files",
        (
            Edit(
                "rmqstore/engine/log/ledger_paths.py",
                "read_only_log_paths=(*old, *read_only))",
                "read_only_log_paths=tuple(old))",
            ),
            Edit(
                "rmqstore/engine/log/ledger_paths.py",
                "    writable = tuple(path for path in data if path not in read_only)\n",
                "    writable = data\n",
            ),
        ),
        ("tests/dledger/test_data_paths.py::test_read_only_paths_are_read_and_get_no_file[True-True]",),
        finding=r"At index|!=|more item",
    ),
    plant(
        "a member takes entries for durable that only its memory has after a kill",
        "rmqstore/dledger/entry_store.py",
        "        self._files.sync(self._files.start, plan.end)\n",
        "",
        "tests/dledger/test_entry_store.py::test_entries_that_an_opening_finds_are_on_the_disk_when_it_is_done",
        finding="StoreDamaged",
    ),
)
