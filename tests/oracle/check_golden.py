#!/usr/bin/env python3
"""Opens every golden store again with RocketMQ and compares its answers to expected.json.

    check_golden.py DIR [--case NAME]      DIR holds one folder per case, as make_golden.py writes them
"""
import argparse
import json
import pathlib
import sys
import tarfile
import tempfile

from oracle import capture, differences, load_expected


def check(folder, log=None):
    """The list of differences between expected.json and what RocketMQ answers now."""
    expected = load_expected(folder)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(folder / "store.tar.gz") as archive:
            archive.extractall(scratch)                       # keeps the files' modification times: 4.9 answers by them
        got = capture(expected["version"], pathlib.Path(scratch) / "store", expected["config"], expected["topics"],
                      expected.get("keyQueries", ()), expected.get("timeQueries", ()), log)
    got = json.loads(json.dumps(got))
    return differences({k: expected.get(k) for k in got}, got)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--case", default="all")
    parser.add_argument("--log", help="file for RocketMQ's error output")
    args = parser.parse_args()
    bad = 0
    for folder in sorted(p.parent for p in args.dir.glob("*/expected.json*")):
        if args.case not in ("all", folder.name):
            continue
        found = check(folder, args.log)
        bad += bool(found)
        print(f"{'DIFFERS' if found else 'ok     '} {folder.name}", flush=True)
        for line in found[:10]:
            print("   ", line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
