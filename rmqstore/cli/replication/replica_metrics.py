"""The states of replicas in the text format OpenMetrics 1.0."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, get_args

from rmqstore.replica.following.state import Doing, ReplicaState

_PREFIX = "rmqstore_replica"


class _Series(NamedTuple):
    """A metric with one value for each broker: None while it is not known, which leaves it out."""

    name: str
    kind: str
    unit: str
    meaning: str
    value: Callable[[ReplicaState], float | None]


_SERIES = (
    _Series("up", "gauge", "", "1 while the replica is connected and follows its master.",
            lambda state: int(state.phase == "following")),
    _Series("log_start_bytes", "gauge", "bytes", "First offset of the log that is here.",
            lambda state: state.log_start),
    _Series("log_end_bytes", "gauge", "bytes", "Where the log ends that is here, on the disk.",
            lambda state: state.log_end),
    _Series("log_files", "gauge", "", "Commitlog files with a part of the log.", lambda state: state.log_files),
    _Series("master_end_bytes", "gauge", "bytes", "Where the master's log ends, as last heard.",
            lambda state: state.master_end),
    _Series("behind_bytes", "gauge", "bytes", "Bytes of the master's log that are not here yet.",
            lambda state: state.behind_bytes),
    _Series("behind_messages_estimate", "gauge", "", "The same in messages, by the size of those that came last.",
            lambda state: state.behind_messages),
    _Series("behind_seconds", "gauge", "seconds", "How long the oldest message that is missing has been missing.",
            lambda state: state.behind_s),
    _Series("newest_message_timestamp_seconds", "gauge", "seconds", "Store time of the newest message.",
            lambda state: None if state.newest_ms is None else state.newest_ms / 1000),
    _Series("tables_age_seconds", "gauge", "seconds", "Time since the master's tables were taken over.",
            lambda state: state.tables_age_s),
    _Series("received_bytes", "counter", "bytes", "Bytes that came over the replication link.",
            lambda state: state.traffic.received_size),
    _Series("connection_attempts", "counter", "", "Connections to the master that were tried.",
            lambda state: state.traffic.attempts),
    _Series("connection_failures", "counter", "", "Those that failed, at once or later.",
            lambda state: state.traffic.failures),
)  # fmt: skip


def metrics_text(states: Mapping[str, ReplicaState]) -> str:
    """The whole text; the label `broker` tells the replicas apart."""
    labels = {name: f'broker="{_escaped(name)}"' for name in states}
    lines = []
    for series in _SERIES:
        name = f"{_PREFIX}_{series.name}"
        lines += _head(name, series.kind, series.meaning, series.unit)
        sample = f"{name}_total" if series.kind == "counter" else name
        values = ((label, series.value(states[broker])) for broker, label in labels.items())
        lines += [f"{sample}{{{label}}} {value!r}" for label, value in values if value is not None]
    name = f"{_PREFIX}_phase"
    lines += _head(name, "stateset", "The state that the replica is in.")
    lines += [
        f'{name}{{{label},{name}="{phase}"}} {int(states[broker].phase == phase)}'
        for broker, label in labels.items()
        for phase in get_args(Doing)
    ]
    return "\n".join([*lines, "# EOF", ""])


def _head(name: str, kind: str, meaning: str, unit: str = "") -> list[str]:
    return [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {meaning}"]


def _escaped(value: str) -> str:
    """A label's value: anything but these may stand in it, as UTF-8."""
    whole = value.encode("utf-8", "replace").decode()
    return whole.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
