"""The command line application."""

from __future__ import annotations

import typer

from sinksdk.cli import control, offsets, status
from sinksdk.cli.convert import convert
from sinksdk.cli.new import new_sink, new_source
from sinksdk.cli.plugins import show_plugins
from sinksdk.cli.run import run
from sinksdk.cli.server import server
from sinksdk.cli.validate import validate

app = typer.Typer(
    name="sinksdk",
    help="Run Kafka-Connect-style sink connectors on Spark, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("run", short_help="Run a connector until it is stopped or has caught up.")(run)
app.command("server", short_help="Run all connectors of a store, with Kafka Connect's REST interface.")(
    server
)
app.command("validate", short_help="Check a configuration.")(validate)
app.command("convert", short_help="Translate a Kafka Connect configuration.")(convert)
app.command("plugins", short_help="List connectors and their configuration.")(show_plugins)

new_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create a package for your own connector."
)
app.add_typer(new_app, name="new")
new_app.command("sink", short_help="A sink that writes JSON lines to a folder, exactly once.")(new_sink)
new_app.command("source", short_help="A source that reads the lines of a folder's files, exactly once.")(
    new_source
)

# These commands read and write the store, so they work on any machine that reaches it.
app.command("list", short_help="List connectors.")(status.show_connectors)
app.command("status", short_help="Show a connector, its tasks and partitions.")(status.show_status)
for action, what in {
    "pause": "Flush, commit and close the tasks; read nothing until it is resumed.",
    "resume": "Let a paused or stopped connector run again.",
    "stop": "Pause, and allow offsets to be altered.",
    "rebalance": "Flush, commit, and assign the partitions again.",
    "flush": "Commit all records available now, partial batches and open transactions included.",
}.items():
    app.command(action, short_help=what)(control.request_command(action, what))
app.command("restart", short_help="Stop a connector and start it again.")(control.restart)
app.command("delete", short_help="Delete a connector and what it created elsewhere.")(control.delete)

offsets_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show, alter, recover or reset committed offsets."
)
app.add_typer(offsets_app, name="offsets")
offsets_app.command("show")(offsets.show_offsets)
offsets_app.command("alter")(offsets.alter_offsets)
offsets_app.command("recover")(offsets.recover_offsets)
offsets_app.command("reset")(offsets.reset_offsets)

config_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show or replace a configuration.")
app.add_typer(config_app, name="config")
config_app.command("get")(control.show_config)
config_app.command("set")(control.set_config)
