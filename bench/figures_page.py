"""Writes docs/figures.md from the figures that are kept:  python -m bench.figures_page [--keep]

With --keep those of the last runs of `make bench` and `make bench-kafka` are kept from now on.
"""

import json
import shutil
import sys
from pathlib import Path

from bench.figures import OUTPUT, page

KEPT = Path(__file__).parent / "measured"
PAGE = Path(__file__).parents[1] / "docs" / "figures.md"
_NAMES = ("bench.json", "bench-kafka.json")


def text() -> str:
    """The page, from what is kept."""
    found = [KEPT / name for name in _NAMES if (KEPT / name).exists()]
    return page([json.loads(path.read_text(encoding="utf-8")) for path in found])


if __name__ == "__main__":
    if "--keep" in sys.argv:
        KEPT.mkdir(exist_ok=True)
        for name in _NAMES:
            if (OUTPUT / name).exists():
                shutil.copyfile(OUTPUT / name, KEPT / name)
    PAGE.write_text(text(), encoding="utf-8")
