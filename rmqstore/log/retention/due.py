"""When log files become deletable by their age: the nightly rounds of a broker, looked at ahead."""

from rmqstore.clock import local_time
from rmqstore.log.retention.plan import RetentionPolicy

_FULL_HOUR_MS = 3_600_000
# Every hour of the day comes by within a day; where clocks are changed one may be missing for one day more.
_HOURS_ASKED = 49


def next_round_ms(policy: RetentionPolicy, from_ms: int) -> int | None:
    """The first moment from `from_ms` on, in ms since the epoch, at which a round deletes by age; None if no hour of
    the day is one for deleting.
    """
    moment = from_ms
    for _ in range(_HOURS_ASKED):
        if policy.is_hour(moment):
            return moment
        local = local_time(moment)
        moment += _FULL_HOUR_MS - (local.minute * 60 + local.second) * 1000 - moment % 1000
    return None
