"""How long tests wait for what has to come: so long that only a hang takes longer, on the busiest machine."""

import time
from collections.abc import Callable

PATIENCE_S = 600
_ASK_AGAIN_S = 0.005


def until(is_so: Callable[[], object], what: Callable[[], object] | str = "") -> None:
    """Asks until it is so; fails for a hang, and says `what` then."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, what() if callable(what) else what
        time.sleep(_ASK_AGAIN_S)
