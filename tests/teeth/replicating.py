"""Faults on the link between a master and its slave, and in what a replica takes, reports and shows."""

from tests.teeth.plant import Plant, plant

_MASTER = "rmqstore/replica/link/master_link.py"
_SLAVE = "rmqstore/replica/link/slave_link.py"
_FOLLOWER = "rmqstore/replica/following/follower.py"
_SESSION = "rmqstore/replica/following/session.py"
_DELETION = "rmqstore/engine/broker/features.py"
_UNNOTED = "rmqstore/snapshot/survey/unnoted_deletions.py"
_T_OUTCOMES = "tests/deletions/test_outcomes.py"
_T_REST = "tests/deletions/test_what_no_row_says.py"
_REALIGN = "rmqstore/replica/following/realign.py"
_T_REALIGN = "tests/replication/following/test_realign.py"
_T_SIMULATION = "tests/replication/test_simulation.py"

PLANTS: tuple[Plant, ...] = (
    plant(
        "a replica's acknowledgement beyond the end is believed",
        _MASTER,
        "            elif not 0 <= report <= self.next:\n",
        "            elif not 0 <= report:\n",
        "tests/replication/link/test_master_link.py::test_an_acknowledgement_of_what_was_not_sent_ends_the_connection[1001]",
        finding="isinstance",
    ),
    plant(
        "replica: acknowledged before it is durable",
        _SESSION,
        "        end = self._follower.sync()\n",
        "        end = self._follower.end\n",
        f"{_T_SIMULATION}::test_the_slave_comes_to_have_the_masters_log_and_no_promise_is_broken[3]",
        finding="was promised up to",
    ),
    plant(
        "replica: its end is not compared with the master's",
        _SLAVE,
        "        if ours != theirs:\n",
        "        if False:\n",
        "tests/replication/link/test_slave_link.py::test_other_bytes_at_the_own_end_are_found_before_anything_is_appended[600]",
        finding="Diverged",
    ),
    plant(
        "replica: a block that does not follow is taken",
        _SLAVE,
        "        if block.offset != self._next:\n",
        "        if False:\n",
        "tests/replication/link/test_slave_link.py::test_a_block_that_does_not_follow_is_not_taken[99]",
        finding="too many values to unpack",
    ),
    plant(
        "replica: a topic that begins again keeps its old queues",
        _FOLLOWER,
        "        return restart\n",
        "        return None\n",
        f"{_T_OUTCOMES}::test_a_replica[in all queues-150]",
        finding="old",
    ),
    plant(
        "replica: one record that says 0 throws its queue away",
        _FOLLOWER,
        "        if restart is not None and restart.is_doubted:\n",
        "        if False:\n",
        f"{_T_REST}::test_a_single_record_that_says_0_is_no_new_beginning",
        finding="where 1 comes next",
    ),
    plant(
        "replica: new queues go with the old ones of their topic",
        _DELETION,
        "            stay = [each for each, places in held.items() if each != queue_id and (is_alone or places.last >= end)]\n",
        "            stay = list[int]()\n",
        f"{_T_OUTCOMES}::test_a_replica[in more queues-150]",
        finding="new",
    ),
    plant(
        "a reader shows what a topic had before it was made again",
        _UNNOTED,
        "    if place <= older.place or not is_backed(queue, number, entry, view):\n",
        "    if True:\n",
        f"{_T_OUTCOMES}::test_readers_without_a_note[from 1 to 1 queues with 3]",
        finding="Corrupt",
    ),
    plant(
        "a reader hides new messages that lost their entries in a crash",
        "rmqstore/snapshot/survey/survey.py",
        "{} if store.was_killed else again.topics | _topics_gone(store, searched)",
        "again.topics | _topics_gone(store, searched)",
        f"{_T_OUTCOMES}::test_readers_after_a_crash_without_a_note[without entries after a crash]",
        finding="lost 0",
    ),
    plant(
        "recovery: a queue that begins again in the log takes the other queues' messages",
        "rmqstore/engine/log/recovery/queue_states.py",
        "            self._begin_with(run, facts)\n",
        "            self.made_again_at = None if self.next is None else run.offset\n            self._begin_with(run, facts)\n",
        f"{_T_OUTCOMES}::test_readers_without_a_note[built from the log alone]",
        finding="early 0",
    ),
    plant(
        "a reader hides messages whose queue files are lost",
        _UNNOTED,
        "    return {topic: DeletedTopic(known_end) for topic in gone if known and topic not in known}\n",
        "    return {topic: DeletedTopic(known_end) for topic in gone}\n",
        f"{_T_OUTCOMES}::test_readers_without_a_note[lost, of a known topic]",
        finding="UnknownTopic|Right contains",
    ),
    plant(
        "a reader goes by an older table of topics",
        _UNNOTED,
        "    return None if found is None or found.is_backup else found.value\n",
        "    return None if found is None else found.value\n",
        f"{_T_OUTCOMES}::test_readers_without_a_note[lost with the table of topics]",
        finding="UnknownTopic|Right contains",
    ),
    plant(
        "a damaged record proves that its topic was deleted",
        _UNNOTED,
        "    proven = dict(older[place] for place in older.keys() - entries.pointing_at(older))\n",
        "    proven = dict(older.values())\n",
        f"{_T_REST}::test_a_record_that_names_another_topic_is_no_proof_of_a_deletion",
        finding="lost 0",
    ),
    plant(
        "replica: what a cut zeroed is not synced",
        _REALIGN,
        "        file.sync()\n        file.close()\n",
        "        file.close()\n",
        f"{_T_REALIGN}::test_each_step_of_a_cut_is_on_the_disk_before_the_next[False]",
        f"{_T_REALIGN}::test_each_step_of_a_cut_is_on_the_disk_before_the_next[True]",
        finding=r"assert \d+ == \d+",
    ),
    plant(
        "replica: a cut takes files away before the checkpoint is durable that misses none of its files",
        _REALIGN,
        "\n    file.sync()\n    file.close()\n",
        "\n    file.close()\n",
        f"{_T_REALIGN}::test_a_cut_where_a_file_ends_is_no_missing_file",
        finding="StoreDamaged",
    ),
)
