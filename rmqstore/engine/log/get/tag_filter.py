"""Which messages a subscription by tags lets pass, as far as queue entries tell."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rmqstore.core.arguments import text
from rmqstore.errors import Rejected
from rmqstore.formats.java_hash import string_hash
from rmqstore.formats.java_text import java_trim
from rmqstore.formats.wanted_words import is_listed, listed, refuse_slips


@dataclass(frozen=True, slots=True)
class TagFilter:
    """The tags of `a || b`, and their hashes as queue entries have them."""

    tags: frozenset[str]
    codes: npt.NDArray[np.int64]

    def passing(self, entries: npt.NDArray[np.void]) -> list[bool]:
        """Which entries may belong to messages with one of the tags.

        Those whose third field is no tag hash (delivery times, extension addresses) may.
        """
        codes = entries["tags_code"].astype(np.int64)
        is_hash = (codes >= -(2**31)) & (codes < 2**31)
        passing: list[bool] = (np.isin(codes, self.codes) | ~is_hash).tolist()
        return passing


@lru_cache(maxsize=256)
def parse_tags(expression: str) -> TagFilter | None:
    """The filter that a subscription means; None for all: `*`, or nothing.  Raises Rejected for one without a tag, and
    for what no subscription means: tags between commas or single bars, or in quotes.

    Java: FilterAPI.buildSubscriptionData, which takes the latter for the name of a tag; here that is a JSON list.
    """
    if text("tags", expression) in ("", "*"):
        return None
    if is_listed(expression):
        tags = frozenset(listed(expression))
    else:
        tags = frozenset(java_trim(piece) for piece in expression.split("||")) - {""}
        refuse_slips(expression, sorted(tags))
    if not tags:
        raise Rejected(f"tags={expression!r}: write a || b, or * for all")
    return TagFilter(tags, np.array(sorted(string_hash(tag) for tag in tags), np.int64))
