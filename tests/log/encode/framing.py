"""Messages of all kinds, and one of them framed."""

from hypothesis import strategies as st

from rmqstore.core.message import Message
from rmqstore.engine.log.encode.record_frame import (
    Frame,
    RecordForm,
    frame_of,
)
from rmqstore.formats.host import encode_host
from tests.formats.records import I64

HOST = "127.0.0.1:10911"
FORM = RecordForm(encode_host(HOST))
NOW_MS = 1_700_000_000_000
TEXTS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=12)
NAMES = st.text("ABCabc_", min_size=1, max_size=6)
TOPICS = st.one_of(st.text("%|aZ09_-", min_size=1, max_size=20), st.just("T" * 127), st.just("%RETRY%" + "g" * 200))
HOSTS = st.sampled_from([None, HOST, "203.0.113.9:1", "255.255.255.255:-1", "[2001:db8::2]:65535"])
MESSAGES = st.builds(
    Message,
    topic=TOPICS,
    body=st.binary(max_size=300),
    tags=st.none() | TEXTS,
    keys=st.lists(TEXTS, max_size=3) | TEXTS,
    properties=st.dictionaries(
        NAMES | st.sampled_from(["TAGS", "KEYS", "WAIT", "__CRC32#", "__RMQ.TRANSIENT.x", "x__RMQ.TRANSIENT."]),
        st.none() | TEXTS,
    ),
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp_ms=st.none() | I64,
    born_host=HOSTS,
    reconsume_times=st.integers(-(2**31), 2**31 - 1),
    prepared_transaction_offset=I64,
    wait_store_ok=st.booleans(),
)


def framed(message: Message, form: RecordForm = FORM) -> Frame:
    frame = frame_of(message, form, NOW_MS)
    assert isinstance(frame, Frame), frame
    return frame
