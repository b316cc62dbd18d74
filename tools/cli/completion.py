"""`triolog completion`: what a shell reads to complete the names of commands and options."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

SHELLS: Final = ("bash", "zsh", "fish")


@click.command
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands and options.

    \b
    bash:  eval "$(triolog completion bash)"        in ~/.bashrc
    zsh:   eval "$(triolog completion zsh)"         in ~/.zshrc
    fish:  triolog completion fish > ~/.config/fish/completions/triolog.fish
    """
    root = ctx.find_root()
    name = root.info_name or "triolog"
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()  # as click does it
    found = get_completion_class(shell)
    assert found is not None, f"click has no completion for {shell}"
    click.echo(found(root.command, {}, name, variable).source(), nl=False)
