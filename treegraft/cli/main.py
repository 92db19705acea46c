"""The entry point: gathers the commands, which import what they need when called."""

from __future__ import annotations

import logging
import sys
import traceback

import click

from foundation.errors import UserError
from foundation.plain_text import visible
from treegraft.cli import measuring, reading, training

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

_HALF_A_LINE = 500


def main() -> None:
    """Run the command line; errors that a user can fix are one line and exit code 2."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: list[str]) -> int:
    """Run the command line with `arguments`; return the exit code."""
    logging.basicConfig(format="treegraft: %(message)s")
    logging.getLogger("treegraft").setLevel(logging.INFO)
    debug = "--debug" in arguments
    parts = [part for part in arguments if part != "--debug"] or ["--help"]
    try:
        code = cli.main(parts, "treegraft", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Abort:
        click.echo("treegraft: interrupted; the same command with --out continues the run", err=True)
        return EXIT_INTERRUPTED
    except (UserError, click.ClickException) as error:
        if debug:
            traceback.print_exc()
        return _refuse(error.format_message() if isinstance(error, click.ClickException) else str(error))
    except OSError as error:  # a name that is too long, a full disk, a folder without permission
        if debug:
            traceback.print_exc()
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}; give another path, or make room")


def _refuse(message: str) -> int:
    """Print an error as one line; of one that quotes something huge, what it names and the fix at its end."""
    line = visible(" ".join(message.split()))
    if len(line) > 2 * _HALF_A_LINE:
        line = f"{line[:_HALF_A_LINE]} … {line[-_HALF_A_LINE:]}"
    click.echo(f"treegraft: {line}", err=True)
    return EXIT_USER_ERROR


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="treegraft-bench")
def cli() -> None:
    """Benchmark multi-drafter tree speculative decoding.

    `--debug` with any command shows the traceback of an error.
    """


for command in (*measuring.COMMANDS, *reading.COMMANDS, *training.COMMANDS):
    cli.add_command(command)
