"""The directories of DLedger nodes that the library itself wrote."""

import tarfile
from pathlib import Path

CASES = sorted(path.parent for path in (Path(__file__).parent / "ledger").glob("*/node.tar.gz"))


def unpacked(case: Path, directory: Path) -> Path:
    """The node of a case, in a directory of its own."""
    with tarfile.open(case / "node.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    (node,) = directory.glob("dledger-*")
    return node
