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
    _Series("up", "gauge", "", "1 if the replica is connected and follows its master, else 0.",
            lambda state: int(state.phase == "following")),
    _Series("log_start_bytes", "gauge", "bytes", "First offset of the replica's log.",
            lambda state: state.log_start),
    _Series("log_end_bytes", "gauge", "bytes", "Offset after the last byte of the replica's log that is on the disk.",
            lambda state: state.log_end),
    _Series("log_files", "gauge", "", "Commitlog files of the replica.", lambda state: state.log_files),
    _Series("master_end_bytes", "gauge", "bytes", "End offset of the master's log, as last reported by the master.",
            lambda state: state.master_end),
    _Series("behind_bytes", "gauge", "bytes", "Bytes of the master's log that are not replicated yet.",
            lambda state: state.behind_bytes),
    _Series("behind_messages_estimate", "gauge", "", "Messages that are not replicated yet, estimated from the size "
        "of the last messages.",
            lambda state: state.behind_messages),
    _Series("behind_seconds", "gauge", "seconds", "Age of the oldest message that is not replicated yet.",
            lambda state: state.behind_s),
    _Series("newest_message_timestamp_seconds", "gauge", "seconds", "Store time of the newest replicated message.",
            lambda state: None if state.newest_ms is None else state.newest_ms / 1000),
    _Series("tables_age_seconds", "gauge", "seconds", "Time since the master's tables were last copied.",
            lambda state: state.tables_age_s),
    _Series("received_bytes", "counter", "bytes", "Bytes received over the replication link.",
            lambda state: state.traffic.received_size),
    _Series("connection_attempts", "counter", "", "Attempted connections to the master.",
            lambda state: state.traffic.attempts),
    _Series("connection_failures", "counter", "", "Connections to the master that failed, at once or later.",
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
    lines += _head(name, "stateset", "The state of the replica.")
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
