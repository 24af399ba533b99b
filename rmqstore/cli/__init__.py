"""The command line `rmqstore`: one module a command.

Exit status: 0 done, 1 an error or (verify) damage, 2 a mistake in the command itself.
"""

import click

from rmqstore import __version__
from rmqstore.cli.cat import cat
from rmqstore.cli.clean import clean
from rmqstore.cli.doctor.command import doctor
from rmqstore.cli.inspection.inspect import inspect
from rmqstore.cli.metrics.serve_metrics import serve_metrics
from rmqstore.cli.outgoing.export import export
from rmqstore.cli.outgoing.query import query
from rmqstore.cli.outgoing.sync import sync
from rmqstore.cli.output import Commands, debug_option
from rmqstore.cli.putting.put import put
from rmqstore.cli.recover import recover
from rmqstore.cli.replication.replicate import replicate
from rmqstore.cli.replication.serve import serve
from rmqstore.cli.report import report
from rmqstore.cli.tail import tail
from rmqstore.cli.verify import verify


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rmqstore")
@debug_option
def main() -> None:
    """Look into Apache RocketMQ store directories, without touching the broker.

    STORE is the broker's storePathRootDir, the directory that holds commitlog/. Where that lies elsewhere
    (storePathCommitLog), its directories follow it: STORE LOG. What reads takes a directory of stores, as `replicate`
    makes it, for all that are in it. Only `put`, `recover` and `clean` ever write there.
    """


for command in (
    inspect, query, cat, tail, put, export, sync, verify, recover, clean, report, replicate, serve, serve_metrics,
    doctor,
):  # fmt: skip
    main.add_command(command)
