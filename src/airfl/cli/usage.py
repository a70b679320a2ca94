"""The option parser in our words: names that are nearly right, and usage errors in one sentence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from airfl.errors import InputError

if TYPE_CHECKING:
    #: A command line that cannot be read.
    UsageError = typer.BadParameter
else:  # typer does not export it, and has its own copy of the parser or not, by its version
    UsageError = typer.BadParameter.__base__


class Commands(TyperGroup):
    """All commands: each takes `--quiet` too, none is cut off in the help, and a misspelt one is named."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        command = super().get_command(ctx, cmd_name)
        quiet = next(option for option in self.params if option.name == "quiet")
        if command is not None and quiet not in command.params:
            command.params.append(quiet)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the parser does, but for a name that is none."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            from airfl.catalogue import nearest, no_such

            known = self.list_commands(ctx)
            options = [name for option in self.params for name in option.opts if name.startswith("--")]
            near = nearest(args[0], [*known, *options])
            raise InputError(f"no command `{args[0]}`{near}" if near else no_such("command", args[0], known))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The first sentence of every command's help, over as many lines as it takes."""
        rows = [(name, _first_sentence(self.get_command(ctx, name).help)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def usage_sentence(error: Exception) -> str:
    """What the option parser complains about, in one sentence."""
    context, message = getattr(error, "ctx", None), str(getattr(error, "message", error))
    command = context.command_path if context is not None else "airfl"
    option, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if hasattr(error, "possibilities"):
        return _no_option(context, str(option))
    if option is not None:
        return f"{option} {'takes no value' if 'not take' in message else 'needs a value'}"
    if parameter is not None and hasattr(error, "param_type"):
        return f"{_shown(parameter)} is missing; see {command} -h"
    if parameter is not None:
        kinds = {"integer": "must be a whole number", "float": "must be a number", "number": "must be a number"}
        wanted = next((words for kind, words in kinds.items() if kind in message), f"is not right: {_plain(message)}")
        return f"{_shown(parameter)} {wanted}"
    if surplus := re.search(r"unexpected extra argument\S* \((.*)\)", message):
        return f"`{surplus[1]}` is more than {command} takes; see {command} -h"
    return f"{_plain(message)}; see {command} -h"


def _no_option(context: Any, option: str) -> str:
    from airfl.catalogue import nearest

    known = [name for item in context.command.params for name in item.opts if name.startswith("--")]
    near = nearest(option, known) or f"; see {context.command_path} -h"
    return f"`{context.command_path}` has no option `{option}`{near}"


def _shown(parameter: Any) -> str:
    """An option as it is typed, an argument as the help names it."""
    long = [name for name in parameter.opts if name.startswith("--")]
    return str(long[0] if long else parameter.metavar or parameter.name.upper())


def _first_sentence(text: str | None) -> str:
    words = " ".join((text or "").split())
    for end in (". ", "? "):
        head, found, _ = words.partition(end)
        if found:
            words = head + end.strip()
    return words


def _plain(text: str) -> str:
    """The parser's words as ours: no capital, no full stop, names between backquotes."""
    text = text.rstrip(".").replace("'", "`")
    return f"{text[:1].lower()}{text[1:]}"
