"""`kqueue completion`: a script for the shell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells that a script exists for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def completion(shell: Annotated[Shell, typer.Argument(case_sensitive=False, show_default=False)]) -> None:
        """Print a script that makes a shell complete kqueue's commands.

        \b
        bash: source <(kqueue completion bash)     in ~/.bashrc
        zsh:  source <(kqueue completion zsh)      in ~/.zshrc
        fish: kqueue completion fish | source      in ~/.config/fish/config.fish
        For `kubectl kqueue`, kubectl's own completion calls kqueue.
        """
        from typer._completion_shared import get_completion_script

        print(get_completion_script(prog_name="kqueue", complete_var="_KQUEUE_COMPLETE", shell=shell.value))
