"""The types of a message's fields.  A put comes here only with a field whose type is not exactly the one it expects."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rmqstore.core import arguments
from rmqstore.core.message import Message
from rmqstore.errors import Rejected, StoreError, WrongType

_INTEGERS = ("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset")
_TAGS = "text: a message has one tag"
_KEYS = "text with spaces between the keys, or several texts"
_BORN = "milliseconds since the epoch, int(value.timestamp() * 1000)"


def plain_message(message: Message) -> Message:
    """The message with fields of exactly the types that it is encoded from.

    Whatever means the same is taken: NumPy's integers, subclasses of str (an enum's value), whatever holds bytes.  A
    body of None stays: it is refused as RocketMQ refuses it.  Numbers may be any: whether they have a place in a record
    is seen there.  Raises WrongType, which names the field.
    """
    if not isinstance(message, Message):
        raise arguments.wrong_type("message", message, "a rmqstore.Message")
    fields: dict[str, Any] = {"topic": arguments.any_text("topic", message.topic)}
    if message.body is not None:
        fields["body"] = arguments.octets("body", message.body)
    fields["tags"] = None if message.tags is None else arguments.any_text("tags", message.tags, _TAGS)
    keys: Any = settled_keys(message)
    fields["keys"] = "" if keys is None else " ".join(arguments.texts("keys", keys, _KEYS, arguments.any_text))
    fields["properties"] = arguments.text_table("properties", message.properties, arguments.any_text, may_lack=True)
    for name in _INTEGERS:
        fields[name] = any_integer(name, getattr(message, name))
    if message.born_timestamp_ms is not None:
        fields["born_timestamp_ms"] = born_ms(message.born_timestamp_ms)
    if message.born_host is not None:
        fields["born_host"] = arguments.any_text("born_host", message.born_host)
    fields["wait_store_ok"] = arguments.flag("wait_store_ok", message.wait_store_ok)
    return replace(message, **fields)


def with_plain_numbers(message: Message) -> Message:
    """The message with plain integers where a value means one; all else stays as it is, since a hook may still put it
    right."""
    fields: dict[str, Any] = {}
    for name in _INTEGERS:
        value = getattr(message, name)
        if type(value) is not int:
            try:
                fields[name] = arguments.integer(name, value)
            except Rejected:
                continue
    return replace(message, **fields) if fields else message


def settled_keys(message: Message) -> Any:
    """The keys of a message as a sequence, which replaces them in it: an iterator would give them only once, and the
    message may be put again, or the reason of its refusal looked for.
    """
    if isinstance(message.keys, Iterator):
        message.keys = tuple(message.keys)
    return message.keys


def any_integer(name: str, value: Any) -> int:
    """An integer of any size.  Raises WrongType."""
    return value if type(value) is int else arguments.integer(name, value)


def born_ms(value: Any) -> int:
    """A born time.  Any number of milliseconds is one: it is what a sender's clock says.  Raises WrongType."""
    if hasattr(value, "timestamp") or isinstance(value, float):
        raise arguments.wrong_type("born_timestamp_ms", value, _BORN)
    return any_integer("born_timestamp_ms", value)


def messages_of(messages: Iterable[Message]) -> Sequence[Message]:
    """Several messages as a sequence, whatever brings them.  Raises WrongType for anything else.

    What brings them one by one may fill one buffer again and again: such a body is copied as it comes.
    """
    if isinstance(messages, list | tuple):
        return messages
    if isinstance(messages, Message | str | bytes) or not isinstance(messages, Iterable):
        raise arguments.wrong_type("messages", messages, "several messages; `put` takes one")
    return [*map(with_own_body, messages)]


def with_own_body(message: Message) -> Message:
    """The message with a body that nobody changes; one that cannot be had so is left to be refused."""
    if type(message) is not Message or type(message.body) is bytes:
        return message
    try:
        return replace(message, body=bytes(memoryview(message.body)))
    except Exception:  # noqa: BLE001  a body may be anything
        return message


def explain(error: BaseException, messages: Sequence[Message]) -> None:
    """Raises WrongType where a field of wrong type explains what a put ended with."""
    is_mistake = not isinstance(error, OSError | StoreError) or isinstance(error, Rejected)
    if not is_mistake or isinstance(error, WrongType) or not isinstance(error, Exception):
        return
    for message in messages:
        try:
            plain_message(message)
        except WrongType as wrong:
            raise wrong from None
