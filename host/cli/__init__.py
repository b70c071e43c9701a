"""The command line `coldframe`. Each command lives in a module of its own, imported when it is the one that is run."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from host import __version__
from host.errors import ColdframeError

COMMANDS = {
    "serve": "host.cli.serve",
    "ls": "host.cli.ls",
    "ps": "host.cli.ps",
    "check": "host.cli.check",
    "pull": "host.cli.pull",
    "load": "host.cli.load",
    "unload": "host.cli.load",
    "run": "host.cli.run",
}
"""Command -> the module that has it, under a name like `serve_command`."""


class Failure(click.ClickException):
    """What a command ends with when it cannot do what was asked: one line on standard error, and status 1."""

    def show(self, file: Any = None) -> None:
        """Print the line."""
        click.echo(f"coldframe: {' '.join(self.message.split())}", err=True)


class Misuse(Failure):
    """The same where the call, the config or the port is wrong: status 2."""

    exit_code = 2


class Commands(click.Group):
    """The group: commands are imported late, and errors of ours end them with one line instead of a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order they are met."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(COMMANDS[cmd_name]), f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named, or fail with those there are."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"no such command `{args[0]}`; there are: {', '.join(COMMANDS)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except ColdframeError as error:
            raise Failure(str(error)) from None


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="coldframe")
def group() -> None:
    """Local models as serverless functions behind one OpenAI-compatible endpoint.

    A YAML manifest declares a function; `coldframe serve` answers for every manifest in a folder and loads a model when
    it is first called.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; the entry point `coldframe`."""
    group.main(args=args, prog_name="coldframe")


__all__ = ("COMMANDS", "Failure", "Misuse", "group", "main")
