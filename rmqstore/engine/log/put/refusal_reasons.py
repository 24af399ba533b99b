"""Why a put was refused, in words: looked for only once it was, so that a put that goes well pays nothing for it.

The rules are those of `record_frame.frame_of`, `batch_frame.batch_of` and `inner_batches`; here they are asked again,
one by one, in their order.
"""

from collections.abc import Sequence

from rmqstore.core.arguments import I32_MAX, I64_MAX, shown
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.log.encode.batch_frame import is_delayed
from rmqstore.engine.log.encode.record_frame import (
    LONG_TOPIC_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    TOPIC_SIZE_MAX,
    RecordForm,
    may_be_stored,
    properties_block,
)
from rmqstore.formats import names, properties, sys_flag
from rmqstore.formats.host import encode_host
from rmqstore.formats.inner_batch import COUNT_MAX

_I32 = ("queue_id", "flag", "sys_flag", "reconsume_times")
_I64 = ("born_timestamp_ms", "prepared_transaction_offset")
_SIMPLE = {
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "fewer slaves are connected and near than min_in_sync_replicas wants",
    PutStatus.CREATE_MAPPED_FILE_FAILED: "the next file of the log could not be made; the same put may work later",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: "it names more light queues than light_queue_max lets there be",
    PutStatus.OS_PAGE_CACHE_BUSY: "another put has held the log for longer than busy_timeout_ms; put again later",
}


def topic_reason(topic: str, long_as_v2: bool = True) -> str:
    """Why records may not have a topic; "" where they may."""
    if may_be_stored(topic, long_as_v2):
        return ""
    is_long = long_as_v2 and topic.startswith(names.RETRY_PREFIX)
    most = LONG_TOPIC_SIZE_MAX if is_long else TOPIC_SIZE_MAX
    return f"topic={shown(topic)}: letters, digits, %, |, _ and -, 1 to {most} of them"


def refusal_reason(status: PutStatus, messages: Sequence[Message], form: RecordForm, file_size: int) -> str:
    """Why messages, as the hooks left them, were answered so; `file_size` is that of the log's files."""
    if status in _SIMPLE:
        return _SIMPLE[status]
    if status not in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        return ""
    is_batch = len(messages) > 1
    for number, message in enumerate(messages):
        reason = (is_batch and _batch_reason(message)) or message_reason(message, form)
        if reason:
            return f"message {number} of the batch: {reason}" if is_batch else reason
    if is_batch:
        size = sum(len(message.body) for message in messages)
        return (
            f"the batch is too large: {len(messages)} messages with {size} bytes of bodies; sent as one message they "
            f"may have {form.message_size_max} bytes, and in the log {file_size}: put fewer at a time"
        )
    return f"its record does not fit a file of the log ({file_size} bytes), or the largest record"


def hook_reason(hook: object, message: Message) -> str:
    """A hook's own reason for refusing a message, if it has a method `refusal_reason`; else ""."""
    explain = getattr(hook, "refusal_reason", None)
    reason = explain(message) if callable(explain) else None
    return "" if reason is None else reason if isinstance(reason, str) else shown(reason)


def name_of(hook: object) -> str:
    """A hook's name."""
    return str(getattr(hook, "__name__", type(hook).__name__))


def message_reason(message: Message, form: RecordForm) -> str:
    """The fault of a single message whose types are right; "" where there is none."""
    return (
        topic_reason(message.topic, form.long_topics_as_v2)
        or _body_reason(message, form)
        or _number_reason(message)
        or _flag_reason(message)
        or _properties_reason(message, form)
        or _host_reason(message)
    )


def _batch_reason(message: Message) -> str:
    """Why a message may not be part of a batch; "" where it may."""
    if message.sys_flag & sys_flag.TRANSACTION_MASK:
        return f"sys_flag={message.sys_flag:#x}: a part of a transaction goes into no batch"
    if is_delayed(message):
        return f"{properties.DELAY}={shown(message.properties[properties.DELAY])}: delayed messages go into no batch"
    if (message.properties.get(properties.MULTI_DISPATCH) or "").strip():
        return f"{properties.MULTI_DISPATCH}: messages for light queues go into no batch"
    return ""


def _body_reason(message: Message, form: RecordForm) -> str:
    body: bytes | None = message.body  # whatever the annotation says
    if body is None:
        return "body=None: bytes, b'' for an empty one"
    if len(body) > form.message_size_max:
        return f"a body of {len(body)} bytes: at most {form.message_size_max} (StoreConfig.message_size_max)"
    return ""


def _number_reason(message: Message) -> str:
    if not 0 <= message.queue_id <= I32_MAX:
        return f"queue_id={shown(message.queue_id)}: 0 to {I32_MAX}"
    for fields, most in ((_I32, I32_MAX), (_I64, I64_MAX)):
        for name in fields:
            value = getattr(message, name)
            if value is not None and not -most - 1 <= value <= most:
                return f"{name}={shown(value)}: {-most - 1} to {most}"
    return ""


def _flag_reason(message: Message) -> str:
    says_count = message.properties.get(properties.INNER_COUNT)
    if not message.sys_flag & sys_flag.INNER_BATCH:
        return "" if says_count is None else f"{properties.INNER_COUNT} without the flag of a batch (0x80) in sys_flag"
    return (
        f"sys_flag={message.sys_flag:#x}, {properties.INNER_COUNT}={shown(says_count)}: a batch comes with the flags "
        f"0xC0 and a count of 1 to {COUNT_MAX}, as a put of its own, to a topic with queue.type=BatchCQ"
    )


def _properties_reason(message: Message, form: RecordForm) -> str:
    block = properties_block(message)
    if block is None:
        return _mark_reason(message)
    size = len(block) + len(form.more_properties)
    if size > PROPERTIES_SIZE_MAX:
        return f"properties of {size} bytes: at most {PROPERTIES_SIZE_MAX}, tags and keys among them"
    return ""


def _mark_reason(message: Message) -> str:
    """Which property has no name, or one of the two bytes that stand between properties."""
    keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys or ())
    fields = [("tags", "", message.tags or ""), ("keys", "", keys)]
    fields += [(f"properties[{shown(name)}]", name, value or "") for name, value in message.properties.items()]
    for field, name, value in fields:
        if any(mark in part for part in (name, value) for mark in ("\x01", "\x02")):
            return f"{field}: 0x01 and 0x02 stand between properties, and may not be in one"
    return "properties: one has no name"


def _host_reason(message: Message) -> str:
    if message.born_host is None:
        return ""
    try:
        encode_host(message.born_host)
    except ValueError as error:
        return f"born_host: {error}"
    return ""
