"""How many files of the package a split passes through on its way to rows: each is one more place to know of."""

import gc
import sys
from pathlib import Path
from types import FrameType

import pytest

import rmqstore
from rmqstore.snapshot import ScanRequest, SplitBudget, open_snapshot, read_split
from rmqstore.snapshot.request import ScanMode
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

_PACKAGE = str(Path(rmqstore.__file__).parent)


@pytest.mark.parametrize(("mode", "files_max"), [("queue", 38), ("auto", 39), ("commitlog", 46)])
def test_a_split_passes_few_files(mode: ScanMode, files_max: int, tmp_path: Path) -> None:
    store = SmallStore()
    for number in range(40):
        store.add("T", number % 4, body=b"%d" % number)
    snapshot, request = open_snapshot(store.write(tmp_path)), ScanRequest(scan_mode=mode)
    (split,) = snapshot.plan(snapshot.select(["T"]), request, SplitBudget())
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_PACKAGE):
            files.add(name.removeprefix(_PACKAGE))

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # what other tests left is finalized in files of the package as well
    sys.setprofile(note)
    try:
        rows = sum(batch.num_rows for batch in read_split(split, request))
    finally:
        sys.setprofile(before)
        gc.enable()
    assert rows == 40
    assert len(files) <= files_max, sorted(files)
