"""``python -m sinksdk.cli``: the same as the console script ``sinksdk``."""

from __future__ import annotations

from sinksdk.cli import main

main()
