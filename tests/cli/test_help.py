"""What `--help` says: each command on one line, and an example of each."""

import shlex

import click
import pytest
from click.testing import CliRunner

from rmqstore.cli import main


def test_the_list_of_commands_cuts_nothing_on_80_columns() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80, prog_name="rmqstore").stdout
    lines = shown[shown.index("Commands:") :].splitlines()[1:]
    assert len(lines) == len(main.commands)
    assert [line for line in lines if "..." in line or len(line) > 80 or not line.endswith(".")] == []


@pytest.mark.parametrize("name", sorted(main.commands))
def test_each_command_has_an_example_that_it_takes(name: str) -> None:
    shown = CliRunner().invoke(main, [name, "--help"], terminal_width=200).stdout
    said = f"rmqstore {name} "
    examples = [line[line.index(said) + len(said) :] for line in shown.splitlines() if f" {said}" in line]
    assert examples
    command = main.commands[name]
    for text in examples:
        arguments = shlex.split(text.split(" | ")[0].split(" > ")[0], comments=True)
        command.make_parser(click.Context(command)).parse_args(arguments)  # raises for an option that there is not
