"""``python -m sinksdk``: the command line, where the console script is not on the path."""

from sinksdk.cli import main

main()
