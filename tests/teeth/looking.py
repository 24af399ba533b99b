"""Faults of who only looks: what is believed of a file, and where a stream goes on."""

from tests.teeth.plant import Plant, plant

_SOUNDNESS = "rmqstore/snapshot/soundness.py"
_STREAM = "spark_source/stream_reader.py"

PLANTS: tuple[Plant, ...] = (
    plant(
        "reader: body CRC ignored",
        _SOUNDNESS,
        "    reasons[rows[wrong]] = Reason.BODY_CRC\n",
        "",
        "tests/snapshot/test_null_rows.py::test_every_way_through_flags_the_same_row[body-queue]",
        finding=r"assert \[\] == \[7\]",
    ),
    plant(
        "reader: physicalOffset unchecked",
        _SOUNDNESS,
        '    mark(reasons, located.head("physical_offset") != offsets, Reason.WRONG_PLACE)\n',
        "",
        "tests/snapshot/test_walk.py::test_a_record_that_names_another_place_is_not_sound",
        "tests/snapshot/test_null_rows.py::test_every_way_through_flags_the_same_row[physical offset-queue]",
        finding=r"WRONG_PLACE|assert \[\] == \[7\]",
    ),
    plant(
        "bodySize unchecked in one record",
        "rmqstore/formats/message.py",
        "    if not 0 <= body_size <= variable:\n",
        "    if not 0 <= body_size:\n",
        "tests/formats/test_message.py::test_what_is_torn_says_why[data10-body size 2147483647]",
        finding="struct.error: unpack_from requires a buffer of at least 2147483736 bytes",
    ),
    plant(
        "bodySize unchecked in many records",
        "rmqstore/formats/message_columns.py",
        " & (body_size >= 0) & (body_size <= variable)\n",
        "\n",
        "tests/formats/test_message_columns.py::test_hostile_sizes_are_refused_as_the_scalar_codec_refuses_them",
        finding="IndexError: index [0-9]+ is out of bounds",
    ),
    plant(
        "index cycle unbounded",
        "rmqstore/formats/index.py",
        "    for _ in range(header.index_count):\n",
        "    for _ in range(10**5):\n",
        "tests/formats/test_index.py::test_wild_values_end_the_walk",
        finding=r"\[300, 200, 30.* == \[300, 200, 300, 200, 300\]",
    ),
    plant(
        "index cycle unbounded in a file that is written",
        "rmqstore/formats/index_table.py",
        "        if previous >= number or put_ms < begin_ms:\n",
        "        if previous == number or put_ms < begin_ms:\n",
        "tests/formats/test_index_table.py::test_f17_a_ring_of_items_ends_at_once",
        finding=r"== \[5, 4\]",
    ),
    plant(
        "zstd and lz4: the size that the stream states is trusted",
        "rmqstore/formats/compression.py",
        "            return bytes(stream.read_buffer(size_max + 1).to_pybytes())\n",
        "            return bytes(stream.read())\n",
        "tests/formats/test_compression.py::test_a_bomb_of_a_gibibyte_stops_at_the_limit",
        finding="bytes at once for a limit of",
    ),
    plant(
        "zlib bombs are unpacked whole",
        "rmqstore/formats/compression.py",
        "        unpacked = stream.decompress(body, size_max + 1)\n",
        "        unpacked = stream.decompress(body)\n",
        "tests/formats/test_compression.py::test_a_bomb_of_a_gibibyte_stops_at_the_limit",
        finding="bytes at once for a limit of",
    ),
    plant(
        "SIGBUS: a mapping is used though its file shrank",
        "rmqstore/files/reading.py",
        "        if self.size() < size:\n            raise shrunk(self.path, size)\n        if self._map",
        "        if self._map",
        "tests/files/test_reading.py::test_a_mapping_is_refused_where_the_file_shrank",
        finding="DID NOT RAISE OSError",
    ),
    plant(
        "topic join without check: a reader",
        "rmqstore/snapshot/queue_files.py",
        "            if not names.is_topic_name(topic):\n                continue\n",
        "",
        "tests/snapshot/test_layouts.py::test_other_things_among_the_queues_do_no_harm[queue]",
        finding="bad name!",
    ),
    plant(
        "units of a batch queue are believed",
        "rmqstore/snapshot/batch_units.py",
        "    doubt[-1:] = True\n",
        "    doubt[:] = False\n",
        "tests/regressions/test_damaged_batch_units.py::test_no_message_is_left_out_or_has_the_number_of_another[base_queue_offset-0]",
        finding="are missing|has another body",
    ),
    plant(
        "offsets not pinned: a batch reads up to what there is now",
        _STREAM,
        "            ranges, skipped = ranges_to_read(self._queues(snapshot), begun, ends, fails=self._fails)\n",
        "            now = {place: queue.max_offset for place, (_, queue) in self._queues(snapshot).items()}\n"
        "            ranges, skipped = ranges_to_read(self._queues(snapshot), begun, now, fails=self._fails)\n",
        "tests/spark_source/test_stream_reader.py::test_only_the_first_end_carries_its_start_and_a_replay_reads_what_was_planned",
        finding=r"\('T', 0, 7\) != \('T', 1, 5\)",
    ),
    plant(
        "offsets not pinned: the first batch does not say where it begins",
        _STREAM,
        "        begun = self._initial | batch.begun if before == self._initial else batch.begun\n",
        "        begun = batch.begun\n",
        "tests/spark_source/test_stream_reader.py::test_only_the_first_end_carries_its_start_and_a_replay_reads_what_was_planned",
        finding=r"KeyError: '\$from'",
    ),
)
