"""Faults in what a recovery finds, cuts and makes again, and in whose a store is."""

from tests.teeth.plant import Edit, Plant, plant

_RECOVERY = "rmqstore/engine/log/recovery/planner.py"
_APPLY = "rmqstore/engine/log/recovery/apply.py"
_ENGINE = "rmqstore/engine/engine.py"
_LOCK = "rmqstore/files/store_lock.py"
_OWNERSHIP = "rmqstore/files/ownership.py"
_LOG = "rmqstore/engine/log/put/commitlog.py"
_KINDS = "rmqstore/records/inner_batches.py"
_ROOT = "rmqstore/directory/store_root.py"
_T = "tests/log/recovery/test_planner.py"

PLANTS: tuple[Plant, ...] = (
    plant(
        "recovery: CRCs ignored",
        _RECOVERY,
        "            check_crc=self._config.check_crc_on_recovery,\n",
        "            check_crc=False,\n",
        "tests/log/recovery/test_planner.py::test_bytes_and_not_one_sound_record_are_cut_only_when_told_to[a flipped bit-True]",
        finding="DID NOT RAISE Corrupt",
    ),
    plant(
        "recovery: physicalOffset unchecked",
        "rmqstore/records/soundness.py",
        '    mark(reasons, located.head("physical_offset") != offsets, Reason.WRONG_PLACE)\n',
        "",
        "tests/log/recovery/test_planner.py::test_a_record_of_another_place_is_no_record",
        finding="assert 3436 == 2650",
    ),
    Plant(
        "recovery begins with the last file only",
        (
            Edit(
                _RECOVERY,
                "        scan = self._scan_from(usual_start(self._log, self._checkpoint, self._clean))\n",
                "        used = [file for file in self._log.files if any(self._log.read(file.start, 8))]\n"
                '        scan = self._scan((used[-1].start if used else self._log.start, "the last file"))\n',
            ),
            Edit(
                _RECOVERY,
                "        while (earlier := self._earlier_start(scan)) is not None:  # each time a file less: it ends\n",
                "        while (earlier := None) is not None:\n",
            ),
        ),
        ("tests/log/recovery/test_planner.py::test_an_undispatched_end_of_the_file_before",),
        finding=r"\[\(75, 20617\).* == \[\(0, 0\)",
    ),
    plant(
        "queues are not cut",
        _APPLY,
        "    for file in reversed(planned.removed_files):\n        with suppress",
        "    return\n    for file in reversed(planned.removed_files):\n        with suppress",
        "tests/log/recovery/test_planner.py::test_queue_entries_behind_the_end_of_the_log_go",
        finding="came out with its end at 20, planned was 10",
    ),
    plant(
        "index files that were given up stay",
        _APPLY,
        "    for file in plan.index_deleted:\n",
        "    for file in plan.index_deleted[1:0]:\n",
        "tests/log/recovery/test_planner.py::test_a_damaged_index_file_is_built_again[0-44]",
        finding=r"assert \[\] == \[917\]",
    ),
    plant(
        "index dropped: a recovery does not index again",
        _APPLY,
        "        if parts.index is not None:\n            parts.index.dispatch(records)\n",
        "",
        "tests/log/recovery/test_planner.py::test_a_lost_end_of_queues_and_index_is_built_again",
        finding=r"assert \[\] == \[0\]",
    ),
    Plant(
        "an empty last log file is fatal to a recovery",
        (
            Edit(
                "rmqstore/engine/log/recovery/start.py",
                "    while files and (not files[-1].size or (files[-1].size < size and holds_nothing(disk, files[-1]))):\n",
                "    while files and 0 < files[-1].size < size and holds_nothing(disk, files[-1]):\n",
            ),
            Edit(
                "rmqstore/engine/log/recovery/start.py",
                "        if file.size > size or (file.size",
                "        if not file.size or file.size > size or (file.size",
            ),
        ),
        ("tests/log/recovery/test_planner.py::test_a_file_that_was_being_made[commitlog-0]",),
        finding="StoreDamaged: .* the file has 0 bytes, the others 4096",
    ),
    plant(
        "the checkpoint is disbelieved again and again",
        _RECOVERY,
        "        if self._drops_checkpoint(scan):\n"
        '            reason = "the checkpoint is later than the newest message: it answers for nothing"\n'
        "            scan = self._scan_from((self._log.start, reason))\n",
        "        while self._drops_checkpoint(scan):\n"
        '            reason = "the checkpoint is later than the newest message: it answers for nothing"\n'
        "            scan = self._scan_from((self._log.start, reason))\n",
        "tests/log/recovery/test_clocks.py::test_a_recovery_ends_where_the_clock_stood_before_1970",
        finding="TooManyScans",
    ),
    plant(
        "a recovery from an old place leaves the checkpoint as late as it is",
        "rmqstore/engine/log/opening.py",
        "    if plan.lowered_ms is not None:\n",
        "    if plan.lowered_ms is not None and False:\n",
        "tests/log/recovery/test_crash.py::test_an_opening_that_reads_old_files_may_be_killed_anywhere[blank-kept]",
        finding="AssertionError: [0-9]+\\s+assert ",
    ),
    plant(
        "queue files after one that cannot be used are not written again",
        "rmqstore/engine/log/recovery/start.py",
        "    starts += [_last_file_of(store, queue) for queue in store.all_queues() if queue.is_broken]\n",
        "",
        "tests/log/recovery/test_queue_files.py::test_a_file_of_a_batch_queue_that_cannot_be_used_hides_no_later_one[blanked-460-closed]",
        finding="AssertionError: assert ",
    ),
    plant(
        "lock after recovery",
        _ENGINE,
        "        self.lock = fs.lock(join(self.path, names.LOCK_FILE))\n",
        '        if fs.exists(join(self.path, "commitlog")):\n'
        "            recovered(fs, self.path, config, clock, attached.dispatchers)\n"
        "        self.lock = fs.lock(join(self.path, names.LOCK_FILE))\n",
        "tests/store/test_store.py::test_only_one_writer_at_a_time_and_the_second_changes_nothing",
        finding=r"assert \{'/store/abor.*(?:Left contains|Differing items)",
    ),
    plant(
        "flock in place of lockf",
        _LOCK,
        "            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))\n",
        "            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "tests/files/test_store_lock.py::test_another_program_is_excluded_until_release",
        finding="'taken' == 'refused'",
    ),
    plant(
        "the lock file's place is not looked at when it is locked",
        _LOCK,
        "        if _identity(self._path) != self._key:\n",
        "        if _identity(self._path) is None:\n",
        "tests/files/test_store_lock.py::test_a_lock_file_that_is_replaced_while_it_is_locked_is_none",
        finding="DID NOT RAISE StoreInUse",
    ),
    plant(
        "the lock file's place is not looked at later",
        _LOCK,
        "        return (status.st_dev, status.st_ino) == self._key\n",
        "        return bool(status)\n",
        "tests/files/test_store_lock.py::test_a_lock_knows_whether_its_file_still_stands_there[replaced]",
        "tests/store/test_ownership.py::test_a_store_whose_directory_is_another_makes_nothing_there[replaced]",
        finding="assert True is|is_writable=True",
    ),
    plant(
        "a child made by fork takes the store for its own",
        _OWNERSHIP,
        "os.register_at_fork(after_in_child=_after_fork_in_child)\n",
        "",
        "tests/store/test_ownership.py::test_a_fork_in_the_middle_of_a_put_lets_only_the_parent_go_on",
        finding=r"\['PUT_OK'\] == \['refused'\]",
    ),
    plant(
        "a child made by fork keeps its parent's lock",
        _LOCK,
        "        lock._leave_to_parent()\n",
        "        pass\n",
        "tests/files/test_store_lock.py::test_a_child_that_outlives_its_parent_does_not_keep_the_lock",
        finding="another process writes to the store",
    ),
    plant(
        "a lock of the process, which a copy of the store drops",
        _LOCK,
        "            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))\n",
        "            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n",
        "tests/files/test_store_lock.py::test_a_copy_made_by_this_process_does_not_drop_the_lock",
        finding="'taken' == 'refused'",
    ),
    plant(
        "a put after the close is taken",
        _LOG,
        "            self._ownership.require_open()\n        if size",
        "            pass\n        if size",
        "tests/store/test_closing.py::test_a_put_that_stands_in_a_hook_while_the_store_is_closed_is_refused[SYNC]",
        finding=r"== \[b'first', b",
    ),
    plant(
        "a put that is interrupted between its record and the note of its queue offset",
        _LOG,
        "        except BaseException:\n            self._append_again(offset, data, store_ms, moved)\n            raise\n",
        "        except BaseException:\n            raise\n",
        "tests/store/test_interrupts.py::test_a_put_that_is_interrupted_anywhere_harms_no_other[async-one file-put]",
        "tests/log/put/test_commitlog.py::test_a_record_is_never_without_the_note_of_its_queue_offset",
        finding=r"interrupted at line [0-9]+, engine/log/put/commitlog.py.*Extra items in the left set|\(100, \{\}\) == ",
    ),
    plant(
        "overwrite deletes a foreign directory",
        _ROOT,
        "    if in_the_way:\n        what =",
        "    if in_the_way and found.own:\n        what =",
        "tests/directory/test_store_root.py::test_what_is_no_store_is_refused_by_all_who_write_and_nothing_is_touched[user files]",
        finding="DID NOT RAISE any of .*NotAStore",
    ),
    plant(
        "overwrite deletes what stands beside a store",
        _ROOT,
        "    in_the_way = sorted({*found.foreign, *found.passed_over, *apart})\n",
        "    in_the_way = sorted(apart)\n",
        "tests/directory/test_store_root.py::test_an_overwrite_deletes_nothing_but_stores_and_names_what_is_in_the_way",
        finding="DID NOT RAISE NotAStore",
    ),
    plant(
        "open_store takes a foreign directory",
        _ROOT,
        "        if not found.is_store and (found.own or found.foreign):\n",
        "        if not found.is_store and found.own:\n",
        "tests/directory/test_store_root.py::test_what_is_no_store_is_refused_by_all_who_write_and_nothing_is_touched[user files]",
        finding="AssertionError: open_store",
    ),
    plant(
        "a record with 0x80 on a plain topic is in no queue",
        _KINDS,
        "    if not any(of_batches):\n        return np.flatnonzero(batch.queued), nothing\n",
        "    if not any(of_batches):\n"
        '        said = batch.located.head("sys_flag") & 0x80 == 0\n'
        "        return np.flatnonzero(batch.queued & said), nothing\n",
        "tests/records/test_inner_batches.py::test_a_record_of_a_plain_topic_is_in_its_queue_whatever_it_says_of_batches",
        finding="the record says queue offset 2 of T/0, which is at 1",
    ),
    plant(
        "columns take 0x80, which no plain queue may have",
        "rmqstore/engine/log/encode/column_values.py",
        '    is_batch = numbers.get("sysFlag", np.zeros(count, np.int32)) & sys_flag.INNER_BATCH != 0\n',
        "    is_batch = np.zeros(count, bool)\n",
        "tests/log/encode/test_columns.py::test_a_row_that_says_to_be_a_batch_is_refused_by_its_number",
        finding="DID NOT RAISE Rejected",
    ),
    plant(
        "topic join without check: a put",
        "rmqstore/engine/log/encode/record_frame.py",
        " and names.is_topic_name(topic)\n\n\ndef _topic_bytes",
        "\n\n\ndef _topic_bytes",
        "tests/store/test_rocketmq_issues.py::test_rocketmq_1637_no_topic_leads_out_of_the_store",
        finding="PUT_OK'> is <PutStatus.MESSAGE_ILLEGAL",
    ),
    plant(
        "a sink adds a batch twice",
        "rmqstore/engine/log/staging/committed_batches.py",
        "    return committed is not None and batch_id <= committed.batch_id\n",
        "    return committed is not None and batch_id < committed.batch_id\n",
        "tests/log/staging/test_committed_batches.py::test_a_batch_is_added_once",
        finding="assert not True",
    ),
    plant(
        "a sink's batch counts before it is synced",
        "rmqstore/engine/log/staging/committed_batches.py",
        "        log.append(encoded)\n    log.sync()\n",
        "        log.append(encoded)\n",
        "tests/crash/test_batch_commits.py::test_a_crash_before_any_operation_of_a_commit[into nothing-plain]",
        "tests/log/staging/test_committed_batches.py::test_a_batch_counts_when_its_messages_are_on_the_disk",
        finding=r"assert False == \(\[\] == \[\]|assert \[False, False, False\] == ",
    ),
    plant(
        "a part of a sink's batch stays after a crash",
        "rmqstore/engine/log/staging/committed_batches.py",
        "            _cut_back(parts, intent.start, found.first_ms)\n",
        "            pass\n",
        "tests/log/staging/test_committed_batches.py::test_whoever_opens_the_store_sees_the_batch_as_a_whole_or_not_at_all",
        finding=r"\['old', 'a', .* == \['old'\]",
    ),
)
