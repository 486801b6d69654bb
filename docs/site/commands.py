"""A hook of mkdocs: the page of all commands and options, from the program itself."""

from collections.abc import Iterator

from click import Command, Context, Group
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

from rofl.cli.main import app

_HEAD = "# Commands\n\nAs `rofl --help` and `rofl COMMAND --help` list them.\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    command = get_command(app)
    text = "".join(_describe(command, Context(command, info_name="rofl")))
    files.append(File.generated(config, "commands.md", content=_HEAD + text))
    return files


def _describe(command: Command, context: Context) -> Iterator[str]:
    """Yield a section for a command, or for each command of a group."""
    if isinstance(command, Group):
        for name, each in command.commands.items():
            if not each.hidden:
                yield from _describe(each, Context(each, info_name=name, parent=context))
        return
    yield f"## {context.command_path}\n\n{(command.help or '').strip()}\n\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n\n"
    records = [each.get_help_record(context) for each in command.params if not getattr(each, "hidden", False)]
    if rows := [record for record in records if record and record[1]]:
        yield "| option | meaning |\n|---|---|\n"
        yield from (f"| `{name}` | {_escape(about)} |\n" for name, about in rows)
        yield "\n"
    if command.epilog:
        yield f"{command.epilog.replace('Example: ', 'Example: `', 1)}`\n\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
