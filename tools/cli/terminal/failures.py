"""The ways a command fails: exit codes, and one line on standard error.

| exit code | means |
|---:|---|
| 0 | done |
| 1 | the server refused the request, or a check failed |
| 2 | the command line is wrong |
| 3 | the server cannot be reached, or cannot start; files cannot be read, or a server is using them |
| 130 | interrupted with Ctrl-C |
"""

from __future__ import annotations

from typing import Final

import click

EXIT_FAILED: Final = 1
EXIT_NOT_CONNECTED: Final = 3
EXIT_INTERRUPTED: Final = 130


class FailedError(click.ClickException):
    """A request was refused, or a check failed. The message says what, where, and what to do next."""

    exit_code = EXIT_FAILED


class NotConnectedError(click.ClickException):
    """There is no server at the address, or it went away."""

    exit_code = EXIT_NOT_CONNECTED


class UnreadableError(click.ClickException):
    """The files of a log cannot be read, are no log's, or a server is using them."""

    exit_code = EXIT_NOT_CONNECTED


class OutputClosedError(Exception):
    """The reader of our standard output has closed it (`| head`): not an error of ours."""
