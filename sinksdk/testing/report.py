"""What a run of the kit has shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sinksdk.testing.contract import Capabilities, Guarantee

_MEANINGS = {
    Guarantee.AT_LEAST_ONCE: "nothing was lost",
    Guarantee.EFFECTIVELY_ONCE: "nothing was lost, nothing was seen twice",
    Guarantee.EXACTLY_ONCE: "nothing was lost, nothing was seen twice or before its commit",
}
_NOT_FAULTS = ("cases", "steps", "destination operations", "duplicates seen", "leftovers looked at")


@dataclass(frozen=True)
class Report:
    """A run in which the sink kept its promise. Its text says what was shown.

    Args:
        exercised: how often each step was done and each fault was met.
    """

    capabilities: Capabilities
    exercised: Counter[str]

    @property
    def guarantee(self) -> Guarantee:
        """How often readers see a record."""
        return self.capabilities.guarantee

    @property
    def cases(self) -> int:
        """How many schedules were tried."""
        return self.exercised["cases"]

    def __str__(self) -> str:
        promise, counts = self.capabilities, self.exercised
        shown = [f"{self.guarantee}: {_MEANINGS[self.guarantee]}"]
        if promise.ordered:
            shown.append("ordered: each partition was read back in the order of its offsets")
        if promise.dead_letters:
            shown.append("dead letters: what could not be delivered was reported before it was committed")
        if promise.commits_on_close:
            shown.append("commit on close: no closing commit kept anything back")
        lines = [f"shown in {self.cases:,} cases of {counts['steps']:,} steps in all:"]
        lines += [f"  {what}" for what in shown]
        if promise.guarantee is Guarantee.AT_LEAST_ONCE:
            lines.append(f"  duplicates seen: {counts['duplicates seen']:,}")
        if not counts["leftovers looked at"]:
            lines.append(
                "  not looked at: leftovers; `leftovers` says how to find what nobody will ever discard"
            )
        lines.append("met on the way:")
        lines += [f"{count:>9,}  {what}" for what, count in sorted(counts.items()) if what not in _NOT_FAULTS]
        if not counts["destination operations"]:
            lines.append("  the destination asks no fault plan: nothing ever went wrong inside of it")
        return "\n".join(lines)
