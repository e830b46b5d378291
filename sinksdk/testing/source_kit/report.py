"""What a run of the kit has shown of a source."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sinksdk.testing.source_kit.held import can_see_files
from sinksdk.testing.source_kit.subject import SourceCapabilities

_NOT_MET = ("cases", "steps", "records", "duplicates seen", "operations of the origin")


@dataclass(frozen=True)
class SourceReport:
    """A run in which the source kept its promise. Its text says what was shown.

    Args:
        exercised: how often each step was done, each fault was met, each end was reached.
    """

    capabilities: SourceCapabilities
    exercised: Counter[str]

    @property
    def cases(self) -> int:
        """How many schedules were tried."""
        return self.exercised["cases"]

    def __str__(self) -> str:
        promise, counts = self.capabilities, self.exercised
        lines = [
            f"shown in {self.cases:,} cases of {counts['steps']:,} steps and {counts['records']:,} records:"
        ]
        if promise.exactly_once:
            lines.append("  exactly once: nothing was lost, nothing was seen twice")
        else:
            lines += [
                "  at least once: nothing was lost",
                f"  duplicates seen: {counts['duplicates seen']:,}",
            ]
        if promise.ordered:
            lines.append("  ordered: the records of each source partition came in their order")
        what = "no thread and no open file" if can_see_files() else "no thread"
        lines.append(f"  stopped is the last word: nothing ran after it, and {what} was left")
        if not can_see_files():
            lines.append("  not looked at: open files; this system does not tell them")
        lines.append("met on the way:")
        lines += [f"{count:>9,}  {what}" for what, count in sorted(counts.items()) if what not in _NOT_MET]
        if not counts["operations of the origin"]:
            lines.append("  the origin asks no fault plan: nothing ever went wrong inside of it")
        return "\n".join(lines)
