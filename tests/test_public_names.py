"""What programs see of the package: every name documented, every parameter named and typed."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import rmqstore
from rmqstore import Consumer, Snapshot, Store, StoreConfig
from rmqstore.snapshot.request import ScanRequest

CLASSES = (Snapshot, Store, Consumer)
WORDS = {
    (Snapshot.scan, "scan_mode"): ("auto", "queue", "commitlog"),
    (Snapshot.scan, "on_corrupt_record"): ("fail", "skip", "null"),
    (Snapshot.scan, "verify_crc"): ("auto", "always", "never"),
    (Snapshot.select, "missing_time"): ("error", "latest"),
    (Snapshot.scan, "missing_time"): ("error", "latest"),
    (Snapshot.offset_at, "boundary"): ("lower", "upper", "nearest"),
    (Snapshot.table, "name"): ("queues", "topics", "groups", "files", "transactions", "delayed", "entries"),
    (Store.offset_at, "boundary"): ("lower", "upper"),
    (Store.consumer, "consume_from"): ("earliest", "latest"),
    (rmqstore.open_snapshot, "access"): ("auto", "mmap", "pread"),
    (StoreConfig, "flush"): ("SYNC", "ASYNC"),
    (StoreConfig, "on_middle_damage"): ("refuse", "cut"),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    yield "open_store", rmqstore.open_store
    yield "open_snapshot", rmqstore.open_snapshot
    for owner in CLASSES:
        for name, found in inspect.getmembers(owner, inspect.isfunction):
            if not name.startswith("_"):
                yield f"{owner.__name__}.{name}", found


FUNCTIONS = list(public_functions())


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_every_parameter_has_a_name_and_a_type(name: str, function: Callable[..., Any]) -> None:
    hints = get_type_hints(function)
    assert "return" in hints
    for parameter in inspect.signature(function).parameters.values():
        assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), name
        assert parameter.name == "self" or hints[parameter.name] is not Any, f"{name}: {parameter.name}"
    assert function.__doc__


@pytest.mark.parametrize(("where", "words"), WORDS.items(), ids=[f"{key[0].__name__} {key[1]}" for key in WORDS])
def test_words_are_literals(where: tuple[Callable[..., Any], str], words: tuple[str, ...]) -> None:
    hint = get_type_hints(where[0])[where[1]]
    assert get_origin(hint) is Literal
    assert get_args(hint) == words


def test_a_scan_names_everything_that_says_how_rows_are_made() -> None:
    parameters = inspect.signature(Snapshot.scan).parameters
    for name, field in ScanRequest.__dataclass_fields__.items():
        assert name in parameters
        if name not in ("columns", "access"):
            assert parameters[name].default == field.default


def test_every_public_name_is_there() -> None:
    for name in rmqstore.__all__:
        assert inspect.getdoc(getattr(rmqstore, name)), name
