"""The notebooks, run from top to bottom as a reader would run them; they are kept without outputs."""

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
    "1_first_look": ["written by RocketMQ 5.x, by a broker called broker-a", "<td>4774</td>", "<td>created</td>"],
    "2_stream_to_a_table": [
        "100 messages were read",
        "20 messages were read",
        "0 messages were read",
        "<td>150</td><td>150</td>",
    ],
    "3_where_did_this_order_go": ["shipped", "dead letter", "%DLQ%ledger"],
    "4_traffic_and_lag": ["image/png", "<td>4478</td>", "stock_report"],
    "5_transactions": ["committed", "rolledback", "<td>pending</td>", "<td>late</td>", "<td>lost</td>"],
    "6_duckdb_and_polars": ["transfer", "median hours", "o-1017"],
    "7_after_a_crash": [
        "all that was promised is there: True",
        "the same messages as before: True",
        "(exit status 0)",
        "(exit status 1)",
        "rows; damaged are:",
        "the CRC of the body is wrong",
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
    shown = "\n".join("".join(output.get("text", "")) + json.dumps(output.get("data", {})) for output in outputs)
    assert [wanted for wanted in SHOWN[path.stem] if wanted not in shown] == []
