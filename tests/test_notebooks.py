"""The notebooks, run from top to bottom as a reader would run them; they are kept without outputs."""

import html
import itertools
import json
import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

PROJECT = Path(__file__).parents[1]
NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
CELL_SECONDS_MAX = 600
# Of each notebook what a reader has to find in its outputs.
SHOWN = {
    "1_first_look": [
        "written by RocketMQ 5.x, by a broker called broker-a",
        "14 queues, 7511 messages",
        "2026-11-21 05:20:22.351 UTC",
        "2026-11-21 05:20:50.064 UTC",
        '<td>"commitlog"</td><td>3</td><td>3.0</td><td>2.5</td>',
        "image/png",
        "<td>created</td><td>1700</td>",
        "<td>shipped</td><td>1374</td>",
        "Spark, DuckDB and Polars agree: True",
        "p-50017",
    ],
    "2_orders_from_json": [
        "1,502 orders in 59 hours, 126,927.30 euros",
        "<td>card</td><td>890</td>",
        "<td>Montréal</td><td>228</td><td>19267.62</td>",
        "<td>1700</td><td>1502</td><td>1374</td><td>198</td>",
        "image/png",
        "<td>created to paid</td><td>0.8</td>",
        "<td>paid to shipped</td><td>5.6</td>",
        "<td>NULL</td><td>1200</td>",
        "the body is not JSON",
    ],
    "3_who_is_behind": [
        "<td>4478</td><td>5936</td>",
        "<td>1615</td><td>2911</td>",
        "<td>2</td><td>1194</td><td>5936</td>",
        "<td>3</td><td>720</td><td>2911</td>",
        '<td>29</td><td>"billing"</td><td>300</td>',
        '<td>30</td><td>"billing"</td><td>288</td><td>15.0</td>',
        "image/png",
    ],
    "4_life_of_an_order": [
        "<td>shipped</td>",
        "<td>dead letter</td>",
        "%DLQ%ledger",
        "image/png",
        '"rolledback"',
        '"pending"',
        "<td>transaction</td>",
        "<td>22846</td>",
    ],
    "5_stream_to_a_table": [
        "[500, 500, 500]",
        "<td>3500</td><td>3500</td><td>3500</td>",
        "3,500 messages read, lag at the end: 0",
        "image/png",
        "StreamingQueryException",
        "2,000 messages are in the table",
        "3,500 messages were read",
        "<td>3500</td><td>3500</td></tr>",
    ],
    "6_a_store_of_your_own": [
        "PUT_OK at offset 0 of the queue",
        "SYNC : 101 of 101 bytes are on the disk",
        "ASYNC: 0 of 101 bytes are on the disk",
        "closed by its last writer: False",
        "after the kill: b'pear'",
        "image/png",
        "[b'42 pears', b'3 figs']",
        "again: []",
        "later: b'pay, please'",
        "at least one second passed: True",
        "prepared: []",
        "decided: [b'10 pears']",
        "passed",
    ],
    "7_after_a_crash": [
        "200 answers for 1451 messages",
        "all that was promised is there: True",
        "not clean: the file abort is there",
        "the same messages as before: True",
        "no damage, 0 notes",
        "no data; the next sound record is at 413839 of the log",
        "the CRC of the body is wrong",
        "13 of 7,487 messages are damaged",
        "image/png",
        "rmqstore.open_snapshot reads the undamaged messages",
        "6346 sound messages stand after the end",
    ],
}


def test_every_notebook_is_run() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_clean(path: Path) -> None:
    """Outputs would grow old and make every diff large; ids that change would, too."""
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert [cell.id for cell in notebook.cells] == [f"cell-{number:02}" for number in range(1, len(notebook.cells) + 1)]
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_prose_stands_before_every_cell_of_code(path: Path) -> None:
    kinds = [cell.cell_type for cell in nbformat.read(path, as_version=4).cells]
    assert kinds[0] == "markdown"
    assert ("code", "code") not in itertools.pairwise(kinds)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("notebooks", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    (tmp_path / "notebooks" / "plots.mplstyle").symlink_to(PROJECT / "notebooks" / "plots.mplstyle")
    beside = [os.environ[name] for name in ("PYTHONPATH",) if name in os.environ]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT), *beside]))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "home"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(tmp_path / "notebooks")}}
    nbclient.NotebookClient(notebook, timeout=CELL_SECONDS_MAX, kernel_name="python3", resources=place).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    data = [f"{kind} {text}" for output in outputs for kind, text in output.get("data", {}).items()]
    shown = html.unescape("\n".join([*(output.get("text", "") for output in outputs), *data]))
    assert [wanted for wanted in SHOWN[path.stem] if wanted not in shown] == []
