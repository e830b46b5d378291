from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sinksdk.source import SourceRecord
from sinksdk.testing import (
    KitError,
    MemoryOrigin,
    SourceCapabilities,
    SourceContractError,
    check_source,
    replay_source,
)
from sinksdk.testing.source_kit import trial
from tests.helpers.tiers import extended_after
from tests.testing.source_zoo import PartSource, QueueSource, share

pytestmark = pytest.mark.slow

FEW = 40


def check(make_task: Any = PartSource, **options: Any) -> Any:
    defaults: dict[str, Any] = {"expected": MemoryOrigin.everything, "task_configs": share, "cases": FEW}
    defaults["patience"] = 20.0  # seconds; enough for a busy machine
    return check_source(make_task, **{**defaults, **options})


def test_report_counts_steps_faults_and_ends_of_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    report = check(cases=150)
    counts = report.exercised
    for what in (
        *("topics: lost response", "topics: crash after", "task: crash before", "origin: permanent error"),
        *("meanwhile: freeze", "meanwhile: stop", "tasks that died", "generations of 3 tasks"),
        *("tasks that ended FENCED", "tasks that ended FAILED", "checks for open resources after stopped"),
    ):
        assert counts[what] > 0, what
    printed = capsys.readouterr().out
    assert printed == f"{report}\n"
    assert "exactly once: nothing was lost, nothing was seen twice" in printed
    assert "stopped is the last call" in printed


@pytest.mark.extended
def test_the_same_seed_tries_the_same_cases() -> None:
    first, again, other = (check(seed=seed).exercised for seed in (1, 1, 2))
    assert (first["run"], first["fault"], first["meanwhile"]) == (
        again["run"],
        again["fault"],
        again["meanwhile"],
    )
    assert (first["run"], first["fault"]) != (other["run"], other["fault"])


def test_changes_of_the_origin_happen_in_every_case() -> None:
    def grow(origin: MemoryOrigin) -> None:
        assert len(origin.parts["a"]) == 6
        origin.parts["a"].append(b"a-6")

    def grow_again(origin: MemoryOrigin) -> None:
        assert len(origin.parts["a"]) == 7
        origin.parts["a"].append(b"a-7")

    report = check(changes=[grow, grow_again])
    assert report.exercised["meanwhile: change"] > 0
    assert report.exercised["records"] == FEW * 15


def test_at_least_once_counts_duplicates() -> None:
    promise = SourceCapabilities(exactly_once=False, ordered=False, grows=False)
    report = check(QueueSource, capabilities=promise, cases=100)
    assert report.exercised["duplicates seen"] > 0
    assert "duplicates seen" in str(report)
    with pytest.raises(SourceContractError, match="twice: "):
        check(QueueSource, cases=100)


class Keyed(PartSource):
    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        return SourceRecord({"part": part}, {"next": number + 1}, part, line, key=b"%d" % number)


@pytest.mark.parametrize(
    "row",
    [
        lambda part, n: (part, f"{part}-{n}".encode()),
        lambda part, n: (part, b"%d" % n, f"{part}-{n}".encode()),
    ],
)
def test_expected_may_contain_topics_and_keys(row: Any) -> None:
    expected = [row(part, n) for part, size in (("a", 6), ("b", 4), ("c", 3)) for n in range(size)]
    assert check(Keyed, expected=expected, cases=5).cases == 5
    with pytest.raises(SourceContractError, match="but not in `expected`"):
        check(Keyed, expected=[("b", *row[1:]) for row in expected], cases=5)


def test_options_that_check_nothing_are_kit_errors() -> None:
    with pytest.raises(KitError, match="`expected` is empty"):
        check(expected=[])
    with pytest.raises(KitError, match="`expected` contains b'a-0': write all records"):
        check(expected=[b"a-0", ("lines", b"a-1")])
    with pytest.raises(KitError, match="write all keys as the record's key"):
        check(expected={b"a": b"a-0", ("lines", b"b"): b"a-1"})
    with pytest.raises(KitError, match="the task returned no record although no fault was injected"):
        check(task_configs=lambda origin, tasks: [[]], patience=2.0)
    with pytest.raises(KitError, match="task_configs returned 4 configurations for 1 tasks"):
        check(task_configs=lambda origin, tasks: [["a"]] * 4)
    with pytest.raises(KitError, match="there is no step 'fly'; the steps are run, "):
        replay_source([("fly",)], PartSource, expected=[b"x"], config=["a"])


class Refuses(PartSource):
    def start(self, config: Sequence[str]) -> None:
        raise OSError(13, "permission denied")


def test_kit_error_has_the_exception_of_a_failed_start() -> None:
    with pytest.raises(KitError, match=r"^connector .*start raised PermissionError: .*permission denied"):
        check(Refuses)


class Deaf(PartSource):
    """Ignores a stop and keeps polling its origin."""

    def wait(self) -> None:
        while True:
            self.origin.read("a", 0)


@pytest.mark.parametrize("attempt", extended_after(5, range(20)))
def test_hanging_task_that_resumes_does_not_end_the_kit(attempt: int) -> None:
    """Regression: the task's next poll crashed at the moment it was reported, which ended the kit, too."""
    with pytest.raises(SourceContractError, match=r"poll\(\) still waits 0.2 s after stop"):
        replay_source([], Deaf, expected=MemoryOrigin.everything, task_configs=share, patience=0.2)


def test_pause_of_the_machine_does_not_count_as_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a pause of the machine between stop and the end of poll was reported as the source's."""
    now, stood_still = time.monotonic, []
    monkeypatch.setattr(time, "monotonic", lambda: now() + 3.0 * len(stood_still))

    class Interrupted(PartSource):
        def wait(self) -> None:
            super().wait()
            stood_still.append(True)
            time.sleep(0.05)

    replay_source([], Interrupted, expected=MemoryOrigin.everything, task_configs=share, patience=2.0)
    assert stood_still


class Late(PartSource):
    """Leaves a running thread behind."""

    def stopped(self) -> None:
        threading.Thread(target=threading.Event().wait, args=[5.0], name="late", daemon=True).start()


def test_replayed_steps_fail_with_the_same_problem() -> None:
    with pytest.raises(SourceContractError) as caught:
        check(Late)
    assert "task 0 still has the thread 'late'" in str(caught.value)
    assert "replay_source([" in str(caught.value)
    with pytest.raises(SourceContractError, match="still has the thread 'late'"):
        replay_source(caught.value.steps, Late, expected=MemoryOrigin.everything, task_configs=share)


class Nested(PartSource):
    """Has offsets of two fields; the second one falls when the first one rises."""

    def start(self, config: Sequence[str]) -> None:
        super().start([])
        for part in config:
            offset = self.context.offset_storage_reader().offset({"part": part})
            self.next[part] = int(str(offset["block"])) * 2 + int(str(offset["line"])) if offset else 0

    def record(self, part: str, number: int, line: bytes) -> SourceRecord:
        block, within = divmod(number + 1, 2)
        return SourceRecord({"part": part}, self.offset(block, within), part, line)

    def offset(self, block: int, line: int) -> dict[str, Any]:
        return {"block": block, "line": line}


class NestedTexts(Nested):
    """Has the offsets of Nested as texts: those of the first field are of one length."""

    def offset(self, block: int, line: int) -> dict[str, Any]:
        return {"block": f"{block:04}", "line": f"{line}"}


class NestedMixture(Nested):
    """Has offsets with a number in the first field at first, and with a text later."""

    def offset(self, block: int, line: int) -> dict[str, Any]:
        return {"block": str(block) if block > 1 else block, "line": line}


@pytest.mark.parametrize("source", extended_after(1, [Nested, NestedTexts]))
def test_grows_compares_offsets_in_the_order_of_the_named_fields(source: type[PartSource]) -> None:
    assert check(source, capabilities=SourceCapabilities(grows=("block", "line"))).cases == FEW
    with pytest.raises(SourceContractError, match="went back from"):
        check(source, capabilities=SourceCapabilities(grows=("line", "block")))


@pytest.mark.parametrize(
    ("source", "grows", "problem"),
    [
        (Nested, ("page",), "`grows` names 'page', which the offset"),
        (NestedMixture, ("block", "line"), "name fields that are always numbers or always texts"),
    ],
)
def test_fields_that_grows_cannot_compare_are_named(
    source: type[PartSource], grows: Any, problem: str
) -> None:
    with pytest.raises(SourceContractError, match=problem):
        check(source, capabilities=SourceCapabilities(grows=grows))


def test_contradictory_options_are_named() -> None:
    with pytest.raises(KitError, match="`config` and `task_configs` are both set"):
        check(config=["a"])
    with pytest.raises(KitError, match="`changes` must be a list of functions of the origin"):
        check(changes=lambda origin: None)
    with pytest.raises(KitError, match="`expected` can be read only once"):
        check(expected=iter([b"a-0"]))
    with pytest.raises(KitError, match="must be a list of names of the offset's fields, as in grows="):
        check(capabilities=SourceCapabilities(grows="next"))
    with pytest.raises(TypeError, match=r"check_source\(\) has no option 'task_config'; did you mean"):
        check(task_config=share)
    with pytest.raises(
        TypeError, match=r"replay_source\(\) has no option 'zz'; the options are schedule, make_task, "
    ):
        replay_source([], PartSource, expected=[b"a-0"], zz=1)  # type: ignore[call-arg]  # that is the mistake


def test_source_may_have_no_task_until_the_origin_changes() -> None:
    def later(origin: MemoryOrigin, tasks: int) -> list[list[str]]:
        return share(origin, tasks) if "late" in origin.parts else []

    def come(origin: MemoryOrigin) -> None:
        origin.parts["late"] = [b"late-0"]

    report = check(task_configs=later, changes=[come])
    assert report.exercised["generations of 0 tasks"] > 0


def test_options_are_in_the_signature() -> None:
    for function in (check_source, replay_source):
        parameters = inspect.signature(function).parameters
        assert parameters["patience"].default == 2.0
        assert "options" not in parameters


def test_pytest_hides_the_frames_of_the_kit() -> None:
    with pytest.raises(SourceContractError) as caught:
        check(Late)
    shown = {Path(str(entry.path)).name for entry in caught.traceback.filter(caught)}
    assert shown == {Path(__file__).name}


def test_exception_of_a_change_gets_the_story_as_a_note() -> None:
    def fail(_: MemoryOrigin) -> None:
        raise OSError("database is locked")

    with pytest.raises(OSError, match="database is locked") as caught:
        check(changes=[fail])
    told = "\n".join(caught.value.__notes__)
    assert "What happened:" in told
    assert "replay_source([" in told


class Hasty(PartSource):
    """Waits a millisecond and ignores a stop."""

    def wait(self) -> None:
        time.sleep(0.001)


def test_report_names_the_unchecked_stop_of_a_waiting_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_IDLE", 2.0)  # far longer than any pause of a busy machine
    sentence = "not checked: whether stop() ends a waiting poll()"
    assert sentence in str(check(Hasty, cases=5))
    heard = check(cases=5)
    assert sentence not in str(heard)
    assert heard.exercised["stops of a poll that waited"] > 0
