"""The stores that odd requests are put to: RocketMQ's and ours, which both understand the oracle's words.

There are three of each, by name: "main", "light" that takes light queues, and "old" whose oldest files go.  An answer
has a status, the name of the exception where one was raised.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutResult
from rmqstore.engine.store import Store, open_store
from rmqstore.errors import DataLost
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.testing import Probe
from tests.conformance.java import Oracle
from tests.conformance.odd_requests import BODY_SIZE_MAX, PUTS, topic_of
from tests.conformance.workload import JAVA_SIZES, SIZES, STORE_HOST, Json

Bounds = dict[tuple[str, int], tuple[int, int]]
_SETTINGS: dict[str, Json] = {
    "main": {},
    "light": {"multi_dispatch": True, "light_queue_max": 2},
    "old": {"log_file_size": 16 * 1024, "queue_file_size": 400},
}
_JAVAS_SETTINGS: dict[str, Json] = {
    "main": {},
    "light": {"enableMultiDispatch": True, "enableLmq": True, "maxLmqConsumeQueueNum": 2},
    "old": {"mappedFileSizeCommitLog": 16 * 1024, "mappedFileSizeConsumeQueue": 400},
}
_TRIES_MAX = 1000
_ATTRIBUTES = {topic_of(odd): odd.request["attributes"] for odd in PUTS if odd.request.get("attributes")}


class JavaStore:
    """A store of RocketMQ's, among others in one JVM; 5.3.3 asks its broker's hooks."""

    def __init__(self, oracle: Oracle, version: str, directory: Path, name: str) -> None:
        self.directory = directory
        self._oracle, self._name = oracle, name
        config = JAVA_SIZES | {"maxMessageSize": BODY_SIZE_MAX} | _JAVAS_SETTINGS[name]
        more: Json = {"name": name, "cleansByHand": True}
        if not version.startswith("4."):
            config |= {"timerWheelEnable": False}
            more |= {"hooks": True, "topics": _ATTRIBUTES}
        assert oracle.open(directory, config, **more)["load"]

    def ask(self, request: Json) -> Json:
        """The answer to a request."""
        self._oracle.call("use", name=self._name)
        reply = self._oracle.ask(request["op"], **{key: value for key, value in request.items() if key != "op"})
        if isinstance(reply, dict) and "exception" in reply:
            return {"status": reply["exception"].rsplit(".", 1)[-1]}
        if request["op"] == "query":
            return {"status": "", "physicalOffsets": reply}
        if request["op"] == "record":
            return {"status": "nothing" if reply is None else "a record"}
        return dict(reply)

    def bounds(self) -> Bounds:
        """By queue that ever had a message, its bounds."""
        found = {}
        for place, queue in self._call("state")["queues"].items():
            topic, _, queue_id = place.rpartition("/")
            if queue["max"] > 0:
                found[topic, int(queue_id)] = (max(queue["min"], 0), queue["max"])
        return found

    def settle(self) -> None:
        """Waits until everything is in its queues."""
        self._call("settle")

    def delete_first(self) -> None:
        """Deletes all log files but the last; the queues are not told.

        5.3.3 deletes one at a time, and none that a thread of its own holds at the moment, though it is let go then.
        """
        size = _JAVAS_SETTINGS[self._name]["mappedFileSizeCommitLog"]
        for _ in range(_TRIES_MAX):
            self._call("deleteFirst")
            state = self._call("state")
            if state["minPhyOffset"] + size > state["maxPhyOffset"]:
                return
        raise AssertionError(f"its log still begins at {state['minPhyOffset']}")

    def expire(self) -> None:
        """Cleans log, queues and index of what is old, which is all but the last log file."""
        self._call("expire", files=len(list((self.directory / "commitlog").iterdir())), topic="old", queueId=0)

    def close(self) -> None:
        """Shuts down."""
        self._call("close")

    def _call(self, op: str, **fields: object) -> Any:
        self._oracle.call("use", name=self._name)
        return self._oracle.call(op, **fields)


class OurStore:
    """A store of ours, set as RocketMQ's of a release is."""

    def __init__(self, version: str, directory: Path, name: str) -> None:
        self.directory = directory
        sizes = SIZES | {"message_size_max": BODY_SIZE_MAX, "store_host": STORE_HOST} | _SETTINGS[name]
        config = StoreConfig(**sizes, long_topics_as_v2=not version.startswith("4."))
        self._store = open_store(str(directory), config, clock=ManualClock())
        for topic, attributes in _ATTRIBUTES.items():
            self._store.topics.put(TopicConfig(topic, 8, 8, attributes=attributes))

    def ask(self, request: Json) -> Json:
        """The answer to a request."""
        try:
            return _ANSWERS[request["op"]](self._store, request)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            return {"status": type(error).__name__}

    def bounds(self) -> Bounds:
        """By queue that ever had a message, its bounds."""
        found = {place: self._store.bounds(*place) for place in self._store.queues()}
        return {place: bounds for place, bounds in found.items() if bounds[1]}

    def settle(self) -> None:
        """Waits until everything is in its queues."""
        self._store.flush(10)

    def delete_first(self) -> None:
        """Deletes all log files but the last that is written; the queues are not told."""
        (last,) = self._store.get("old", 0, self._store.bounds("old", 0)[1] - 1).messages
        files = Probe(self._store).engine.parts.log  # nothing else leaves the queues as they are
        files.remove_first(last.physical_offset // self._store.config.log_file_size)

    def expire(self) -> None:
        """Cleans log, queues and index of what is old, which is all but the last log file."""
        while not self._store.clean(any_age=True).changes_nothing:
            pass

    def close(self) -> None:
        """Shuts down."""
        self._store.close()


def _answer_put(store: Store, request: Json) -> Json:
    return _told(store.put(_message(request)))


def _answer_batch(store: Store, request: Json) -> Json:
    own = {"WAIT": "true"}  # as RocketMQ's Message sets it
    return _told(
        store.put_batch([
            _message(request | piece | {"properties": own | piece["properties"] | request["properties"]})
            for piece in request["messages"]
        ])
    )  # fmt: skip


def _told(result: PutResult) -> Json:
    stored: Json = {}
    if result.is_stored:
        stored = {"append": "PUT_OK", "physicalOffset": result.physical_offset, "size": result.size}
    return {"status": result.status.name, "queueOffset": result.queue_offset} | stored


def _message(request: Json) -> Message:
    body: Any = request["body"]
    return Message(
        request["topic"], body if body is None else base64.b64decode(body), properties=request["properties"],
        queue_id=request["queueId"], flag=request["flag"], sys_flag=request["sysFlag"],
        born_timestamp_ms=request["bornTimestamp"], born_host=request["bornHost"],
        reconsume_times=request.get("reconsumeTimes", 0),
        prepared_transaction_offset=request.get("preparedTransactionOffset", 0),
    )  # fmt: skip


def _answer_get(store: Store, request: Json) -> Json:
    tags = {"tags": request["tags"]} if "tags" in request else {}
    result = store.get(request["topic"], request["queueId"], request["offset"], request["max"], **tags)
    return {
        "offset": request["offset"], "status": result.status.name, "next": result.next_offset,
        "min": result.min_offset, "max": result.max_offset,
        "physicalOffsets": [message.physical_offset for message in result.messages],
    }  # fmt: skip


def _answer_query(store: Store, request: Json) -> Json:
    found = store.query(request["topic"], request["key"], request["max"], request["begin"], request["end"])
    return {"status": "", "physicalOffsets": [message.physical_offset for message in found]}


def _answer_record(store: Store, request: Json) -> Json:
    try:
        store.message_at(request["offset"])
    except DataLost:
        return {"status": "nothing"}
    return {"status": "a record"}


_ANSWERS: dict[str, Callable[[Store, Json], Json]] = {
    "put": _answer_put, "putBatch": _answer_batch, "get": _answer_get, "query": _answer_query, "record": _answer_record,
}  # fmt: skip
