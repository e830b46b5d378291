"""Where the time of a closing generation went, in one line for its operator."""

from __future__ import annotations

from collections.abc import Mapping

from sinksdk.measures import TaskMeasures

_LEAST = 0.05  # seconds that are worth a word


def closing_trail(seconds: float, tasks: Mapping[int, TaskMeasures]) -> str:
    """What a generation's closing was spent with, by the phases of its slowest task.

    Args:
        seconds: from the asking until the job had ended.
        tasks: what each task has measured; those that had ended before have no closing.
    """
    spent = {
        task: sum(measures.closing_seconds.values()) for task, measures in tasks.items() if measures.closings
    }
    if not spent:
        return f"{seconds:.1f} s; no task was open any more"
    slowest = max(spent, key=lambda task: spent[task])
    phases = tasks[slowest].closing_seconds
    told = [f"{phase} {took:.1f} s" for phase, took in phases.items() if took >= _LEAST]
    rest = seconds - spent[slowest]
    if rest >= _LEAST:
        told.append(f"Spark and the driver {rest:.1f} s")
    return f"{seconds:.1f} s; the slowest, task {slowest}: {', '.join(told) or 'nothing that took long'}"
