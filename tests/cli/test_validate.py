from __future__ import annotations

import pytest

from tests.cli.support import Here


def test_a_configuration_that_would_start_exits_0(here: Here) -> None:
    """Its connector from the working directory is found, and nothing is created."""
    result = here.sinksdk("validate", here.config())

    assert result.exit_code == 0
    assert "it would start" in result.stdout
    assert {path.name for path in here.folder.iterdir()} <= {"linesink.py", "config.json", "__pycache__"}


def test_every_problem_is_told_at_once(here: Here) -> None:
    """Fields, missing keys, and the file's own form; exit code 2."""
    path = here.file(
        "config.json",
        '{"name": "a", "config": {"connector.class": "linesink:Sink", "topics": "t", "name": "b", '
        '"tasks.max": "many", "lines.per.file": 0}}',
    )

    result = here.sinksdk("validate", path)

    assert result.exit_code == 2
    assert "4 problems" in result.stdout
    for key in ("the name is 'a'", "'tasks.max': ", "'lines.per.file': ", "'out.folder' is required"):
        assert f"  - {key}" in result.stdout


def test_what_the_connector_itself_objects_to_is_a_problem(here: Here) -> None:
    """``Connector.validate`` is asked."""
    result = here.sinksdk("validate", here.config(lines_per_file=13))

    assert result.exit_code == 2
    assert "'lines.per.file' is unlucky: choose another" in result.stdout


def test_unknown_keys_are_warnings_with_the_nearest_known_one(here: Here) -> None:
    """They keep nothing from starting."""
    result = here.sinksdk("validate", here.config(lines_per_fil=5, other="x"))

    assert result.exit_code == 0
    assert "2 warnings" in result.stdout
    assert (
        "'lines.per.fil' is not known to this connector and has no effect; did you mean 'lines.per.file'?\n"
        in (result.stdout)
    )
    assert "'other' is not known to this connector and has no effect\n" in result.stdout


def test_keys_of_others_that_do_nothing_here_are_named_with_their_reason(here: Here) -> None:
    """They are no unknown keys."""
    result = here.sinksdk("validate", here.config(format_class="x"))

    assert result.exit_code == 0
    assert "'format.class' has no effect here: files hold plain lines" in result.stdout
    assert "warning" not in result.stdout


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "'connector.class' is required and not set; installed are s3-archiver"),
        ("nowhere:Sink", "no module 'nowhere' can be imported"),
        ("linesink:Other", "module 'linesink' has no 'Other'"),
        ("linesink:no_class", "not a subclass of SinkConnector"),
        ("linesink:NoTask", "linesink:NoTask names no task_class"),
        ("linesink:Unfinished", "linesink:Unfinished cannot be created: RuntimeError: not today"),
        ("broken:Sink", "importing broken:Sink failed: SyntaxError: "),
    ],
)
def test_a_connector_that_cannot_be_had_is_one_problem_among_the_others(
    here: Here, name: str | None, problem: str
) -> None:
    """What all connectors have in common is checked all the same."""
    here.file("broken.py", "class Sink(:")

    result = here.sinksdk("validate", here.config(connector_class=name, tasks_max=0))

    assert result.exit_code == 2
    assert problem in result.stdout
    assert "'tasks.max': " in result.stdout


def test_references_are_resolved_and_their_values_never_shown(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is not set is a problem; a bad value behind one is not echoed."""
    monkeypatch.setenv("SECRET", "hunter2")

    result = here.sinksdk(
        "validate", here.config(lines_per_file="${env:SECRET}", out_folder="${env:NOWHERE}")
    )

    assert result.exit_code == 2
    assert "the environment variable NOWHERE is not set here" in result.stdout
    assert "'lines.per.file': " in result.stdout
    assert "hunter2" not in result.output


def test_a_file_that_is_none_is_an_error_on_stderr(here: Here) -> None:
    """One line, no stack trace; with ``--verbose`` there is one."""
    result = here.sinksdk("validate", "absent.json")

    assert result.exit_code == 2
    assert result.stderr == "error: the configuration absent.json cannot be read: No such file or directory\n"
    assert "Traceback" in here.sinksdk("validate", "absent.json", "--verbose").stderr


def test_an_archiver_configuration_of_confluents_is_understood(here: Here) -> None:
    """Its class name means the archiver; what cannot be done is a problem, what does nothing is named."""
    config = here.config(
        connector_class="io.confluent.connect.s3.S3SinkConnector",
        out_folder=None,
        format_class="io.confluent.connect.s3.format.avro.AvroFormat",
        flush_size=1000,
        s3_bucket_name="archive",
        s3_region="eu-central-1",
        storage_class="io.confluent.connect.s3.storage.S3Storage",
    )

    result = here.sinksdk("validate", config)

    assert result.exit_code == 0, result.output
    assert "it would start" in result.stdout
