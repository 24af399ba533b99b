"""The gate that is asked before anything is put, and the words in which a put is refused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqstore.core.arguments import wrong_type
from rmqstore.core.message import Message, PutResult, PutStatus
from rmqstore.engine.log.put.refusal_reasons import hook_reason, name_of
from rmqstore.formats.names import QueueKey


class PutHook(Protocol):
    """Looks at a message before it is encoded, outside of the put lock; any thread that puts.

    One with a method `refusal_reason(message) -> str` says in words why it refused the message.
    """

    def __call__(self, message: Message) -> Message | PutStatus:
        """The message to store, which may be another, or the status of a refusal."""


def _nothing_refused() -> PutStatus | None:
    return None


def _all_admitted(_: Sequence[QueueKey]) -> PutStatus | None:
    return None


def _no_words() -> str:
    return ""


def _no_words_for(_topic: str, _queue_id: int) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The checks that a message passes before it is put into a log.

    `refusal` answers why nothing may be put now, None when it may, and raises StoreClosed where the store is another
    process's; `why_unavailable` says it in words.  `hooks` are asked of each message that is put by itself or in a
    batch; `admit`, before messages come in bulk, whether they may go to these queues, and `why_not_admitted` why a
    queue takes none ("": it does).  Unless they are `asks_of_each`, the hooks have nothing to say of a message that
    `admit` lets pass and that has none of the properties `deciding`.
    """

    refusal: Callable[[], PutStatus | None] = _nothing_refused
    why_unavailable: Callable[[], str] = _no_words
    hooks: Sequence[PutHook] = ()
    admit: Callable[[Sequence[QueueKey]], PutStatus | None] = _all_admitted
    why_not_admitted: Callable[[str, int], str] = _no_words_for
    asks_of_each: bool = True
    deciding: frozenset[str] = frozenset()

    def hooked(self, message: Message) -> Message | PutResult:
        """The message as the hooks, one after the other, leave it, or the refusal of one of them."""
        for hook in self.hooks:
            answer = hook(message)
            if type(answer) is Message:
                message = answer
                continue
            if isinstance(answer, PutStatus):
                reason = hook_reason(hook, message)
                if not reason and answer is PutStatus.SERVICE_NOT_AVAILABLE:
                    reason = self.why_unavailable()
                return PutResult(answer, reason=reason or f"refused by the hook {name_of(hook)}")
            if not isinstance(answer, Message):
                raise wrong_type(f"the answer of the hook {name_of(hook)}", answer, "a rmqstore.Message or a PutStatus")
            message = answer
        return message
