"""Keys and tags of a verified stretch, against the scalar codecs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.directory.walk import Break, WalkLimits, walk
from rmqstore.files.reading import LOCAL
from rmqstore.formats.java_hash import index_hash, string_hash
from rmqstore.formats.sys_flag import ROLLBACK
from rmqstore.snapshot.survey.survey import survey
from rmqstore.snapshot.verify.stretch_facts import StretchFacts
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12) | st.sampled_from(
    ["", " ", "a", "k 1", " a  b ", "ключ", "鍵 k", "x" * 300, "😀 y", "o-1017"]
)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(["T", "orders", "тема"]), TEXTS, TEXTS, TEXTS, st.sampled_from([0, ROLLBACK])),
    min_size=1, max_size=40,
)  # fmt: skip


@given(messages=MESSAGES)
def test_keys_and_tags_are_those_of_the_scalar_codecs(
    messages: list[tuple[str, str, str, str, int]], tmp_path_factory
) -> None:
    root: Path = tmp_path_factory.mktemp("store")
    made = SmallStore(file_size=1024 * 1024)
    keys, tags = [], []
    for topic, unique, texts, tag, flag in messages:
        named = {"UNIQ_KEY": unique, "KEYS": texts, "TAGS": tag}
        offset = made.add(topic, properties={name: text for name, text in named.items() if text}, sys_flag=flag)
        tags.append(string_hash(tag))
        if flag != ROLLBACK:
            keys += [(offset, index_hash(f"{topic}#{key}")) for key in [unique, *texts.split(" ")] if key]
    made.write(root)
    store = survey(LOCAL, str(root))
    found_keys, found_tags = [], []
    with store.view("auto") as view:
        for item in walk(view, WalkLimits(0, store.log_end, crc_from=0, known_end=store.log_end)):
            assert not isinstance(item, Break)
            facts = StretchFacts(item, 0, store.log_end, False)
            offsets, hashes = facts.index_keys()
            found_keys += list(zip(offsets.tolist(), hashes.tolist(), strict=True))
            found_tags += facts.tag_hashes.tolist()
    assert sorted(found_keys) == sorted(keys)
    assert found_tags == tags
