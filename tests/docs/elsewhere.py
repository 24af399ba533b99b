"""Blocks that tests/docs/test_pages.py does not run, each with what does: a test, or a step of .ci/run.

A block is known by its page and how its first line begins.  `by` is the file of a test with the name of one in it, or a
file and a text that stands in it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """A block, by what runs it; `why` says what it needs that these tests do not have."""

    page: str
    begins: str
    by: str
    name: str
    why: str


TUTORIAL = ("tests/conformance/test_replica_tutorial.py", "test_the_five_minutes")
ELSEWHERE = (
    Elsewhere("README.md", "make demo", ".ci/run", "make test", "minutes; the demo by tests/jobs/test_demo.py"),
    Elsewhere("README.md", "rmqstore replicate", *TUTORIAL, "a running cluster"),
    Elsewhere(
        "docs/tutorial.md", "make demo", "tests/jobs/test_demo.py", "test_a_person_sees_only_the_demo_at_80_columns",
        "half a minute",
    ),
    Elsewhere("docs/replica.md", "pip install dist/rmqstore-*.whl", *TUTORIAL, "a running cluster"),
    Elsewhere(
        "docs/replica.md", "rmqstore serve /data/rmq/broker-a", "tests/conformance/test_replication_slaves.py",
        "test_a_new_slave_fetches_the_whole_log_from_serve_and_goes_on_with_its_master", "a slave of RocketMQ's",
    ),
    Elsewhere(
        "docs/replica.md", "rmqstore serve /data/orders", "tests/cli/test_ha_tls.py",
        "test_a_replica_is_made_inside_tls", "two commands that run until they are ended",
    ),
    Elsewhere(
        "docs/jobs.md", "spark-submit --py-files rmqstore.zip --packages", "tests/tables/test_topic_to_table.py",
        "test_a_table_has_the_rows_of_the_store", "the libraries of Delta and Iceberg, from Maven Central",
    ),
    Elsewhere(
        "docs/metrics.md", "rmqstore serve-metrics", "tests/cli/metrics/test_store_metrics.py",
        "test_it_answers_until_it_is_told_to_end", "it runs until it is ended",
    ),
    Elsewhere(
        "docs/sync.md", "rmqstore sync /data/rmq/broker-a", "tests/lake/test_kills.py",
        "test_a_sync_that_is_killed_again_and_again_puts_each_message_in_the_table_once", "it runs until it is ended",
    ),
    Elsewhere("docs/install.md", "python3 -m venv", ".ci/run", "build/fresh/bin/pip install", "the package registry"),
    Elsewhere("docs/install.md", "make wheel", ".ci/run", "make wheel", "the tools that build it"),
    Elsewhere("docs/howto/lake-tables.md", "python3 -m venv", "scripts/test_tables.sh", "pip install", "the registry"),
    Elsewhere(
        "docs/howto/lake-tables.md", "def append(", "tests/tables/test_topic_to_table.py",
        "test_a_kill_between_the_table_and_the_checkpoint_doubles_nothing", "Delta's libraries",
    ),
    Elsewhere(
        "docs/howto/lake-tables.md", "from rmqstore.jobs.topic_to_table", "tests/tables/test_topic_to_table.py",
        "test_a_kill_between_the_table_and_the_checkpoint_doubles_nothing", "Iceberg's libraries",
    ),
    Elsewhere("docs/howto/running-cluster.md", "rmqstore replicate", *TUTORIAL, "a running cluster"),
    Elsewhere("docs/howto/move-clusters.md", "rmqstore replicate", *TUTORIAL, "a running cluster"),
)  # fmt: skip

# Drawings, and files of other programs: nothing that a reader types.
SHOWN = (
    ("README.md", "a broker's disk", "a drawing"),
    ("README.md", "3. Who is behind?", "tests/jobs/test_demo.py holds the rows"),
    ("docs/replica.md", "broker    state", "tests/cli/test_replica_progress.py holds the table"),
    ("docs/replica.md", "[rmqstore-ha]", "a file of stunnel's"),
    ("docs/howto/lake-tables.md", "5 * * * *", "a line of cron's; the same command is run on docs/sync.md"),
    ("docs/formats.md", "", "tests/test_format_page.py reads the record"),
)
