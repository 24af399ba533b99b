"""Stores that a report is made of: one whose every name wants to be markup, and one of very many topics."""

import json
from pathlib import Path

from tests.snapshot.small_store import FIRST_MS, SmallStore

# Each sets window.harmed, or makes an element with the id "harm", where it is taken for anything but text.
HARMS = (
    "<script>window.harmed=1</script>",
    "<img id=harm src=x onerror=window.harmed=2>",
    "\"><svg id=harm onload=window.harmed=3>",
    "</script><script>window.harmed=4</script>",
    "--><!--<script>",
    "</title></style></textarea><b id=harm>",
    "';window.harmed=5;'",
    "${window.harmed=6}",
    "&lt;b id=harm&gt;&#60;b id=harm&#62;",
    "javascript:window.harmed=7",
    "\u2028window.harmed=8\u2029",
)  # fmt: skip
# Each misleads by characters that nobody sees.
LIES = ("\u202egnp.exe", "\u2066x\u2069", "pay\u200bments", "a\x00b\x1b[31m", "\ufeffbom", "a\u00a0b", "e\u0301" * 40)
NAMES = (*HARMS, *LIES)
_HALF, _SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


def hostile_store(root: Path) -> Path:
    """A store of which topics, groups, keys, tags, bodies, ids, names of files and configuration are NAMES."""
    made = SmallStore(file_size=64 * 1024)
    for number, name in enumerate(NAMES):
        properties = {"TAGS": name, "KEYS": name, "UNIQ_KEY": name, name.replace("\x00", "") or "x": name}
        topic = name if "/" not in name and "\x00" not in name and len(name) < 100 else f"T{number}"
        made.add(topic, body=name.encode(), properties=properties)
        waits = {"REAL_TOPIC": name, "REAL_QID": "0", "UNIQ_KEY": name}
        made.add(_SCHEDULE, 2, properties=waits | {"DELAY": "3"})
        made.add(_HALF, properties=waits | {"PGROUP": name, "TRAN_MSG": "true"})
    made.write(root)
    for name in NAMES:
        for room in ("config", "index", "extra"):
            (root / room).mkdir(exist_ok=True)
            (root / room / name.replace("/", "|").replace("\x00", "|")).write_bytes(b"x" * 100)
    half = "\ud800<b id=harm>"
    names = [*NAMES, half, "x" * 100_000 + "<b id=harm>"]
    table = {name: {"topicName": name, "perm": 6, "attributes": {"+" + name: name}} for name in names}
    (root / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    offsets = {f"{topic}@{group}": {"0": 0} for topic, group in zip(names, reversed(names), strict=True)}
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root


def wide_store(root: Path, topic_count: int) -> Path:
    """Messages of so many topics over five days, with a group for each that is behind in it."""
    made = SmallStore(file_size=256 * 1024)
    names = [f"area-{number % 10}-events-of-kind-{number:04d}" for number in range(topic_count)]
    step_ms = 5 * 86_400_000 // (3 * topic_count)
    for turn in range(3):
        for number, name in enumerate(names):
            stored = FIRST_MS + (turn * topic_count + number) * step_ms
            made.add(name, body=b"x" * (number % 900), store_timestamp=stored)
    made.write(root)
    offsets = {f"{name}@group-of-{name}": {"0": number % 4} for number, name in enumerate(names)}
    (root / "config").mkdir()
    (root / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return root
