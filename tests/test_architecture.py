"""The import map, the size budgets and the naming rules of the project, read from its source.

`rmqstore/README.md` draws the map for people; this file is what holds.  A budget is raised only here, with its reason.
"""

import ast
import re
from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.ladder.clocks import CLOCKS, look, names_of, parsed
from tests.ladder.parts import NOT_QUICK

pytestmark = pytest.mark.source

PROJECT = Path(__file__).parents[1]

# Room, or wing of one -> the rooms that it may import, lowest first.  A module belongs to the longest name here that
# begins its own; importing within a room is free.  A room that is not in this table may not exist.
ROOMS: dict[str, set[str]] = {
    "rmqstore.errors": set(),
    "jobs": {
        "rmqstore",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.sink",
        "spark_source",
        "spark_source.job_command",
        "spark_source.job_stream",
        "spark_source.job_table",
    },
    "spark_source.job_command": {
        "rmqstore",
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.files",
        "spark_source.job_table",
    },
    "spark_source.job_table": {"rmqstore.safe_text"},
    "spark_source.job_stream": set(),
    "spark_source.shipped": set(),
    "rmqstore.clock": set(),
    "rmqstore.locks": set(),
    "rmqstore.safe_text": set(),
    "rmqstore.log.plan_text": set(),
    "rmqstore.arguments": {"rmqstore.errors"},
    "rmqstore.message": {"rmqstore.errors"},
    "rmqstore.worker": {"rmqstore.locks"},
    "rmqstore.annotations": {"rmqstore.arguments", "rmqstore.errors"},
    "rmqstore.snapshot.columns": {"rmqstore.arguments", "rmqstore.errors"},
    "rmqstore.stats": {"rmqstore.clock", "rmqstore.message"},
    "rmqstore.formats": {"rmqstore.annotations", "rmqstore.arguments", "rmqstore.errors", "rmqstore.message"},
    "rmqstore.stats_text": {"rmqstore.errors", "rmqstore.stats"},
    "rmqstore.files": {"rmqstore.arguments", "rmqstore.clock", "rmqstore.errors", "rmqstore.formats", "rmqstore.locks"},
    "rmqstore.records": {"rmqstore.formats"},
    "rmqstore.consumer": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.message",
    },
    "rmqstore.snapshot.losses": {"rmqstore.errors", "rmqstore.snapshot.stream"},
    "rmqstore.snapshot.request": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.snapshot.columns",
    },
    "rmqstore.snapshot.split": {"rmqstore.files", "rmqstore.formats"},
    "rmqstore.ledger_config": {"rmqstore.annotations", "rmqstore.errors", "rmqstore.formats"},
    "rmqstore.config": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.ledger_config",
    },
    "rmqstore.log.ledger_paths": {
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.ledger_config",
    },
    "rmqstore.progress_file": {"rmqstore.errors", "rmqstore.files", "rmqstore.formats"},
    "rmqstore.directory": {"rmqstore.errors", "rmqstore.files", "rmqstore.formats", "rmqstore.records"},
    "rmqstore.log.encode": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.message",
        "rmqstore.records",
    },
    "rmqstore.snapshot.arrow": {
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
    },
    "rmqstore.snapshot.survey": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
    },
    "rmqstore.log.put": {
        "rmqstore.arguments",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log.encode",
        "rmqstore.message",
        "rmqstore.records",
    },
    "rmqstore.snapshot.finding": {"rmqstore.directory"},
    "rmqstore.snapshot.verify": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.arrow",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.finding",
        "rmqstore.snapshot.opening",
        "rmqstore.snapshot.store_paths",
        "rmqstore.safe_text",
    },
    "rmqstore.snapshot.scan": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.arrow",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log.derived": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log.encode",
        "rmqstore.log.put",
        "rmqstore.records",
    },
    "rmqstore.snapshot.lookup": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log.get": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.message",
    },
    "rmqstore.log.deleted_topics": {"rmqstore.directory", "rmqstore.files", "rmqstore.formats"},
    "rmqstore.log.recovery": {
        "rmqstore.arguments",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.deleted_topics",
        "rmqstore.log.derived",
        "rmqstore.log.ledger_paths",
        "rmqstore.log.plan_text",
        "rmqstore.records",
        "rmqstore.safe_text",
    },
    "rmqstore.log.retention": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.plan_text",
    },
    "rmqstore.snapshot.plan": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log.staging": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.encode",
        "rmqstore.log.recovery",
        "rmqstore.records",
    },
    "rmqstore.snapshot.tables": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.log": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.log.staging",
        "rmqstore.records",
    },
    "rmqstore.snapshot.stores_in": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.snapshot.store_paths": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.snapshot.stores_in",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.snapshot.reader": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.tables",
    },
    "rmqstore.snapshot.opening": {
        "rmqstore.arguments",
        "rmqstore.files",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.broker": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log.deleted_topics",
        "rmqstore.log",
        "rmqstore.log.derived",
        "rmqstore.log.encode",
        "rmqstore.log.get",
        "rmqstore.log.put",
        "rmqstore.log.retention",
        "rmqstore.message",
        "rmqstore.records",
    },
    "rmqstore.snapshot.snapshot": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.files",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.opening",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.stream",
        "rmqstore.snapshot.survey",
        "rmqstore.safe_text",
        "rmqstore.errors",
    },
    "rmqstore.snapshot": {
        "rmqstore.snapshot.opening",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.snapshot",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.stores_in",
    },
    "rmqstore.snapshot.stream": {
        "rmqstore.arguments",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.opening",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.split",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.stores_in",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.store_condition": {
        "rmqstore.broker",
        "rmqstore.files",
        "rmqstore.log.derived",
        "rmqstore.log.put",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.stats",
    },
    "rmqstore.remoting": {"rmqstore.arguments", "rmqstore.clock", "rmqstore.errors", "rmqstore.formats"},
    "rmqstore.replication": set(),
    "rmqstore.replication.tls": {"rmqstore.config", "rmqstore.errors", "rmqstore.files"},
    "rmqstore.replication.link": {"rmqstore.formats"},
    "rmqstore.replication.serving": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.log.put",
        "rmqstore.message",
        "rmqstore.replication.link",
        "rmqstore.replication.tls",
    },
    "rmqstore.dledger": {
        "rmqstore.annotations",
        "rmqstore.arguments",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.ledger_config",
        "rmqstore.log.encode",
        "rmqstore.log.ledger_paths",
        "rmqstore.log.put",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.records",
    },
    "rmqstore.dry_run": {
        "rmqstore.annotations",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.dledger",
        "rmqstore.files",
        "rmqstore.log",
        "rmqstore.log.ledger_paths",
        "rmqstore.log.recovery",
    },
    "rmqstore.engine": {
        "rmqstore.dledger",
        "rmqstore.replication.serving",
        "rmqstore.broker",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log",
        "rmqstore.log.derived",
        "rmqstore.log.encode",
        "rmqstore.log.get",
        "rmqstore.log.put",
        "rmqstore.log.retention",
        "rmqstore.log.staging",
        "rmqstore.message",
        "rmqstore.stats",
        "rmqstore.store_condition",
        "rmqstore.worker",
    },
    "rmqstore.store": {
        "rmqstore.annotations",
        "rmqstore.broker",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.consumer",
        "rmqstore.engine",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.encode",
        "rmqstore.log.get",
        "rmqstore.log.put",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.message",
        "rmqstore.stats",
        "rmqstore.safe_text",
    },
    "rmqstore": {
        "rmqstore.broker",
        "rmqstore.config",
        "rmqstore.consumer",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.ledger_config",
        "rmqstore.message",
        "rmqstore.records",
        "rmqstore.snapshot",
        "rmqstore.stats",
        "rmqstore.store",
    },
    "rmqstore.aio": {
        "rmqstore.arguments",
        "rmqstore.broker",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.derived",
        "rmqstore.log.put",
        "rmqstore.message",
        "rmqstore.snapshot",
        "rmqstore.snapshot.stream",
        "rmqstore.store",
    },
    "rmqstore.sink": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.engine",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log",
        "rmqstore.log.encode",
        "rmqstore.log.put",
        "rmqstore.log.recovery",
        "rmqstore.log.staging",
        "rmqstore.message",
    },
    "rmqstore.testing": {
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.engine",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.message",
        "rmqstore.replication.following",
        "rmqstore.store",
    },
    "rmqstore.replication.following": {
        "rmqstore.arguments",
        "rmqstore.broker",
        "rmqstore.clock",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.engine",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.log.deleted_topics",
        "rmqstore.log",
        "rmqstore.log.put",
        "rmqstore.records",
        "rmqstore.remoting",
        "rmqstore.replication.link",
        "rmqstore.replication.tls",
        "rmqstore.worker",
    },
    "rmqstore.replication.checking": {
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.remoting",
        "rmqstore.replication.following",
        "rmqstore.replication.link",
    },
    "rmqstore.search": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.scan",
        "rmqstore.snapshot.split",
    },
    "rmqstore.export": {
        "rmqstore.arguments",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.search",
        "rmqstore.sink",
        "rmqstore.snapshot.arrow",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.losses",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.stores_in",
        "rmqstore.snapshot.stream",
    },
    "rmqstore.report": {
        "rmqstore.clock",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.retention",
        "rmqstore.snapshot",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.finding",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.tables",
        "rmqstore.snapshot.verify",
        "rmqstore.safe_text",
    },
    "rmqstore.lake": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.locks",
        "rmqstore.snapshot",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.losses",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.stream",
    },
    "rmqstore.cli.output": {"rmqstore", "rmqstore.errors", "rmqstore.report", "rmqstore.snapshot.store_paths"},
    "rmqstore.cli.signals": set(),
    "rmqstore.command": {"rmqstore.cli", "rmqstore.cli.signals"},
    "rmqstore.cli.decoding": {"rmqstore.cli.output", "rmqstore.errors", "rmqstore.formats"},
    "rmqstore.cli.metrics": {
        "rmqstore",
        "rmqstore.cli.output",
        "rmqstore.cli.signals",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.survey",
        "rmqstore.stats_text",
    },
    "rmqstore.cli.doctor": {
        "rmqstore",
        "rmqstore.cli.output",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.opening",
        "rmqstore.snapshot.survey",
    },
    "rmqstore.cli.choices": {
        "rmqstore",
        "rmqstore.arguments",
        "rmqstore.cli.output",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.search",
    },
    "rmqstore.cli.putting": {
        "rmqstore.cli.choices",
        "rmqstore.cli.output",
        "rmqstore.cli.signals",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.errors",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.log.encode",
        "rmqstore.log.ledger_paths",
        "rmqstore.message",
        "rmqstore.replication.following",
        "rmqstore.sink",
        "rmqstore.snapshot.columns",
        "rmqstore.store",
    },
    "rmqstore.cli.inspection": {
        "rmqstore",
        "rmqstore.arguments",
        "rmqstore.cli.output",
        "rmqstore.directory",
        "rmqstore.files",
        "rmqstore.formats",
        "rmqstore.records",
        "rmqstore.report",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.survey",
        "rmqstore.snapshot.tables",
    },
    "rmqstore.cli.replication": {
        "rmqstore.cli.metrics",
        "rmqstore",
        "rmqstore.arguments",
        "rmqstore.cli.output",
        "rmqstore.cli.signals",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.locks",
        "rmqstore.remoting",
        "rmqstore.replication.checking",
        "rmqstore.replication.following",
        "rmqstore.store",
    },
    "rmqstore.cli": {
        "rmqstore.cli.choices",
        "rmqstore.cli.decoding",
        "rmqstore.cli.doctor",
        "rmqstore.cli.metrics",
        "rmqstore.cli.output",
        "rmqstore.cli.putting",
        "rmqstore.report",
        "rmqstore.cli.inspection",
        "rmqstore.cli.replication",
        "rmqstore.cli.signals",
        "rmqstore.lake",
        "rmqstore.locks",
        "rmqstore.arguments",
        "rmqstore",
        "rmqstore.config",
        "rmqstore.directory",
        "rmqstore.dry_run",
        "rmqstore.errors",
        "rmqstore.export",
        "rmqstore.formats",
        "rmqstore.log",
        "rmqstore.log.ledger_paths",
        "rmqstore.log.recovery",
        "rmqstore.log.retention",
        "rmqstore.records",
        "rmqstore.search",
        "rmqstore.snapshot.arrow",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.opening",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.store_paths",
        "rmqstore.snapshot.stream",
        "rmqstore.snapshot.survey",
        "rmqstore.store",
        "rmqstore.snapshot.verify",
        "rmqstore.snapshot.finding",
    },
    "spark_source.partitions": {
        "rmqstore.snapshot",
    },
    "spark_source.columns": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.snapshot.columns",
        "spark_source.options",
    },
    "spark_source.worker_errors": set(),
    "spark_source.options": {
        "rmqstore.arguments",
        "rmqstore.config",
        "rmqstore.errors",
        "rmqstore.formats",
        "rmqstore.snapshot",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.stream",
    },
    "spark_source.batch_reader": {
        "rmqstore.errors",
        "rmqstore.snapshot",
        "spark_source.options",
        "spark_source.partitions",
        "spark_source.columns",
        "spark_source.worker_errors",
    },
    "spark_source.stream": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.progress_file",
        "rmqstore.snapshot",
        "rmqstore.snapshot.lookup",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.reader",
        "rmqstore.snapshot.stream",
        "rmqstore.snapshot.survey",
        "spark_source.batch_reader",
        "spark_source.options",
        "spark_source.partitions",
        "spark_source.columns",
        "spark_source.worker_errors",
    },
    "spark_source": {
        "rmqstore.arguments",
        "rmqstore.errors",
        "rmqstore.sink",
        "rmqstore.snapshot",
        "rmqstore.snapshot.columns",
        "rmqstore.snapshot.plan",
        "rmqstore.snapshot.request",
        "rmqstore.snapshot.tables",
        "spark_source.batch_reader",
        "spark_source.options",
        "spark_source.partitions",
        "spark_source.columns",
        "spark_source.stream",
        "spark_source.worker_errors",
    },
    "pyspark_rmqstore": {"spark_source"},
}

# Imports that leave the map only inside one function, so that the package works without Spark: (module, imported room).
LAZY_IMPORTS = {
    ("rmqstore", "spark_source"),
    ("rmqstore", "spark_source.shipped"),
    ("rmqstore", "pyspark"),
    ("rmqstore.message", "rmqstore.formats"),
}

# Name -> the rooms (or single modules) that may import it.
SINGLE_DOORS: dict[str, set[str]] = {
    # jobs.demo: tells Spark by the environment which Python its workers run; doctor: looks at what everybody else uses.
    "os": {"rmqstore.files", "jobs.demo", "rmqstore.cli.doctor"},
    "mmap": {"rmqstore.files", "rmqstore.cli.doctor.trial"},
    "socket": {
        "rmqstore.files",
        "rmqstore.remoting",
        "rmqstore.replication.serving",
        "rmqstore.replication.following",
        "rmqstore.replication.checking.ports",
        "rmqstore.cli.doctor.spark",  # the name of this host
        "rmqstore.cli.metrics.scrapes",  # the family of addresses, and the end of a connection, of http.server's
        "spark_source.batch_reader",
    },
    "selectors": {"rmqstore.replication.serving"},
    "ssl": {
        "rmqstore.remoting",
        "rmqstore.cli",
        "rmqstore.replication.tls",
        "rmqstore.replication.serving.peer_socket",
        "rmqstore.replication.following.connection",
    },
    "ctypes": {"rmqstore.files"},
    "fcntl": {"rmqstore.files", "rmqstore.cli.doctor.trial"},
    # cli.output, job_command: the width of the terminal; metrics: the size of a disk; doctor: where a program is
    "shutil": {
        "rmqstore.files",
        "rmqstore.cli.output",
        "rmqstore.cli.metrics.watch",
        "rmqstore.cli.doctor",
        "spark_source.job_command",
    },
    "tempfile": {"rmqstore.files", "rmqstore.cli.doctor.trial", "rmqstore.cli.doctor.compiled_home"},
    "pyarrow": {
        "rmqstore.safe_text",
        "rmqstore.formats.compression",
        "rmqstore.records",
        "rmqstore.log",
        "rmqstore.broker",
        "rmqstore.store",
        "rmqstore.sink",
        "rmqstore.snapshot",
        "rmqstore.snapshot.verify",
        "rmqstore.snapshot.finding",
        "rmqstore.report",
        "rmqstore.search",
        "rmqstore.export",
        "rmqstore.lake",
        "rmqstore.cli",
        "spark_source",
    },
    "pyiceberg": {"rmqstore.lake.iceberg", "rmqstore.lake.iceberg_layout"},
    "deltalake": {"rmqstore.lake.delta", "rmqstore.lake.delta_actions", "rmqstore.lake.delta_history"},
    "zlib_ng": {"rmqstore.formats.record_crc"},
    "prometheus_client": {"rmqstore.stats_text", "rmqstore.cli.metrics.store_metrics"},
    "fastavro": {"rmqstore.cli.decoding.avro"},
    "google": {"rmqstore.cli.decoding.protobuf"},
    "rocksdict": {"rmqstore.files.rocksdb"},
    "pytest": {"rmqstore.testing"},
    "pyspark": {"spark_source", "jobs", "pyspark_rmqstore"},
    "click": {"rmqstore.cli"},
    "rich": {"rmqstore.cli"},
}

# Rooms that read through the disk that is handed in, and the doors of theirs where one that is not named is the host's.
ON_ANY_DISK = {"rmqstore.directory", "rmqstore.snapshot"}
HOST_BY_DEFAULT = {
    "rmqstore.directory.store_root:found_store",
    "rmqstore.log.ledger_paths:with_found_member",
    "rmqstore.snapshot.opening:look_at",
    "rmqstore.snapshot.opening:open_selected",
    "rmqstore.snapshot.opening:open_stores",
    "rmqstore.snapshot.snapshot:open_snapshot",
    "rmqstore.snapshot.store_paths:require_stores",
    "rmqstore.snapshot.store_paths:stores_below",
    "rmqstore.snapshot.stream.ends:__init__",
}
# The module of the host's disk; all else in it, and the disk that writes, is not for these rooms.
HOST_MODULE = "rmqstore.files.reading"
WORDS_OF_PATHS = {"StorePath", "canonical_path", "path_list"}

# `formats` is pure: these, and nothing else.
PURE_IMPORTS = {
    "collections", "dataclasses", "datetime", "enum", "functools", "ipaddress", "itertools", "json", "math", "re",
    "struct", "typing", "zlib",
    "numpy",
}  # fmt: skip

# Rooms that touch files only through `rmqstore.files`, so also not through the built-in function or pathlib.
FILELESS = {
    "rmqstore.errors",
    "rmqstore.formats",
    "rmqstore.records",
    "rmqstore.directory",
    "rmqstore.snapshot",
    "spark_source",
    "pyspark_rmqstore",
}

FUNCTION_LINES_MAX = 50
MODULE_LINES_MAX = 600
PARAMETERS_MAX = 6
CLASS_LINES_MAX = 300
CLASS_METHODS_MAX = 25

# What is above its budget from before there was one: it may shrink, and goes from here when it fits.
_OLD = "from before the budget: it may only shrink"

# Keys are `module` (its lines), `module:function` (lines), `module:function()` (parameters), `module:Class` (lines) and
# `module:Class{}` (methods); values are the limit and the reason.
LARGER_BUDGETS: dict[str, tuple[int, str]] = {
    "rmqstore.formats.stored_message:StoredMessage{}": (38, "a property for each field of a message, one line each"),
    "rmqstore.dledger.entry_store:EntryStore{}": (34, "DLedger's verbs, and the state that they leave"),
    "rmqstore.dledger.entry_store:EntryStore": (365, "the same"),
    "rmqstore.engine:Engine": (323, "the order in which parts begin and end, in one place"),
    "rmqstore.store:Store{}": (39, "the public verbs, each a call of the part that does it"),
    "rmqstore.formats.index:search()": (7, "a question to an index file, in the order of Java's"),
    "rmqstore.log.put.commitlog:__init__()": (8, "its parts, of which most logs have none"),
    "rmqstore.records.read_batches:read_batches()": (8, "what a walk is told beside its range, each by name"),
    "rmqstore.log.opening:recovered()": (7, "a store, its settings, and who is told and asked"),
    "rmqstore.sink:stage_part()": (7, _OLD),
    "rmqstore.store:open_store()": (8, "what a store is opened with: each by name, with a default"),
    "rmqstore.consumer:__init__()": (7, "the parts of a store that it needs, a protocol each"),
    "rmqstore.aio:open_store()": (7, "the same, but that asyncio needs the threads"),
    "rmqstore.store:__init__()": (8, "the same"),
    "rmqstore.snapshot.reader:select()": (10, "a user's query: each part has a name of its own and a default"),
    "rmqstore.snapshot.snapshot:follow()": (19, "the same, of what comes"),
    "rmqstore.snapshot.reader:SnapshotReader": (305, "a reader's verbs, each a call of the part that does it"),
    "rmqstore.snapshot.reader:scan()": (
        21,
        "the same query, and how its rows are made: each named, so that editors complete it",
    ),
}

# Names with one underscore that their owners have for everybody: of named tuples, sys, os and notebooks.
PUBLIC_UNDERSCORES = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace", "_repr_html_"}
# How often tests use private members of what is not theirs; it only falls (164 at first).
TESTS_PRIVATE_REACHES_MAX = 16
# How often tests ask `rmqstore.testing.Probe` for all of an open store's parts; it only falls (once 117).
TESTS_ENGINE_USES_MAX = 17

BANNED_WORDS = {
    "Manager", "Helper", "Helpers", "Util", "Utils", "Common", "Misc", "Impl", "Info", "Context", "Wrapper", "Service",
}  # fmt: skip
BANNED_CLASS = re.compile(rf"(?:{'|'.join(sorted(BANNED_WORDS))})$|^_?(?:Base|Abstract)(?=[A-Z0-9]|$)")
BANNED_FILE_WORDS = {word.lower() for word in BANNED_WORDS} | {"base", "abstract"}
# An error that is an answer in an engine's own protocol.
ANSWERS = {("spark_source.batch_reader", "NotImplementedError")}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|HACK|NotImplementedError)\b")


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text and its tree."""

    name: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """The room that the module belongs to; KeyError for a module of none."""
        return room_of(self.name)


def room_of(name: str) -> str:
    """The longest room that `name` is in: the room itself, or something below it."""
    rooms = [room for room in ROOMS if name == room or (name.startswith(f"{room}.") and room != "rmqstore")]
    if not rooms:
        raise KeyError(f"{name} is in no room: give it one in ROOMS")
    return max(rooms, key=len)


def module_of(name: str, text: str) -> Module:
    return Module(name, text, parsed(text))


@cache
def shipped_modules() -> tuple[Module, ...]:
    """Every module that the wheel carries."""
    files = [path for top in ("rmqstore", "spark_source", "jobs") for path in sorted((PROJECT / top).rglob("*.py"))]
    files += PROJECT.glob("pyspark_*.py")
    modules = []
    for path in files:
        parts = path.relative_to(PROJECT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(module_of(name, path.read_text(encoding="utf-8")))
    return tuple(modules)


def imports_of(module: Module) -> Iterator[tuple[str, int, bool]]:
    """Every import: (dotted name, line, whether it stands inside a function or is for types only)."""
    lazy_lines: set[int] = set()
    for node in ast.walk(module.tree):
        types_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if types_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lazy_lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(module.tree):
        lazy = getattr(node, "lineno", 0) in lazy_lines
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 1 and module.room == "jobs":
            # In the wheel the room is rmqstore.jobs, so that its modules know each other by relative names only.
            yield from ((".".join(filter(None, ("jobs", node.module, a.name))), node.lineno, lazy) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            # "from rmqstore import files" and "from rmqstore.files import reading" both name a module of the room.
            yield from ((f"{'.' * node.level}{node.module or ''}.{a.name}", node.lineno, lazy) for a in node.names)


def is_in(name: str, room: str) -> bool:
    """Whether a module is a room, or stands in it or one of its wings."""
    return name == room or name.startswith(f"{room}.")


def is_fileless(module: Module) -> bool:
    return any(is_in(module.name, room) for room in FILELESS)


def is_ours(name: str) -> bool:
    return name.split(".", 1)[0] in {"rmqstore", "spark_source", "jobs", "pyspark_rmqstore"}


def target_room(name: str) -> str:
    """The room that an imported name leads to; a public name of `rmqstore` leads to `rmqstore` itself."""
    try:
        return room_of(name)
    except KeyError:
        return name.split(".", 1)[0]


def import_offences(module: Module) -> list[str]:
    """What `module` imports against ROOMS, SINGLE_DOORS and PURE_IMPORTS, one line each."""
    offences = []
    for name, line, lazy in imports_of(module):
        top = name.split(".", 1)[0]
        place = f"{module.name}:{line} imports {name}"
        if not top:
            offences.append(f"{place}: relative imports hide the room")
        elif is_ours(name):
            room = target_room(name)
            allowed = {module.room} | ROOMS[module.room]
            if room not in allowed and not (lazy and (module.name, room) in LAZY_IMPORTS):
                offences.append(f"{place}: {module.room} may import {', '.join(sorted(allowed))}")
        elif top in SINGLE_DOORS:
            doors = SINGLE_DOORS[top]
            if not any(is_in(module.name, door) for door in doors) and not (
                lazy and (module.name, top) in LAZY_IMPORTS
            ):
                offences.append(f"{place}: only {', '.join(sorted(doors))} may")
        elif module.room == "rmqstore.formats" and top not in PURE_IMPORTS:
            offences.append(f"{place}: formats is pure")
        elif is_fileless(module) and top in {"pathlib", "io", "glob"}:
            offences.append(f"{place}: files are read through rmqstore.files")
    return offences


def open_calls(module: Module) -> list[str]:
    """Calls of the built-in open() in a room that may not touch files."""
    if not is_fileless(module):
        return []
    return [
        f"{module.name}:{node.lineno} calls open(): files are read through rmqstore.files"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


def host_offences(module: Module) -> list[str]:
    """The host's disk in a room that reads any: named otherwise than as the default of a door, or asked by itself."""
    if not any(is_in(module.name, room) for room in ON_ANY_DISK):
        return []
    in_doors = {
        id(default)
        for function in functions_of(module)
        if f"{module.name}:{function.name}" in HOST_BY_DEFAULT
        for default in (*function.args.defaults, *function.args.kw_defaults)
    }
    offences = [
        f"{module.name}:{node.lineno} names LOCAL: take the disk that is handed in"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and node.id == "LOCAL" and id(node) not in in_doors
    ]
    for node in ast.walk(module.tree):
        named: set[str] = set()
        if isinstance(node, ast.ImportFrom):
            named = {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            named = {alias.name for alias in node.names}
        allowed = {f"{HOST_MODULE}.{word}" for word in WORDS_OF_PATHS | {"LOCAL"}}
        offences += [
            f"{module.name}:{node.lineno} imports {name}: ask the disk that is handed in"
            for name in sorted(named - allowed)
            if is_in(name, HOST_MODULE) or name == "rmqstore.files.filesystem.RealFileSystem"
        ]
    return offences


def functions_of(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameter_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters without self, cls and the star ones."""
    given = function.args
    names = [argument.arg for argument in given.posonlyargs + given.args + given.kwonlyargs]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def limit_of(key: str, usual: int) -> int:
    return LARGER_BUDGETS.get(key, (usual, ""))[0]


def naming_offences(module: Module) -> list[str]:
    """File and class names that say nothing, and words that say that something is not finished."""
    stem = module.name.rsplit(".", 1)[-1]
    offences = [f"{module.name}: a file named {word}" for word in stem.split("_") if word in BANNED_FILE_WORDS]
    offences += [
        f"{module.name}:{node.lineno} class {node.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and BANNED_CLASS.search(node.name)
    ]
    offences += [
        f"{module.name}:{number} {hit.group()}"
        for number, line in enumerate(module.text.splitlines(), start=1)
        if (hit := UNFINISHED.search(line)) and (module.name, hit.group()) not in ANSWERS
    ]
    return offences


def private_names(tree: ast.Module) -> set[str]:
    """Names with one underscore in front that a module gives to something of its own."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            is_own = isinstance(node, ast.Name) or _is_self(node.value)
            found |= {node.id if isinstance(node, ast.Name) else node.attr} if is_own else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # in __slots__
            found.add(node.value)
    return {name for name in found if name.startswith("_")}


def private_reaches(module: Module) -> list[str]:
    """Uses of private members of what another module made, one line each."""
    own = private_names(module.tree)
    return [
        f"{module.name}:{node.lineno} reaches into {ast.unparse(node)}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)
        and not _is_self(node.value) and node.attr not in own | PUBLIC_UNDERSCORES
    ]  # fmt: skip


def _is_self(node: ast.expr) -> bool:
    is_super = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    return is_super or (isinstance(node, ast.Name) and node.id in {"self", "cls"})


@cache
def modules_of_tests() -> tuple[Module, ...]:
    """Every Python file of the tests and benches."""
    files = [*sorted((PROJECT / "tests").rglob("*.py")), *sorted((PROJECT / "bench").rglob("*.py"))]
    return tuple(module_of(f"tests.{path.stem}", path.read_text(encoding="utf-8")) for path in files)


Measure = tuple[str, int, int]  # a key of LARGER_BUDGETS, its count, and the usual budget


def module_measures() -> Iterator[Measure]:
    """Lines of modules and functions, and parameters."""
    for module in shipped_modules():
        yield module.name, len(module.text.splitlines()), MODULE_LINES_MAX
        for function in functions_of(module):
            place = f"{module.name}:{function.name}"
            yield place, (function.end_lineno or 0) - function.lineno + 1, FUNCTION_LINES_MAX
            yield f"{place}()", parameter_count(function), PARAMETERS_MAX


def class_measures(modules: Sequence[Module] | None = None) -> Iterator[Measure]:
    """Lines and methods of classes."""
    for module in modules or shipped_modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
                yield f"{module.name}:{node.name}", (node.end_lineno or 0) - node.lineno + 1, CLASS_LINES_MAX
                yield f"{module.name}:{node.name}{{}}", len(methods), CLASS_METHODS_MAX


@pytest.mark.parametrize("measure", [module_measures, class_measures])
def test_nothing_is_larger_than_its_budget(measure) -> None:
    offences = [f"{key}: {count}, at most {limit_of(key, usual)}" for key, count, usual in measure()
                if count > limit_of(key, usual)]  # fmt: skip
    assert not offences, "\n".join(offences)


# --- circles


# Files that import each other, for types only -> why.
CIRCLES: dict[frozenset[str], str] = {}


def circles(modules: Sequence[Module]) -> list[set[str]]:
    """The files that import each other, directly or by way of others: imports in functions and for types count."""
    names = {module.name for module in modules}
    reached: dict[str, set[str]] = {}
    for module in modules:
        reached[module.name] = found = set()
        for name, _, _ in imports_of(module):
            target = name
            while target and target not in names:
                target = target.rpartition(".")[0]
            if target not in ("", module.name) and (module.name, target_room(target)) not in LAZY_IMPORTS:
                found.add(target)
    while True:  # what is reached from each, by widening until nothing is added
        wider = {name: found.union(*(reached[other] for other in found)) for name, found in reached.items()}
        if wider == reached:
            break
        reached = wider
    turning = [name for name, found in reached.items() if name in found]
    return [{other for other in turning if other in reached[name] and name in reached[other]} for name in turning]


def test_files_import_each_other_in_no_circle() -> None:
    assert {frozenset(circle) for circle in circles(shipped_modules())} == set(CIRCLES)


# --- definitions that nobody uses, and constants that stand twice


# Definitions that only users, Spark, click and pytest call, or that are there for the table that they are a part of.
CALLED_FROM_OUTSIDE = {
    "rmqstore.consumer:Consumer.seek",
    "rmqstore.message:PutResult.msg_ids",
    "rmqstore.cli.inspection.record:RecordPlace.convert",  # click
    "rmqstore.cli.metrics.scrapes:_Answer.do_HEAD",  # http.server
    "rmqstore.cli.metrics.scrapes:_Answer.log_message",
    "rmqstore.cli.metrics.scrapes:_Server.handle_error",
    "rmqstore.cli.metrics.scrapes:_Server.service_actions",
    "rmqstore.cli.output:_Warnings.emit",  # logging
    "rmqstore.stats_text:StatisticsCollector.describe",  # prometheus_client
    "rmqstore.log.recovery.plan:RecoveryPlan._repr_html_",  # notebooks, and so the next three
    "rmqstore.snapshot.snapshot:Snapshot._repr_html_",
    "rmqstore.snapshot.verify.verification:Verification._repr_html_",
    "rmqstore.store:Store._repr_html_",
    "spark_source.batch_reader:BatchReader.partitions",
    "spark_source.batch_reader:BatchReader.pruneColumns",
    "spark_source.pushdown_reader:PushdownReader.partitions",
    "spark_source.pushdown_reader:PushdownReader.pushFilters",
    "spark_source.source:RmqStoreDataSource.streamReader",
    "spark_source.source:RmqStoreDataSource.streamWriter",
    "spark_source.stream.reader:StreamReader.getDefaultReadLimit",
    "spark_source.stream.reader:StreamReader.initialOffset",
    "spark_source.stream.reader:StreamReader.partitions",
    "spark_source.stream.reader:StreamReader.prepareForTriggerAvailableNow",
    "spark_source.tables:TableReader.partitions",
    "spark_source.options.texts:WRITE",  # the page of options is made of it
    "rmqstore.formats.sys_flag:MULTI_TAGS",  # all bits of the flag stand there
    "rmqstore.formats.sys_flag:PREPARED",
}
# Pages that tell users what there is to call.
TOLD = (
    "README.md", "docs/dledger.md", "docs/engine.md", "docs/follow.md", "docs/howto/unit-tests.md", "docs/spark.md",
    "docs/options.md",
)  # fmt: skip
_WORD = re.compile(r"[A-Za-z_]\w*")


def definitions(module: Module) -> Iterator[str]:
    """Functions, classes, constants and methods of a module, as `module:Class.method`; not what Python itself calls."""
    for node in module.tree.body:
        found: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
            found += [f"{node.name}.{part.name}" for part in getattr(node, "body", [])
                      if isinstance(node, ast.ClassDef) and isinstance(part, ast.FunctionDef)]  # fmt: skip
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        yield from (f"{module.name}:{name}" for name in found if not name.rpartition(".")[2].startswith("__"))


def used_names(module: Module) -> Iterator[str]:
    """Every name that is read in a module, also as an attribute, or as a text that is nothing but a name."""
    values = [node.value for node in module.tree.body if isinstance(node, ast.Assign)]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in values:
            yield from (_WORD.fullmatch(node.value) and [node.value]) or []


def unused(modules: Sequence[Module], told: str) -> set[str]:
    """The definitions whose names nothing reads, neither in these modules nor in the code of the pages `told`."""
    used = {name for module in modules for name in used_names(module)}
    used |= {word for code in re.findall(r"^```python.*?^```|`[^`\n]+`", told, re.DOTALL | re.MULTILINE)
             for word in _WORD.findall(code)}  # fmt: skip
    every = (name for module in modules for name in definitions(module))
    return {name for name in every if re.split(r"[:.]", name)[-1] not in used}


def test_every_definition_is_used_by_more_than_tests() -> None:
    told = "\n".join((PROJECT / page).read_text(encoding="utf-8") for page in TOLD)
    found = unused(shipped_modules(), told)
    assert found - CALLED_FROM_OUTSIDE == set(), "delete them, or say who calls them"
    assert found >= CALLED_FROM_OUTSIDE, "take out what is used, or gone"


# Name (without the underscore) -> the modules in which a constant of this name and one value stands, and why; new ones
# may not come, and what is listed may only become less.
TWINS: dict[str, set[str]] = {
    "BLOCK_ENTRIES": {"rmqstore.snapshot.plan.splitting", "rmqstore.snapshot.stream.lag"},
    "BLOCK_SLOTS": {
        "rmqstore.directory.queue_ends", "rmqstore.directory.queue_files", "rmqstore.snapshot.survey.torn_end",
    },
    "BOUNDARIES": {"rmqstore.log.get.by_time", "rmqstore.snapshot.lookup.by_time"},
    "CHUNK_SIZE": {
        "rmqstore.files.zeros", "rmqstore.log.opening",
        "rmqstore.log.staging.committed_batches", "rmqstore.snapshot.survey.topic_search",
    },
    "COUNT_MAX": {"rmqstore.log.derived.index_log", "rmqstore.snapshot.lookup.by_key"},
    "FAR_COUNT": {"rmqstore.log.derived.consume_queue", "rmqstore.log.recovery.extensions"},
    "FEW_COUNT": {"rmqstore.broker.delay_delivery", "rmqstore.records.batch"},
    "HOUR_MS": {"rmqstore.broker.features", "rmqstore.broker.transaction_check", "rmqstore.log.retention.plan"},
    "I32_MAX": {"rmqstore.arguments", "rmqstore.log.recovery.outcome"},
    "I64_MAX": {
        "rmqstore.arguments", "rmqstore.directory.log_space", "rmqstore.files.sequence_listing",
    },
    "NOTHING": {
        "rmqstore.log.derived.batch_queue", "rmqstore.log.derived.consume_queue", "rmqstore.log.derived.index_log",
    },
    "NUMBER": {"rmqstore.formats.inner_batch", "rmqstore.log.encode.inner_batch"},
    "OFFSET_MAX": {"rmqstore.log.encode.property_values", "rmqstore.records.gather"},
    "OLD": {"rmqstore.broker.config_file", "rmqstore.files.replace"},
    "OP_TAG": {"rmqstore.broker.transaction_messages", "rmqstore.snapshot.tables.transaction_rows"},
    "PAGE": {"rmqstore.log.derived.derived_flush", "rmqstore.log.put.commitlog"},
    "PAGE_SIZE": {"rmqstore.files.real_file", "rmqstore.files.residency"},
    "SAMPLE_ENTRIES": {"rmqstore.snapshot.plan.splitting", "rmqstore.snapshot.stream.lag"},
    "UNIT": {"rmqstore.log.derived.consume_queue", "rmqstore.log.derived.queue_table"},
    "WINDOW_SIZE": {"rmqstore.broker.delay_columns", "rmqstore.formats.record_chain"},
    "ZEROS": {"rmqstore.files.real_file", "rmqstore.log.recovery.apply"},
}  # fmt: skip


def twins(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Constants that stand in several modules under one name (but for underscores) with one value, by the name."""
    places: dict[tuple[str, str], set[str]] = {}
    for module in modules:
        for node in module.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                value = getattr(node, "value", None)
                if isinstance(target, ast.Name) and target.id.isupper() and value is not None:
                    places.setdefault((target.id.strip("_"), ast.unparse(value)), set()).add(module.name)
    found: dict[str, set[str]] = {}
    for (name, _), where in places.items():
        if len(where) > 1:
            found.setdefault(name, set()).update(where)
    return found


def test_no_constant_stands_twice() -> None:
    offences = [f"{name} in {', '.join(sorted(where - TWINS.get(name, set())))}: import it"
                for name, where in twins(shipped_modules()).items() if where - TWINS.get(name, set())]  # fmt: skip
    assert not offences, "\n".join(offences)


def classes_of_one_name(modules: Sequence[Module]) -> dict[str, list[str]]:
    """Public classes that stand in several modules under one name: one noun for two things."""
    places: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module.name)
    return {name: where for name, where in places.items() if len(where) > 1}


def test_no_noun_names_two_classes() -> None:
    assert classes_of_one_name(shipped_modules()) == {}


# --- words


FOR_WHO = re.compile(r"\b(?:for|to|by|of) who\b")
# In what is shipped and in the pages: *again*, *after* (behind is for lag alone), and a docstring that names its thing.
STUMBLES = re.compile(r"\banew\b|\bbehind (?:it|them|that|what|the (?:end|last|first|one))\b|\"\"\"What ")
A_LINK = re.compile(r"https?://\S+")  # to a page of somebody else's
A_PAGE = re.compile(r"(?<![\w/.*-])([\w./-]*\w\.md)\b")


def written_files() -> Iterator[tuple[str, str]]:
    """Source, tests and pages of the project with their text: what a reader meets."""
    tops = ("rmqstore", "spark_source", "jobs", "examples", "docs", "tests", "bench")
    paths = [path for top in tops for path in (PROJECT / top).rglob("*") if path.suffix in (".py", ".md")]
    for path in [*paths, *PROJECT.glob("*.md"), *PROJECT.glob("*.py")]:
        name = str(path.relative_to(PROJECT))
        if "golden" not in path.parts and name not in ("tests/test_architecture.py", "CHANGELOG.md"):
            yield name, path.read_text(encoding="utf-8")


def word_offences(name: str, text: str) -> list[str]:
    """Lines that a native reader stumbles over, and lines that name a page which the project does not have."""
    offences = [f"{name}:{number} says 'for who': whoever, or name the caller: {line.strip()}"
             for number, line in enumerate(text.splitlines(), start=1) if FOR_WHO.search(line)]  # fmt: skip
    if not name.startswith(("tests/", "bench/", "CONTRIBUTING")):
        offences += [
            f"{name}:{number} {hit.group()!r}: after, again, or name the thing: {line.strip()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if (hit := STUMBLES.search(line))
        ]
    for number, line in enumerate(text.splitlines(), start=1):
        places = (PROJECT, PROJECT / "docs", (PROJECT / name).parent)
        pages = A_PAGE.findall(A_LINK.sub("", line))
        offences += [f"{name}:{number} names {page}, which is not there" for page in pages
                     if page != "HOW.md" and not any((place / page).exists() for place in places)]  # fmt: skip
        if "store-format" in line:
            offences.append(f"{name}:{number} names store-format, which is not there: docs/formats.md")
    return offences


def test_words_and_the_pages_that_are_named() -> None:
    offences = [offence for name, text in written_files() for offence in word_offences(name, text)]
    assert not offences, "\n".join(offences)


# --- tests


def imports_of_tests() -> Iterator[tuple[str, str]]:
    """(file, module) for every import of another test file in a test file."""
    for path in (PROJECT / "tests").rglob("*.py"):
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").rpartition(".")[2].startswith("test_"):
                yield str(path.relative_to(PROJECT)), node.module or ""


def test_tests_import_from_no_test_file() -> None:
    assert list(imports_of_tests()) == [], "move what both need into a helper file of the folder"


def test_every_module_has_a_room() -> None:
    assert len(shipped_modules()) > 1
    for module in shipped_modules():
        assert module.room in ROOMS


@pytest.mark.parametrize("check", [import_offences, open_calls, host_offences, naming_offences, private_reaches])
def test_shipped_modules_keep_to(check) -> None:
    offences = [offence for module in shipped_modules() for offence in check(module)]
    assert not offences, "\n".join(offences)


def test_the_host_is_the_default_of_every_door_that_is_named() -> None:
    doors = {
        f"{module.name}:{function.name}"
        for module in shipped_modules()
        for function in functions_of(module)
        for default in (*function.args.defaults, *function.args.kw_defaults)
        if isinstance(default, ast.Name) and default.id == "LOCAL"
    }
    assert doors == HOST_BY_DEFAULT


def test_tests_reach_into_private_members_less_and_less() -> None:
    found = [reach for module in modules_of_tests() for reach in private_reaches(module)]
    assert len(found) <= TESTS_PRIVATE_REACHES_MAX, "\n".join(found)


def engine_reaches(module: Module) -> list[str]:
    """Uses of an open store's `_engine`, in code and in code that is written as text."""
    return [
        f"{module.name}:{node.lineno} reaches into _engine"
        for node in ast.walk(module.tree)
        if (isinstance(node, ast.Attribute) and node.attr == "_engine")
        or (isinstance(node, ast.Constant) and isinstance(node.value, str) and "._engine" in node.value)
    ]


def engine_uses(module: Module) -> list[str]:
    """Where `Probe(...).engine` stands."""
    return [
        f"{module.name}:{node.lineno} asks for an engine"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "engine" and ast.unparse(node.value).startswith("Probe(")
    ]


def test_tests_reach_a_store_by_the_probe() -> None:
    """`rmqstore.testing.Probe`; where that has no word for it, by its `engine`, which is counted."""
    modules = [module for module in modules_of_tests() if module.name != f"tests.{Path(__file__).stem}"]
    found = [reach for module in modules for reach in engine_reaches(module)]
    assert found == [], "\n".join(found)
    used = [use for module in modules for use in engine_uses(module)]
    assert len(used) <= TESTS_ENGINE_USES_MAX, "\n".join(used)


def test_rooms_import_downwards_only() -> None:
    below: dict[str, set[str]] = {}
    for room, next_rooms in ROOMS.items():  # the rooms reachable from each, by widening until nothing is added
        reached = set(next_rooms)
        while further := set().union(*(ROOMS[other] for other in reached)) - reached:
            reached |= further
        below[room] = reached
    assert [room for room, reached in below.items() if room in reached] == []


def test_larger_budgets_have_a_reason_and_a_use() -> None:
    usual, present = {}, {}
    for measure in (module_measures, class_measures):
        for key, count, budget in measure():
            usual[key] = budget
            present[key] = max(count, present.get(key, 0))
    for key, (limit, reason) in LARGER_BUDGETS.items():
        assert reason
        assert key in present, f"{key} is gone: take it out"
        assert limit > usual[key]
        assert present[key] > usual[key], f"{key} fits the budget: take it out"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rmqstore.formats.message", "import os"),
        ("rmqstore.formats.message", "import pyarrow as pa"),
        ("rmqstore.formats.message", "import time"),
        ("rmqstore.formats.message", "from rmqstore.files import reading"),
        ("rmqstore.formats.message", "from rmqstore import files"),
        ("rmqstore.directory.walk", "from os import path"),
        ("rmqstore.directory.walk", "import mmap"),
        ("rmqstore.directory.walk", "from pathlib import Path"),
        ("rmqstore.directory.walk", "from . import rows"),
        ("rmqstore.directory.walk", "import rmqstore.cli"),
        ("rmqstore.directory.walk", "def late():\n    import pyspark"),
        ("rmqstore.files.reading", "import pyarrow"),
        ("rmqstore.files.reading", "from rmqstore.snapshot import walk"),
        ("rmqstore", "import pyspark"),
        ("rmqstore", "import spark_source"),
        ("rmqstore.cli", "from rmqstore.files import reading"),
        ("spark_source.source", "from rmqstore.files.reading import open_file"),
        ("spark_source.source", "import jobs.demo"),
        ("pyspark_rmqstore", "import rmqstore"),
        ("jobs.demo", "from .. import rmqstore"),
    ],
)
def test_a_forbidden_import_is_found(name: str, text: str) -> None:
    assert len(import_offences(module_of(name, text))) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rmqstore.formats.compression", "import pyarrow as pa"),
        ("rmqstore.formats.message", "import struct\nimport numpy.typing as npt\nfrom rmqstore.errors import Corrupt"),
        ("rmqstore.files.reading", "import os, mmap\nfrom rmqstore.formats import names"),
        ("rmqstore.snapshot.scan.log_scan", "import pyarrow\nfrom rmqstore.files import reading"),
        (
            "rmqstore",
            "from rmqstore.snapshot import open_snapshot\ndef register(spark):\n    import spark_source",
        ),
        ("rmqstore.cli", "import click\nfrom rmqstore import open_snapshot"),
        ("rmqstore.cli.cat", "import rich\nfrom rmqstore.cli import main"),
        ("pyspark_rmqstore", "from spark_source.source import DefaultSource"),
        ("jobs.demo", "import argparse\nimport rmqstore\nfrom pyspark.sql import SparkSession"),
        ("jobs.demo", "from . import printing\nfrom .printing import table"),
    ],
)
def test_an_allowed_import_passes(name: str, text: str) -> None:
    assert import_offences(module_of(name, text)) == []


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (open_calls, "def read(path):\n    return open(path)"),
        (host_offences, "def open_queue(root, disk=LOCAL): ..."),
        (host_offences, "def found_store(path):\n    return look(LOCAL, path)"),
        (host_offences, "from rmqstore.files.reading import OpenFile"),
        (host_offences, "from rmqstore.files import reading"),
        (host_offences, "import rmqstore.files.reading"),
        (private_reaches, "def put(store):\n    store._log.append(b'')"),
        (private_reaches, "class A:\n    def put(self):\n        self._store._log = 1"),
        (engine_reaches, "def put(store):\n    store._engine.put(b'')"),
        (engine_reaches, "PROGRAM = 'store._engine.put(b)'"),
        (engine_uses, "def end(store):\n    return Probe(store).engine.log"),
        (naming_offences, "class QueueManager: ..."),
        (naming_offences, "class BaseReader: ..."),
        (naming_offences, "class _AbstractReader: ..."),
        (naming_offences, "x = 1  # FIXME"),
        (naming_offences, "raise NotImplementedError"),
    ],
)
def test_an_offence_is_found(check, text: str) -> None:
    assert len(check(module_of("rmqstore.directory.walk", text))) == 1


@pytest.mark.parametrize("text", [
    "class A:\n    def __init__(self):\n        self._a = 1\n    def same(self, other):\n        return other._a",
    "class A:\n    __slots__ = ('_a',)\n    def of(other):\n        return other._a",
    "def of(row):\n    return row._replace(a=1)",
    "class A(B):\n    def put(self):\n        super()._put()\n        return self._b",
])  # fmt: skip
def test_what_is_ones_own_is_no_reach(text: str) -> None:
    assert private_reaches(module_of("rmqstore.directory.walk", text)) == []


def test_a_large_class_is_found() -> None:
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(CLASS_METHODS_MAX + 1))
    large = module_of("jobs.demo", f"class A:\n{methods}" + "    x = 1\n" * CLASS_LINES_MAX)
    assert [count > usual for _, count, usual in class_measures([large])] == [True, True]


def test_a_circle_is_found_also_one_for_types_only() -> None:
    files = [
        module_of("rmqstore.files.one", "from rmqstore.files import two"),
        module_of("rmqstore.files.two", "from rmqstore.files.three import Three"),
        module_of("rmqstore.files.three", "if TYPE_CHECKING:\n    from rmqstore.files.one import One"),
        module_of("rmqstore.files.four", "from rmqstore.files import one"),
    ]
    assert {frozenset(circle) for circle in circles(files)} == {frozenset(each.name for each in files[:3])}
    assert circles(files[1:]) == []


def test_what_only_tests_use_is_found() -> None:
    text = "A = 1\nB = 2\nclass C:\n    def d(self): ...\n    def e(self): ...\ndef f():\n    return C().d(), B"
    assert unused([module_of("jobs.demo", text)], "`f`") == {"jobs.demo:A", "jobs.demo:C.e"}


def test_a_constant_that_stands_twice_is_found() -> None:
    files = [module_of("jobs.a", "_SIZE = 2 * 3\nOTHER = 1"), module_of("jobs.b", "SIZE: int = 2*3\nOTHER = 2")]
    assert twins(files) == {"SIZE": {"jobs.a", "jobs.b"}}


def test_a_noun_for_two_classes_is_found() -> None:
    files = [
        module_of("jobs.a", "class Claim: ...\nclass _Own: ..."),
        module_of("jobs.b", "class Claim: ...\nclass _Own: ..."),
    ]
    assert classes_of_one_name(files) == {"Claim": ["jobs.a", "jobs.b"]}


@pytest.mark.parametrize(
    "text",
    [
        "a note for who reads",
        "by who can act",
        "see nowhere.md",
        "as store-format says",
        "built anew",
        "zeros behind it",
        '"""What is there."""',
    ],
)
def test_a_word_is_found(text: str) -> None:
    assert len(word_offences("docs/engine.md", text)) == 1
    assert word_offences("docs/engine.md", "for whoever reads, see formats.md and docs/recovery.md") == []


@pytest.mark.parametrize("name", ["rmqstore.snapshot.utils", "rmqstore.files.file_helper", "rmqstore.formats.common"])
def test_a_banned_file_name_is_found(name: str) -> None:
    assert len(naming_offences(module_of(name, ""))) == 1


@pytest.mark.parametrize("name", ["rmqstore.attic", "rmqstore.attic.old", "other"])
def test_a_module_of_no_room_is_found(name: str) -> None:
    with pytest.raises(KeyError, match="in no room"):
        room_of(name)


# --- tests and the clock


# Functions and classes that read a clock and that tests of `make test` may use: they give a hang an end.
_ENDS_OF_HANGS = {
    "tests.crash.killed_child.told_until_killed",
    "tests.mutation.damage.no_hang",
    "tests.patience.until",
    "tests.replication.following.test_group.run_until",
    "tests.store.children.in_child",
    "tests.store.test_interrupts.no_hang",
    "tests.store.test_interrupts.opened",
}
# These make no figure of it that a test judges.
_JUDGED_BY_NOBODY = {
    "tests.cli.test_start.has_handler",  # the signals that a process handles
    "tests.crash.broker_killed_writer.FastClock",  # the clock of a program that is killed at random,
    "tests.crash.broker_killed_writer.Program",  # and its threads' pauses
    "tests.files.test_residency.locked_kib",  # pages that were locked: a count
    "tests.files.test_residency.test_no_address_space_to_map_is_told",  # the limit that it sets is above what it has
    "tests.ladder.__main__._done",  # the ladder tells the seconds of its parts,
    "tests.ladder.__main__.row_of",  # and when a part ended;
    "tests.ladder.run._end",  # what does not end by itself is killed
    "tests.spark_source.sink_kills._ancestors",  # the parent of a process
}
# Those that only tests outside `make test` may use: they make figures, or wait.
_FIGURES = {
    "tests.cli.test_start.waited",
    "tests.export.test_cost.seconds",
    "tests.remoting.test_hostile_answers.peak_kib",
    "tests.replication.following.test_hostile_masters.peak_kib",
    "tests.replication.serving.pairs.peak_kib",
    "tests.replication.serving.pairs.slowest_put_s",
    "tests.report.conftest.browser",
}
# Of these folders the test files are not in `make test` (tests/conftest.py).  The rest of them, and of some others, are
# programs and helpers: figures as well, as far as they read a clock.
_OWN_COMMANDS = {"conformance", "sail", "soak", "tables"}
_PROGRAMS = {"oracle", "teeth"}
_BROWSER = "tests.report.chromium"
_NOT_QUICK_MARKS = set(NOT_QUICK.split(" or "))


def sources_of_tests() -> dict[str, str]:
    """The source of each file of tests/, by its module."""
    paths = sorted((PROJECT / "tests").rglob("*.py"))
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts): path.read_text("utf-8") for path in paths}


def is_test_file(module: str) -> bool:
    return module.rpartition(".")[2].startswith("test_")


def is_program(module: str) -> bool:
    """Whether `make test` has a module neither as a test nor as what its tests may use."""
    folder = module.split(".")[1]
    return folder in _OWN_COMMANDS or (not is_test_file(module) and (folder in _PROGRAMS or module == _BROWSER))


def readers_in(programs: dict[str, str], clocks: set[str]) -> set[str]:
    """The functions and classes of programs that read a clock, or use another that does."""
    found: set[str] = set()
    while more := {
        f"{name}.{unit.name}" for name in programs for unit, _ in look(name, programs[name], clocks | found)
    }:
        if more <= found:
            break
        found |= more
    return found


def clock_readers(sources: dict[str, str], figures: set[str]) -> dict[str, str]:
    """The functions and classes of tests that read a clock or use what `figures` names, and are in `make test` or may
    be used there; with what each reads."""
    clocks, fixtures = CLOCKS | figures, dict[str, dict[str, str]]()
    for module, source in sources.items():
        folder, _, name = module.rpartition(".")
        if name == "conftest" and not is_program(module):
            names = names_of(module, parsed(source))
            fixtures[folder] = {each: full for each, full in names.items() if full == f"{module}.{each}"}
    programs = {module: source for module, source in sources.items() if is_program(module)}
    clocks |= readers_in({module: programs[module] for module in programs if not is_test_file(module)}, clocks)
    found = {}
    for module, source in sources.items():
        if module not in programs:
            folder, _, name = module.rpartition(".")
            takes_fixtures = name == "conftest" or is_test_file(module)
            above = [fixtures[each] for each in fixtures if f"{folder}.".startswith(f"{each}.")]
            for unit, reading in look(module, source, clocks, dict(ChainMap(*above)) if takes_fixtures else {}):
                if not unit.marks & _NOT_QUICK_MARKS:
                    found[f"{module}.{unit.name}"] = reading
    return found


def test_quick_tests_do_not_look_at_the_clock() -> None:
    """What a busy machine changes is asserted under the mark `host` alone."""
    found = clock_readers(sources_of_tests(), _FIGURES)
    known = _ENDS_OF_HANGS | _JUDGED_BY_NOBODY | _FIGURES
    offences = [f"{name}: {found[name]}" for name in sorted(found.keys() - known)]
    assert offences == [], "\n".join(offences)
    assert sorted(known - found.keys()) == [], "take out what is gone"


def quick_readers(source: str) -> dict[str, str]:
    """What the check finds in a test file beside a helper that makes a figure, and a fixture that does."""
    sources = {
        "tests.store.test_one": source,
        "tests.store.figures": "import time\ndef took(): return time.monotonic()",
        "tests.store.conftest": "import time, pytest\n@pytest.fixture\ndef began(): return time.monotonic()",
        "tests.soak.load": "import time\ndef pause(): time.sleep(1)",
    }
    figures = {"tests.store.figures.took", "tests.store.conftest.began"}
    return {name: what for name, what in clock_readers(sources, figures).items() if name not in figures}


LOOKS = {
    **{name: f"import time\ndef test(): time.{name}()" for name in (
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time",
        "process_time_ns", "thread_time", "thread_time_ns",
    )},
    "sleep": "import time\ndef test(): time.sleep(0.1)",
    "asyncio.sleep": "import asyncio\nasync def test(): await asyncio.sleep(0.1)",
    "datetime.now": "from datetime import UTC, datetime\ndef test(): datetime.now(UTC)",
    "datetime.utcnow": "import datetime as d\ndef test(): d.datetime.utcnow()",
    "datetime.today": "import datetime\ndef test(): datetime.datetime.today()",
    "a name of one's own": "from time import monotonic as m\ndef test(): m()",
    "a module's name of one's own": "import time as t\ndef test(): t.sleep(1)",
    "imported late": "def test():\n    import time as t\n    t.sleep(1)",
    "handed on": "import time\ndef test(): measured(clock=time.monotonic)",
    "a default": "import time\ndef test(clock=time.monotonic): clock()",
    "an event": "from threading import Event\ndef test(): Event().wait(0.2)",
    "an event with a name": "import threading\ndef test():\n    turn = threading.Event()\n    turn.wait(0.2)",
    "an event's time that has a name": "import threading\nA_BIT = 0.2\ndef test(): threading.Event().wait(A_BIT)",
    "an event's time from elsewhere": "import threading\ndef test(pause): threading.Event().wait(pause)",
    "a condition": "def test(change): change.wait(timeout=0.2)",
    "a condition that is asked": "def test(change): change.wait_for(bool, 5)",
    "a lock": "def test(lock): assert lock.acquire(timeout=10)",
    "a thread": "def test(thread): thread.join(10)",
    "a process": "def test(child): child.communicate(timeout=20)",
    "a socket": "def test(peer): peer.settimeout(5)",
    "a connection": "import socket\ndef test(place): socket.create_connection(place, 5)",
    "select": "import select\ndef test(pipe): select.select([pipe], [], [], 0.2)",
    "select until then": "import select\ndef test(pipe, left_s): select.select([pipe], [], [], left_s)",
    "poll": "import select\ndef test(): select.poll().poll(200)",
    "selectors": "import selectors\ndef test(): selectors.DefaultSelector().select(0.2)",
    "setitimer": "import signal\ndef test(): signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "alarm": "import signal\ndef test(): signal.alarm(1)",
    "a timer": "import threading\ndef test(): threading.Timer(1, print).start()",
    "the module": "import time\nBEGAN_S = time.monotonic()",
    "a class": "import time\nclass Case:\n    began_s = time.monotonic()",
    "a method": "import time\nclass TestCase:\n    def test(self): time.monotonic()",
    "a function within": "import time\ndef test():\n    def late(): return time.monotonic()\n    assert late()",
    "a fixture": "import time, pytest\n@pytest.fixture\ndef began(): return time.monotonic()",
    "a fixture of the folder": "def test(began): assert began",
    "a helper": "from tests.store.figures import took\ndef test(): assert took() < 1",
    "a helper's module": "from tests.store import figures as f\ndef test(): assert f.took() < 1",
    "a program's helper": "import tests.soak.load\ndef test(): tests.soak.load.pause()",
    "a program as text": "def test(): run('-c', 'import time as t; t.sleep(1)')",
    "a program that is indented": "PROGRAM = '''\n    from time import monotonic as m\n    m()\n'''",
    "a program with values": "def test(seconds): run(f'import time as t; t.sleep({seconds})')",
    "a part of a program": "def test(): run('-c', BEGIN + 'time.sleep(1)')",
    "a shell's sleep": "def test(): run('sh', '-c', 'echo; sleep 5')",
    "a command": "def test(): run(['sleep', '5'])",
    "psutil": "import psutil\ndef test(): psutil.Process().memory_info()",
    "tracemalloc": "from tracemalloc import get_traced_memory\ndef test(): get_traced_memory()",
    "getrusage": "from resource import RUSAGE_SELF, getrusage\ndef test(): getrusage(RUSAGE_SELF)",
    "status": "def test(): open('/proc/self/status')",
    "status of another": "def test(pid): open(f'/proc/{pid}/status')",
    "os.times": "import os\ndef test(): os.times()",
}  # fmt: skip


@pytest.mark.parametrize("source", LOOKS.values(), ids=LOOKS)
def test_a_look_at_the_clock_is_found(source: str) -> None:
    assert len(quick_readers(source)) == 1


@pytest.mark.parametrize("source", [
    "import time, pytest\n@pytest.mark.host\ndef test(): time.sleep(1)",
    "import time, pytest\npytestmark = [pytest.mark.stores, pytest.mark.host]\ndef test(): time.sleep(1)",
    "import time, pytest\n@pytest.mark.host\nclass TestCase:\n    def test(self): time.sleep(1)",
    "import pytest\nfrom tests.store.figures import took\n@pytest.mark.deep\ndef test(began): took()",
    "import asyncio\nasync def test(): await asyncio.sleep(0)",
    "import time\ndef test(monkeypatch): monkeypatch.setattr(time, 'sleep', print)",
    "from tests.patience import PATIENCE_S\ndef test(thread): thread.join(PATIENCE_S)",
    "def test(gate, lock): assert gate.wait(60) and not gate.wait(0) and lock.acquire(timeout=-1)",
    "import os\ndef test(names): return ', '.join(names), os.path.join('a', 'b')",
    "def test(consumer, time): return consumer.poll(2), time.time(), time.sleep",
    "import select\ndef test(pipe): select.select([pipe], [], [], 600), select.select([pipe], [], [])",
    "def test(): 'a page on how to sleep, on time and on monotonic clocks'",
    "def test(): open('/proc/self/fd')",
])  # fmt: skip
def test_what_looks_at_no_clock_passes(source: str) -> None:
    assert quick_readers(source) == {}


def source_marks(tests: Path) -> Iterator[str]:
    """The test files with the mark `source` that `make lint` does not run."""
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(parsed(text)) if "mark.source" in text else ()
        used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "source"}
        if "pytest.mark.source" in used and path != tests / "test_architecture.py":
            yield str(path.relative_to(tests))


def test_tests_of_the_source_stand_where_lint_runs_them(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("log/test_a.py", "test_architecture.py"):
        (tmp_path / name).write_text("import pytest\n\n\n@pytest.mark.source\ndef test_a() -> None: ...\n")
    assert [*source_marks(tmp_path)] == ["log/test_a.py"]
    assert [*source_marks(PROJECT / "tests")] == []
