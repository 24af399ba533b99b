"""docs/formats.md held to the tables that the code reads and writes by, so that the page cannot drift."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from rmqstore import StoreConfig
from rmqstore.formats import message
from rmqstore.formats.layout import Layout
from rmqstore.formats.message import Record, encode_record, read_record

PAGE = Path(__file__).parents[1] / "docs" / "formats.md"
FORMATS = sorted(path.stem for path in (PAGE.parents[1] / "rmqstore" / "formats").glob("[a-z]*.py"))
_MARKED = re.compile(r"^<!-- (\w+)(?:: ([\w.]+))? -->\n\|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def format_module(name: str) -> ModuleType:
    return import_module(f"rmqstore.formats.{name}")


def tables(kind: str) -> dict[str, list[list[str]]]:
    """The cells of the page's tables that are marked so, by the name in the mark."""
    found: dict[str, list[list[str]]] = {}
    for marked, name, rows in _MARKED.findall(PAGE.read_text(encoding="utf-8")):
        if marked == kind:
            assert name not in found, f"{name} stands on the page twice"
            found[name] = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows.splitlines()]
    return found


def values(module: ModuleType, kind: type) -> dict[str, int | str]:
    """The public constants of a module that are of a type."""
    return {name: value for name, value in vars(module).items() if name.isupper() and type(value) is kind
            and not name.startswith("_")}  # fmt: skip


LAYOUTS = tables("layout")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_table_of_fields_is_the_layout_that_it_is_of(name: str) -> None:
    module, _, constant = name.partition(".")
    layout: Layout = getattr(format_module(module), constant)
    said = [(int(row[0]), row[1].strip("`"), row[2]) for row in LAYOUTS[name]]
    assert said == [(layout.offset[field], field, kind) for field, kind in layout.fields]


def all_layouts() -> Iterator[tuple[str, Layout]]:
    """Every public layout in `rmqstore.formats`, once, where it is made."""
    seen: list[Layout] = []
    for module in FORMATS:
        for name, value in vars(format_module(module)).items():
            if isinstance(value, Layout) and not name.startswith("_") and value not in seen:
                seen.append(value)
                yield f"{module}.{name}", value


def test_every_layout_is_on_the_page() -> None:
    front = message.FRONT_V4.fields
    of_the_front = [message.HEAD, message.STORE_TIME, message.FOOT]  # its table shows them as well
    for part in of_the_front:
        at = front.index(part.fields[0])
        assert front[at : at + len(part.fields)] == part.fields
    wanted = {name: layout for name, layout in all_layouts() if layout not in of_the_front}
    shown = [getattr(format_module(name.partition(".")[0]), name.partition(".")[2]) for name in LAYOUTS]
    assert [name for name, layout in wanted.items() if layout not in shown] == []


def test_every_bit_of_sys_flag_is_on_the_page() -> None:
    shown = {_CODE.findall(row[0])[0]: int(row[1], 16) for row in tables("constants")["sys_flag"]}
    assert shown == values(format_module("sys_flag"), int)


def test_the_magic_numbers_are_those_of_the_code() -> None:
    rows = tables("constants")["message"]
    shown = {_CODE.findall(row[0])[0]: int(row[1]) for row in rows}
    assert shown == {name: value for name, value in values(message, int).items() if name.startswith("MAGIC_")}
    assert [bytes.fromhex(row[2].strip("`")) for row in rows] == [
        value.to_bytes(4, "big", signed=True) for value in shown.values()
    ]


def test_every_property_that_means_something_is_on_the_page() -> None:
    shown = {text for row in tables("values")["properties"] for text in _CODE.findall(row[0])}
    assert shown >= set(values(format_module("properties"), str).values()) - {" "}  # what separates keys is no name


def test_every_topic_with_a_meaning_is_on_the_page() -> None:
    shown = {text for row in tables("values")["names"] for text in _CODE.findall(row[0])}
    named = values(format_module("names"), str).items()
    assert shown == {value for name, value in named if name.endswith(("_TOPIC", "_PREFIX", "_SUFFIX"))}


def test_sizes_are_those_of_the_configurations() -> None:
    embedded, broker = StoreConfig.embedded(), StoreConfig.broker()
    rows = tables("sizes")[""]
    assert len(rows) == 6
    for row in rows:
        name = row[0].strip("`")
        assert [int(cell) for cell in row[2:]] == [getattr(embedded, name), getattr(broker, name)]


def test_sizes_have_rocketmqs_names() -> None:
    names = {row[0].strip("`"): _CODE.findall(row[1])[0] for row in tables("sizes")[""]}
    text = "\n".join(f"{apache} = {920_000 * number}" for number, apache in enumerate(names.values(), start=1))
    found = StoreConfig.from_broker_conf("broker.conf", read=lambda _: text)
    assert [getattr(found, name) for name in names] == [920_000 * number for number in range(1, len(names) + 1)]


def test_the_example_is_the_record_that_it_says() -> None:
    (block,) = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    data = bytes.fromhex(block)
    record = read_record(data, 0)
    assert isinstance(record, Record)
    assert encode_record(record) == data
    assert (record.size, record.topic, record.body, record.properties) == (104, b"T", b"hello", b"TAGS\x01A\x02")
    assert record.born_timestamp == record.store_timestamp == 1_700_000_000_000
