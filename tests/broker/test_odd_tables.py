"""Tables of config/ as other releases and hands leave them: what cannot be understood costs nothing else."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore import Message, PutStatus, StoreConfig, SubscriptionGroup, TopicConfig, open_snapshot, open_store
from rmqstore.clock import ManualClock
from rmqstore.files.reading import LOCAL
from rmqstore.formats import broker_json
from rmqstore.snapshot.finding import DAMAGE, NOTE
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify import verify
from rmqstore.testing import Probe

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(flush="SYNC", broker_name="broker-a", cluster_name="C", delay_levels="1s 5s")
Edit = Callable[[str], str]


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of four messages, of which the group `billing` consumed two."""
    root = tmp_path_factory.mktemp("origin") / "store"
    with open_store(root, CONFIG) as store:
        for number in range(4):
            store.put(Message("orders", b"%d" % number, queue_id=0)).raise_for_status()
        store.flush()
        store.groups.put(SubscriptionGroup("billing"))
        with store.consumer("billing", "orders") as consumer:
            consumer.poll(max_count=2)
            consumer.commit()
    return root


def edited(origin: Path, root: Path, name: str, edit: Edit) -> Path:
    """A copy of the store whose table `name` was edited and has no .bak."""
    shutil.copytree(origin, root)
    file = root / "config" / name
    before = file.read_text()
    after = edit(before)
    assert after != before
    file.write_text(after, newline="")
    file.with_name(f"{name}.bak").unlink(missing_ok=True)
    return file


def into(table: str, entry: str) -> Edit:
    return lambda text: text.replace(f'"{table}":{{', f'"{table}":{{{entry},', 1)


def require_the_rest(root: Path) -> list[str]:
    """Topic and group are as they were, for readers and for a program that opens the store; its warnings."""
    snapshot = open_snapshot(root)
    topics = {row["topic"]: row["perm"] for row in snapshot.table("topics").to_pylist()}
    groups = [(row["group"], row["topic"], row["committedOffset"]) for row in snapshot.table("groups").to_pylist()]
    assert topics["orders"] == 6
    assert ("billing", "orders", 2) in groups
    assert [found for found in verify(survey(LOCAL, str(root))) if found.severity == DAMAGE] == []
    with open_store(root, CONFIG) as store:
        assert store.offsets.committed("billing", "orders", 0) == 2
        assert store.topics.find("orders") is not None
        warnings = store.warnings
        store.offsets.commit("shipping", "orders", 0, 1)
        store.put(Message("more", b"")).raise_for_status()
    return warnings


# By the name of the table: entries that other releases or hands leave in it, and whether somebody is told.
ODD_ENTRIES = {
    ("consumerOffset.json", "offsetTable"): {
        '"orders@screens@broadcast":{0:7}': False,
        '"no group":{0:1}': True,
        '"orders@":{0:1}': True,
        '"a@b@c":{0:1}': True,
        '"orders@negative":{-1:5}': True,
        '"orders@nothing":{0:null}': True,
        '"orders@words":{0:"seven"}': True,
        '"orders@null":null': True,
        '"orders@list":[1,2]': True,
        '"orders@huge":{0:99999999999999999999}': True,
    },
    ("topics.json", "topicConfigTable"): {
        '"minus":{"topicName":"minus","perm":6,"readQueueNums":-1,"writeQueueNums":8}': True,
        '"text":{"topicName":"text","perm":"rw","readQueueNums":8}': True,
        '"nothing":null': True,
        '"number":7': True,
        '"attributes":{"attributes":["+queue.type"],"perm":6}': True,
    },
    ("subscriptionGroup.json", "subscriptionGroupTable"): {
        '"minus":{"groupName":"minus","retryQueueNums":-1}': True,
        '"words":{"groupName":"words","consumeEnable":"yes"}': True,
        '"list":[]': True,
    },
}
ROWS = [(*where, entry, is_told) for where, entries in ODD_ENTRIES.items() for entry, is_told in entries.items()]


@pytest.mark.parametrize(("name", "table", "entry", "is_told"), ROWS, ids=[row[2] for row in ROWS])
def test_an_odd_entry_is_passed_over_told_and_kept(
    origin: Path, tmp_path: Path, name: str, table: str, entry: str, is_told: bool
) -> None:
    file = edited(origin, tmp_path / "store", name, into(table, entry))
    findings = [found.reason for found in verify(survey(LOCAL, str(tmp_path / "store"))) if found.path == str(file)]
    warnings = require_the_rest(tmp_path / "store")
    key = entry.partition(":")[0].strip('"')
    assert any(key in reason for reason in findings) is is_told
    assert any(key in warning for warning in warnings) is is_told
    assert len(warnings) == int(is_told)
    written = broker_json.parse(file.read_text())[table]
    assert broker_json.parse(f"{{{entry}}}").items() <= written.items()
    require_the_rest(tmp_path / "store")


ODD_TOPICS = {
    "a word": ('"perm":6', '"perm":"rw"'),
    "a negative count": ('"writeQueueNums":8', '"writeQueueNums":-8'),
    "null": ('"orders":{', '"orders":null,"pears":{'),
}


@pytest.mark.parametrize("what", ODD_TOPICS)
def test_a_topic_whose_entry_nobody_can_read_is_read_and_not_put_to(origin: Path, tmp_path: Path, what: str) -> None:
    """What made here in its place let in what it may keep out."""
    root = tmp_path / "store"
    file = edited(origin, root, "topics.json", lambda text: text.replace(*ODD_TOPICS[what], 1))
    odd = broker_json.parse(file.read_text())["topicConfigTable"]["orders"]
    for number in range(3):
        with open_store(root, CONFIG) as store:
            assert any("'orders' is ignored" in warning for warning in store.warnings)
            refused = store.put(Message("orders", b"new", queue_id=0))
            assert refused.status is PutStatus.MESSAGE_ILLEGAL
            assert "its entry in" in refused.reason
            assert "cannot be read; correct it" in refused.reason
            store.put(Message("others", b"")).raise_for_status()
            store.topics.put(TopicConfig("more", 2, 2))
            assert [message.body for message in store.get("orders", 0, 0).messages] == [b"0", b"1", b"2", b"3"]
            with store.consumer(f"audit{number}", "orders") as consumer:
                assert [message.body for message in consumer.poll()] == [b"0", b"1", b"2", b"3"]
        assert broker_json.parse(file.read_text())["topicConfigTable"]["orders"] == odd
    with open_store(root, CONFIG) as store:
        store.topics.put(TopicConfig("orders", 4, 4, 4))
        assert "without 2" in store.put(Message("orders", b"new", queue_id=0)).reason
        store.topics.put(TopicConfig("orders", 4, 4))
        store.put(Message("orders", b"new", queue_id=0)).raise_for_status()
        store.flush()
        assert store.delete_topic("orders")
    assert "orders" not in broker_json.parse(file.read_text())["topicConfigTable"]


def test_a_deleted_topic_takes_its_odd_entry_along(origin: Path, tmp_path: Path) -> None:
    file = edited(origin, tmp_path / "store", "topics.json", lambda text: text.replace('"perm":6', '"perm":"rw"', 1))
    with open_store(tmp_path / "store", CONFIG) as store:
        assert store.delete_topic("orders")
        store.put(Message("orders", b"new", queue_id=0)).raise_for_status()
        store.flush()
    assert broker_json.parse(file.read_text())["topicConfigTable"]["orders"]["perm"] == 6


@pytest.mark.parametrize("counter", ['"abc"', "[]", "1e400"])
def test_a_version_that_nobody_can_read_costs_no_entry(origin: Path, tmp_path: Path, counter: str) -> None:
    for name in ("consumerOffset.json", "topics.json", "subscriptionGroup.json"):
        root = tmp_path / name
        edited(origin, root, name, lambda text: re.sub(r'"counter":\d+', f'"counter":{counter}', text, count=1))
        if counter == "1e400":  # no number of JSON's: the table is kept, and empty
            continue
        found = [one for one in verify(survey(LOCAL, str(root))) if one.path.endswith(name)]
        assert [one.severity for one in found] == [NOTE]
        (warning,) = require_the_rest(root)
        assert "dataVersion is ignored" in warning


@pytest.mark.parametrize("table", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_a_table_that_is_null_gives_way_to_its_backup(origin: Path, tmp_path: Path, table: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(origin, root)
    file = root / "config" / table
    sound = file.read_text()
    file.with_name(f"{table}.bak").write_text(sound)
    member = next(
        name for name in ("topicConfigTable", "offsetTable", "subscriptionGroupTable") if f'"{name}"' in sound
    )
    file.write_text(f'{{"{member}":null}}')
    (found,) = [found for found in verify(survey(LOCAL, str(root))) if found.severity == DAMAGE]
    assert found.reason == f"{member} is null; RocketMQ reads {table}.bak instead"
    with open_store(root, CONFIG) as store:
        (warning,) = store.warnings
        assert f"{member} is null" in warning
        assert store.offsets.committed("billing", "orders", 0) == 2
        assert "billing" in store.groups.all()
        assert "orders" in store.topics.all()
        store.offsets.commit("shipping", "orders", 0, 1)
        store.put(Message("more", b"")).raise_for_status()
        store.groups.put(SubscriptionGroup("shipping"))
    assert file.with_name(f"{table}.unreadable").exists()


def test_bytes_that_are_no_text_are_kept_before_they_are_written_over(origin: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(origin, root)
    file = root / "config" / "consumerOffset.json"
    data = file.read_bytes().replace(b'"offsetTable":{', b'"offsetTable":{"orders@b\xe4r":{0:1},', 1)
    file.write_bytes(data)
    assert any("no UTF-8" in found.reason for found in verify(survey(LOCAL, str(root))))
    assert any("not UTF-8" in warning for warning in require_the_rest(root))
    assert file.with_name("consumerOffset.json.unreadable").read_bytes() == data


def test_a_committed_offset_takes_the_place_of_an_odd_one(origin: Path, tmp_path: Path) -> None:
    file = edited(
        origin, tmp_path / "store", "consumerOffset.json", into("offsetTable", '"orders@odd":{0:"x",1:"y",2:0}')
    )
    with open_store(tmp_path / "store", CONFIG) as store:
        assert store.offsets.committed("odd", "orders", 2) == 0
        store.offsets.commit("odd", "orders", 0, 4)
    assert broker_json.parse(file.read_text())["offsetTable"]["orders@odd"] == {"0": 4, "1": "y", "2": 0}


EDITS: dict[str, Edit] = {
    "byte order mark": lambda text: "\ufeff" + text,
    "lines as Windows ends them": lambda text: text.replace("\n", "\r\n"),
    "a comma after the last member": lambda text: text.rstrip()[:-1].rstrip() + ",\n}",
    "commas where a line was": lambda text: text.replace(":{", ":{ ,\n,", 1),
    "a comment to the end of the line": lambda text: text.replace("{", "{ // don't touch: \"Monday\"\n", 1),
    "a comment in the middle": lambda text: text.replace(":{", ": /* it's {here} */ {", 1),
    "a comment at the end": lambda text: text + "\n// checked\n",
    "single quotes": lambda text: text.replace('"offsetTable"', "'offsetTable'").replace('"orders"', "'orders'"),
    "everything in single quotes": lambda text: text.replace('"', "'"),
    "bare keys": lambda text: text.replace('"orders@billing"', "orders@billing").replace('"orders":', "orders:"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json"])
@pytest.mark.parametrize("what", EDITS)
def test_a_table_that_was_put_right_by_hand_is_read_as_a_broker_reads_it(
    origin: Path, tmp_path: Path, name: str, what: str
) -> None:
    edited(origin, tmp_path / "store", name, EDITS[what])
    assert require_the_rest(tmp_path / "store") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'it''s':1}", None),
        (r"""{'a\'b"c':'d\\'}""", {"a'b\"c": "d\\"}),
        ("{/* 1 */a:/* 2 */1/* 3 */}", {"a": 1}),
        ("[1,,2,]", [1, 2]),
        ("{,a:1,,b:2,}", {"a": 1, "b": 2}),
        ('{"a":"// no comment", "b":"/* nor this */",}', {"a": "// no comment", "b": "/* nor this */"}),
        ('{"a":"x,,y",}', {"a": "x,,y"}),
        ("{'a", None),
        ("{a:1 /* without an end", None),
        ("{a:1} // \x00 {", {"a": 1}),
    ],
)  # fmt: skip
def test_the_dialect_by_hand(text: str, value: object) -> None:
    if value is None:
        with pytest.raises(broker_json.Corrupt):
            broker_json.parse(text)
    else:
        assert broker_json.parse(text) == value


@pytest.mark.parametrize("backup", [None, "{torn, too", '{"dataVersion"'])
def test_a_table_that_nobody_can_read_is_kept_before_it_is_written_over(
    origin: Path, tmp_path: Path, backup: str | None
) -> None:
    root = tmp_path / "store"
    file = edited(origin, root, "consumerOffset.json", lambda text: text[: len(text) // 2])
    torn = file.read_bytes()
    if backup is not None:
        file.with_name("consumerOffset.json.bak").write_text(backup)
    for _ in range(2):
        file.write_bytes(torn)
        with open_store(root, CONFIG) as store:
            store.offsets.commit("shipping", "orders", 0, 1)
    kept = {path.name: path.read_bytes() for path in file.parent.glob("*.unreadable*")}
    assert kept.pop("consumerOffset.json.unreadable") == torn
    if backup is not None:
        assert kept.pop("consumerOffset.json.bak.unreadable") == backup.encode()
    assert not kept


@pytest.fixture
def deleted(origin: Path, tmp_path: Path) -> Path:
    """The store without `orders`, which was deleted; the note of it."""
    root = tmp_path / "store"
    shutil.copytree(origin, root)
    with open_store(root, CONFIG) as store:
        store.put(Message("others", b"1")).raise_for_status()
        store.put(Message("more", b"1")).raise_for_status()
        store.flush()
        store.delete_topic("orders")
    return root / "config" / "deletedTopics.json"


NOTES: dict[str, Edit] = {
    "torn": lambda text: text[: len(text) // 2],
    "null": lambda text: "null",
    "a list": lambda text: "[]",
    "without its table": lambda text: '{"deletedTopics":null}',
    "with a text for an offset": lambda text: text.replace('"logEnd": ', '"logEnd": "x", "was": '),
}


@pytest.mark.parametrize("what", NOTES)
def test_a_note_of_deletions_that_nobody_can_read_is_told_and_kept(deleted: Path, what: str) -> None:
    text = NOTES[what](deleted.read_text())
    deleted.write_text(text)
    root = deleted.parent.parent
    told = [found for found in verify(survey(LOCAL, str(root))) if found.path == str(deleted)]
    assert len(told) == 1
    assert all("RocketMQ reads" not in found.reason for found in told)
    with open_store(root, CONFIG) as store:
        assert any("deletedTopics.json" in each and "deleted may come back" in each for each in store.warnings)
        assert store.delete_topic("others")
    assert [path.read_text() for path in deleted.parent.glob("deletedTopics.json.unreadable*")] == [text]
    assert broker_json.parse(deleted.read_text())["deletedTopics"].keys() == {"others"}


def test_an_odd_note_of_one_deletion_leaves_the_others_in_force(deleted: Path) -> None:
    text = deleted.read_text().replace("{", '{"zz": null, ', 2).replace('{"zz": null, ', "{", 1)
    deleted.write_text(text)
    root = deleted.parent.parent
    assert "'zz' is ignored" in next(
        found.reason for found in verify(survey(LOCAL, str(root))) if found.path == str(deleted)
    )
    (root / "abort").touch()
    assert "orders" not in open_snapshot(root).topics().column("topic").to_pylist()
    with open_store(root, CONFIG) as store:
        assert any("'zz' is ignored" in each for each in store.warnings)
        assert not store.get("orders", 0, 0).messages
        assert store.delete_topic("more")
    assert [path.read_text() for path in deleted.parent.glob("deletedTopics.json.unreadable*")] == [text]
    assert broker_json.parse(deleted.read_text())["deletedTopics"].keys() == {"orders", "more"}


def test_progress_that_is_none_is_told_and_a_copy_of_it_kept(tmp_path: Path) -> None:
    """The store has its own in that place soon: its messages come once more."""
    clock = ManualClock()
    with open_store(tmp_path / "s", CONFIG, clock=clock, workers=False) as store:
        assert store.put(Message("orders", b"waits", queue_id=0, properties={"DELAY": "2"})).is_stored
        clock.advance(60_000)
        Probe(store).catch_up()
        Probe(store).step("delay")
    file = tmp_path / "s" / "config" / "delayOffset.json"
    odd = '{"offsetTable":{2:"x",17:2},"keep":[1]}'
    file.write_text(odd)
    with open_store(tmp_path / "s", CONFIG, clock=clock, workers=False) as store:
        assert any("offset of 2 is" in warning for warning in store.warnings)
        assert any("are delivered again" in warning for warning in store.warnings)
        for _ in range(2):
            clock.advance(60_000)
            Probe(store).step("delay")
    assert (file.parent / "delayOffset.json.unreadable").read_text() == odd
    written = broker_json.parse(file.read_text())
    assert (broker_json.delay_offsets(written), written["keep"]) == ({1: 0, 2: 1, 17: 2}, [1])
