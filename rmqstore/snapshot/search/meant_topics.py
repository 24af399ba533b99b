"""Which topics a user means by names and patterns such as `orders*`."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rmqstore.errors import Rejected
from rmqstore.formats import names
from rmqstore.snapshot.columns import near_names

_WILDCARD = re.compile(r"[*?]")
# No topic that a user may make begins so.
_SYSTEM_HEADS = ("%", names.SYSTEM_PREFIX, names.SYSTEM_PREFIX.upper())
# A pattern that begins otherwise finds no topics of RocketMQ's own beside one that does.
_NOT_SYSTEM = "".join(
    f"(?!{own})"
    for own in (
        *map(re.escape, names.SYSTEM_PREFIXES),
        *(f"{topic}$" for topic in sorted(names.SYSTEM_TOPICS)),
        f".*{names.REPLY_SUFFIX}$",
    )
)


class MeantTopics(NamedTuple):
    """Topics as `Snapshot.select` takes them: `topics` named whole, or a regular expression, or neither for all."""

    topics: tuple[str, ...] | None
    pattern: str | None
    include_system_topics: bool = False
    globs: tuple[tuple[str, str], ...] = ()  #: patterns as the user wrote them, with the expression of each

    @classmethod
    def of(cls, words: Sequence[str], *, with_system_topics: bool = False) -> "MeantTopics":
        """`words` are names, or patterns in which * stands for any characters and ? for one; none means all topics.

        Topics of RocketMQ's own are meant by their names, by patterns that begin with %, rmq_sys_ or
        RMQ_SYS_, as %DLQ%*, and by all patterns `with_system_topics`.  Raises Rejected for an empty word.
        """
        if any(not word.strip() for word in words):
            raise Rejected("a topic without a name; leave it out for all topics")
        named = tuple(dict.fromkeys(word.strip() for word in words))
        if not named:
            return cls(None, None, with_system_topics)
        if not has_globs(named):
            return cls(named, None, with_system_topics)
        is_mixed = not with_system_topics and any(map(_means_system_topics, named))
        heads = [_NOT_SYSTEM if is_mixed and not _means_system_topics(word) else "" for word in named]
        parts = [head + glob_pattern(word) for head, word in zip(heads, named, strict=True)]
        globs = tuple((word, part) for word, part in zip(named, parts, strict=True) if _WILDCARD.search(word))
        return cls(None, "|".join(parts), with_system_topics or is_mixed, globs)

    def require_known(self, known: Sequence[str], where: str) -> None:
        """Raises Rejected for a pattern that none of the topics fits."""
        alone = () if self.pattern is None else ((self.pattern, self.pattern),)
        for word, pattern in self.globs or alone:
            if self._replace(pattern=pattern).fitting(known):
                continue
            near = near_names(word.replace("*", ""), known)
            hint = f"did you mean {', '.join(near)}?" if near else "`rmqstore inspect` lists the topics"
            raise Rejected(f"no topic fits {word} in {where}: {hint}")

    def fitting(self, known: Iterable[str]) -> list[str]:
        """Those of the topics that the pattern finds."""
        return [
            topic for topic in known
            if re.fullmatch(self.pattern or "", topic, re.DOTALL)
            and (self.include_system_topics or not names.is_system_topic(topic))
        ]  # fmt: skip

    @classmethod
    def listed(cls, words: Sequence[str], known: Sequence[str], where: str) -> tuple[str, ...]:
        """The topics that words mean, one after the other: names, known or not, and what each pattern finds among the
        known ones.  Raises Rejected for a pattern that finds none."""
        found: dict[str, None] = {}
        for word in words:
            meant = cls.of([word])
            meant.require_known(known, where)
            found |= dict.fromkeys(meant.fitting(known) if meant.topics is None else meant.topics)
        return tuple(found)


def has_globs(topics: Iterable[str]) -> bool:
    """Whether a name stands for several: it has * or ?, which no topic has."""
    return any(map(_WILDCARD.search, topics))


def _means_system_topics(word: str) -> bool:
    """Whether a name, or what a pattern begins with, is of RocketMQ's own topics."""
    return word.startswith(_SYSTEM_HEADS) if _WILDCARD.search(word) else names.is_system_topic(word)


def glob_pattern(name: str) -> str:
    """The regular expression of a name with * for any text and ? for any character."""
    return "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in name)


ALL_TOPICS = MeantTopics(None, None)
