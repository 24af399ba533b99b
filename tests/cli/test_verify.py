"""`rmqstore verify`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run, document_of, last_line

StoreOf = Callable[[str], Path]


@pytest.mark.parametrize("case", ["basic", "killed-4.9.8", "broker-live-5.3.3"])
def test_a_sound_store_ends_with_0(case: str, run: Run, store_of: StoreOf) -> None:
    result = run("verify", store_of(case))
    assert result.exit_code == 0
    assert last_line(result.stdout).startswith("no damage")
    assert result.stderr == ""


@pytest.mark.parametrize("case", ["basic-midflip", "killed-wildindex", "basic-nocommitlog"])
def test_damage_ends_with_1(case: str, run: Run, store_of: StoreOf) -> None:
    result = run("verify", store_of(case))
    assert result.exit_code == 1
    assert "damaged place" in last_line(result.stdout)
    assert result.stderr == ""


def test_damage_is_named_by_file_offset_and_reason(run: Run, store_of: StoreOf) -> None:
    result = run("verify", store_of("basic-midflip"), "--quiet")
    first, *named, summary = result.stdout.splitlines()
    assert first == "damage  commitlog/00000000000000131072 @ 26348:"
    assert " ".join(" ".join(named).split()) == "the CRC of the body is wrong (JmtZGxB/1, queue offset 19)"
    assert summary == "1 damaged place, 2 notes; 155.1 KiB of commitlog checked"


def test_lines_fit_80_columns(run: Run, store_of: StoreOf) -> None:
    result = run("verify", store_of("killed-noabort"))
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_json(run: Run, store_of: StoreOf) -> None:
    store = store_of("basic-midflip")
    result = run("verify", store, "--json", "--quiet")
    assert result.exit_code == 1
    result.exit_code = 0
    (checked,) = document_of(result)["stores"]
    assert (checked["path"], checked["damageCount"], checked["noteCount"]) == (str(store), 1, 2)
    (finding,) = checked["findings"]
    assert finding == {
        "severity": "damage",
        "path": str(store / "commitlog" / "00000000000000131072"),
        "position": 26348,
        "reason": "the CRC of the body is wrong",
        "message": {"topic": "JmtZGxB", "queueId": 1, "queueOffset": 19, "keys": None},
    }


def test_several_stores_need_names(run: Run, store_of: StoreOf) -> None:
    result = run("verify", store_of("basic"), store_of("ipv6"))
    assert result.exit_code == 1
    assert last_line(result.stderr) == (
        f"Error: several stores of a broker called default, {store_of('basic')} and {store_of('ipv6')}: "
        "give each its name, as broker-a=PATH broker-b=PATH"
    )
    named = run("verify", f"a={store_of('basic')}", f"b={store_of('basic-nocq')}", "--json")
    assert named.exit_code == 1
    named.exit_code = 0
    counts = [(store["brokerName"], store["damageCount"]) for store in document_of(named)["stores"]]
    assert counts == [("a", 0), ("b", 1)]
