"""Messages that a consumer could not deal with: back to it after a while, and to the dead letters after too many times.

Java: AbstractSendMessageProcessor.consumerSendMsgBack, SendMessageProcessor.handleRetryAndDLQ.
"""

from collections.abc import Callable

from rmqstore.core.annotations import checked
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.errors import Rejected
from rmqstore.formats import names, properties
from rmqstore.formats.broker_json import SubscriptionGroup
from rmqstore.formats.stored_message import StoredMessage

_FIRST_LEVEL = 3  # the delay level of the first retry: 10 s by RocketMQ's own levels


class Retries:
    """Sends messages back for groups.

    `put` asks the hooks for topics and delays; `find_group` answers for every group, also one that nobody configured.
    """

    def __init__(self, put: Callable[[Message], PutResult], find_group: Callable[[str], SubscriptionGroup]) -> None:
        self._put = put
        self._find_group = find_group

    @checked
    def send_back(
        self, group: str, message: StoredMessage, delay_level: int = 0, max_times: int | None = None
    ) -> PutResult:
        """Puts a message that the group has read for it again: it comes in %RETRY%group after the delay of the level,
        one longer each time where that is 0.

        It becomes a dead letter, in %DLQ%group and at once, if it came back `max_times` times (None: the group's
        retryMaxTimes), or for a level below 0.  For a group without retry queues it is dropped, and the answer is
        PUT_OK with nothing stored, as in RocketMQ; a group of more than 122 characters has no dead letters, which is
        MESSAGE_ILLEGAL.  Raises Rejected for a damaged record.
        """
        if not message.is_whole:
            raise Rejected(f"{message} cannot be sent back: {message.corrupt_reason}")
        chosen = self._find_group(group)
        if chosen.retry_queue_nums <= 0:
            return PutResult(PutStatus.PUT_OK)
        times = message.reconsume_times
        is_dead = delay_level < 0 or times >= (chosen.retry_max_times if max_times is None else max_times)
        level = 0 if is_dead else delay_level or _FIRST_LEVEL + times
        back = sent_back(message, f"{names.DLQ_PREFIX if is_dead else names.RETRY_PREFIX}{group}", level)
        if not is_dead:
            # RocketMQ picks one at random; by queue offset they spread as well, and the same way each time.
            back.queue_id = message.queue_offset % chosen.retry_queue_nums
        return self._put(back)


def sent_back(message: StoredMessage, topic: str, delay_level: int) -> Message:
    """The message that comes back in `topic`, or ends there: with the id of its first incarnation and its real topic,
    one time more, and without waiting for the disk.
    """
    kept = dict(message.properties)
    kept.setdefault(properties.RETRY_TOPIC, message.topic)
    kept[properties.DELAY] = str(delay_level)
    origin = kept.get(properties.ORIGIN_MESSAGE_ID, "")
    kept[properties.ORIGIN_MESSAGE_ID] = origin if origin.strip() else message.offset_msg_id
    return Message(
        topic,
        message.stored_body,
        properties=kept,
        flag=message.flag,
        sys_flag=message.record.sys_flag,
        born_timestamp_ms=message.born_timestamp_ms,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times + 1,
        wait_store_ok=False,
    )
