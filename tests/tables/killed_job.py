"""A program for `test_topic_to_table.py`: runs the job and dies by SIGKILL when a batch is in the table, before the
checkpoint says so.
"""

import os
import signal
import sys

from jobs import topic_to_table


def killed_after(append):
    """`append`, and then the end of the process."""

    def appended(*batch: object) -> None:
        append(*batch)
        os.kill(os.getpid(), signal.SIGKILL)

    return appended


if __name__ == "__main__":
    for kind, append in topic_to_table.APPENDS.items():
        topic_to_table.APPENDS[kind] = killed_after(append)
    topic_to_table.main(sys.argv[1:])
