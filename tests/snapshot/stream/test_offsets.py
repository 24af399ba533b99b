"""Offset JSON: one shape, one text for the same offsets."""

import json
import random

import pytest

from rmqstore.errors import Rejected
from rmqstore.snapshot.stream.offsets import BEHIND, FROM, INITIAL, SINCE, begins_of, note_in, offset_json, offsets_in

PLACES = [(broker, topic, queue) for broker in ("b-2", "b-1") for topic in ("orders", "A") for queue in (0, 2, 10)]


def test_the_same_offsets_are_the_same_text_in_whatever_order_they_come():
    texts = set()
    for seed in range(5):
        places = PLACES.copy()
        random.Random(seed).shuffle(places)
        texts.add(json.dumps(offset_json({place: place[2] + 7 for place in places})))
    (text,) = texts
    assert text == json.dumps(json.loads(text), sort_keys=True)
    assert json.loads(text)["A"] == {"b-1": {"0": 7, "10": 17, "2": 9}, "b-2": {"0": 7, "10": 17, "2": 9}}


def test_offsets_come_back_without_their_notes():
    offsets = dict.fromkeys(PLACES, 5)
    shaped = json.loads(json.dumps(offset_json(offsets, {FROM: {PLACES[0]: 3}})))
    assert next(iter(shaped)) == "$from"
    assert offsets_in(shaped) == offsets
    assert begins_of({}, shaped, is_first=False) == {PLACES[0]: 3}
    assert begins_of({}, offset_json(offsets), is_first=True) == {}
    noted = {INITIAL: offset_json({PLACES[1]: 2}), **offset_json(offsets)}
    assert offsets_in(noted) == offsets
    later = {INITIAL: True, **offset_json({PLACES[1]: 9})}
    assert begins_of(later, noted, is_first=True) == {PLACES[1]: 2}
    assert begins_of(later, noted, is_first=False) == {PLACES[1]: 9}, "a restarted query's"
    assert offsets_in(None) == offsets_in({}) == {}


def test_notes_come_back_by_name_and_are_sorted_as_all_the_rest():
    shaped = offset_json({PLACES[0]: 7}, {SINCE: {PLACES[1]: 5}, FROM: {PLACES[0]: 3}, BEHIND: {}})
    assert json.dumps(shaped) == json.dumps(shaped, sort_keys=True)
    assert note_in(shaped, SINCE) == {PLACES[1]: 5}
    assert BEHIND not in shaped
    assert note_in(shaped, BEHIND) == {}


@pytest.mark.parametrize("topic", ["$x", "$marks", "$from", "$$since", "$", "!$a"])
def test_a_topic_that_is_named_like_a_note_is_none(topic):
    places = {("b", topic, 0): 4, ("b", "orders", 1): 5}
    notes = {name: {("b", topic, 0): 3} for name in (FROM, SINCE, BEHIND)}
    shaped = json.loads(json.dumps(offset_json(places, notes)))
    assert json.dumps(shaped) == json.dumps(shaped, sort_keys=True)
    assert offsets_in(shaped) == places
    assert {name: note_in(shaped, name) for name in notes} == notes
    assert shaped.keys() - notes.keys() == {"orders", "$" + topic if topic.startswith("$") else topic}
    assert offsets_in(offset_json({}, notes)) == {}


def test_a_key_that_is_neither_note_nor_topic_is_told():
    with pytest.raises(Rejected, match=r"'\$x' in offset JSON is no note .* is written \$\$x"):
        offsets_in({"orders": {"b": {"0": 1}}, "$x": {"b": {"0": 1}}})


@pytest.mark.parametrize(
    "shaped",
    [{"t": 1}, {"t": {"b": 1}}, {"t": {"b": {"0": "1"}}}, {"t": {"b": {"0": -1}}}, {"t": {"b": {"0": True}}},
     {"t": {"b": {"x": 1}}}, {"t": {"b": {"0": 2**63}}}, {"t": {"b": {"0": 2, "00": 0}}}],
)  # fmt: skip
def test_what_is_no_offset_is_refused_in_words(shaped):
    with pytest.raises(Rejected, match="the offset of 't' to go on from is not of this source"):
        offsets_in(shaped)
    with pytest.raises(Rejected):
        begins_of({}, {"$from": shaped}, is_first=False)


@pytest.mark.parametrize("shaped", [[], [1], "x", 5, 0, ""], ids=repr)
def test_what_is_no_object_is_refused_in_words(shaped):
    for read in (offsets_in, lambda offsets: note_in(offsets, "$marks")):
        with pytest.raises(Rejected, match="to go on from is not of this source"):
            read(shaped)
