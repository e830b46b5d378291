from __future__ import annotations

import json

import pytest
from rich.text import Text

from sinksdk.plugins import checks
from tests.cli.support import Here


def test_validate_of_a_valid_configuration_exits_0_and_creates_nothing(here: Here) -> None:
    result = here.sinksdk("validate", here.config())

    assert result.exit_code == 0
    assert "it would start" in result.stdout
    assert {path.name for path in here.folder.iterdir()} <= {"linesink.py", "config.json", "__pycache__"}


@pytest.mark.parametrize(
    ("key", "query"), [("records.sql", "SELEC * FROM records"), ("records.transform", "my_flights:delayed")]
)
def test_validate_names_keys_that_only_spark_can_check(here: Here, key: str, query: str) -> None:
    path = here.config(**{key.replace(".", "_"): query})

    assert (
        f"it would start\nnot checked here: '{key}', which Spark checks when the connector starts"
        in here.sinksdk("validate", path).stdout
    )
    assert json.loads(here.sinksdk("validate", path, "--json").stdout)["unchecked"] == [key]
    assert "not checked" not in here.sinksdk("validate", here.config()).stdout


def test_validate_reports_every_problem_at_once(here: Here) -> None:
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


def test_validate_calls_the_connectors_validate(here: Here) -> None:
    result = here.sinksdk("validate", here.config(lines_per_file=13))

    assert result.exit_code == 2
    assert "'lines.per.file' is unlucky: choose another" in result.stdout


def test_unknown_keys_are_shown_with_the_nearest_known_key(here: Here) -> None:
    result = here.sinksdk("validate", here.config(lines_per_fil=5, other="x"))

    assert result.exit_code == 0
    assert (
        "unknown: no effect, perhaps misspelt\n"
        "  lines.per.fil  did you mean 'lines.per.file'?\n"
        "  other\n" in result.stdout
    )


def test_every_key_is_shown_with_its_verdict(here: Here) -> None:
    result = here.sinksdk(
        "validate", here.config(format_class="x", lines_encoding="UTF-16", lines_per_file=5)
    )

    assert result.exit_code == 2
    assert result.stdout.partition("\n\n")[2].splitlines() == [
        "unsupported: refused; what to do instead",
        "  lines.encoding  lines are UTF-8: take it out",
        "",
        "ignored: no effect here, and why",
        "  format.class  files hold plain lines",
        "",
        "own: a key that Kafka Connect does not have",
        "  out.folder",
        "  lines.per.file",
        "",
        "same: means what it means in Kafka Connect",
        "  connector.class  Java class names are accepted where a connector here replaces one",
        "  topics",
        "  name",
        "",
        "it would not start: 1 key unsupported",
    ]


def test_validate_json_has_verdicts_problems_and_warnings(here: Here) -> None:
    result = here.sinksdk("validate", here.config(lines_encoding="UTF-16", tasks_max="many"), "--json")
    found = json.loads(result.stdout)

    assert result.exit_code == 2
    assert (found["name"], found["connector.class"], found["would_start"]) == (
        "lines",
        "linesink:Sink",
        False,
    )
    assert {option["key"]: option["verdict"] for option in found["options"]} == {
        "connector.class": "same",
        "topics": "same",
        "out.folder": "own",
        "lines.encoding": "unsupported",
        "tasks.max": "same",
        "name": "same",
    }
    assert found["problems"][0] == "'lines.encoding' is unsupported: lines are UTF-8: take it out"
    assert found["problems"][1].startswith("'tasks.max': ")
    assert len(found["problems"]) == 2


def test_the_table_fits_80_columns_on_a_terminal(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    long = {"consumer.override.partition.assignment.strategy": "x", "predicates.some.type": "y"}
    config = {"name": "lines", "connector.class": "linesink:Sink", "topics": "t", "out.folder": ".", **long}

    result = here.sinksdk("validate", here.file("config.json", json.dumps(config)))

    lines = Text.from_ansi(result.stdout).plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  predicates.some.type ") for line in lines)
    assert any(
        line.startswith("  consumer.override.partition.assignme  tasks are not members") for line in lines
    )


def test_differing_defaults_are_shown_for_another_connectors_file(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "DROP_IN_NAMES", {"linesink:Sink": "lines"})

    brought = here.sinksdk("validate", here.config())
    decided = here.sinksdk("validate", here.config(lines_per_file=1))
    monkeypatch.setattr(checks, "DROP_IN_NAMES", {})
    own = here.sinksdk("validate", here.config())

    differing = "not set: the default differs from Kafka Connect's\n  lines.per.file  ten, not one\n"
    assert differing in brought.stdout
    assert "not set" not in decided.stdout + own.stdout


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "'connector.class' is required and not set; installed are s3-archiver"),
        ("nowhere:Sink", "cannot import module 'nowhere'"),
        ("linesink:Other", "module 'linesink' has no 'Other'"),
        ("linesink:no_class", "not a subclass of SinkConnector"),
        ("linesink:NoTask", "linesink:NoTask has no task_class: set it to a subclass of SinkTask"),
        ("linesink:Unfinished", "linesink:Unfinished cannot be created: RuntimeError: not today"),
        (
            "linesink:Abstract",
            "task_class AbstractTask of linesink:Abstract cannot be created: it does not impl",
        ),
        ("linesink:Wanting", "WantingTask of linesink:Wanting cannot be created without arguments: missing"),
        ("broken:Sink", "importing broken:Sink failed: SyntaxError: "),
    ],
)
def test_an_unloadable_class_does_not_hide_other_problems(here: Here, name: str | None, problem: str) -> None:
    here.file("broken.py", "class Sink(:")

    result = here.sinksdk("validate", here.config(connector_class=name, tasks_max=0))

    assert result.exit_code == 2
    assert problem in result.stdout
    assert "'tasks.max': " in result.stdout


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            'def validate(self, config): return {}["zz"]',
            "Bad.validate() failed: KeyError: 'zz' at Bad.validate (",
        ),
        (
            'def unmet(self, config): return {}["zz"]',
            "Bad.unmet() failed: KeyError: 'zz' at Bad.unmet (bad.py",
        ),
        (
            'def batch_policy(self, config): return {}["zz"]',
            "Bad.batch_policy() failed: KeyError: 'zz' at Bad.",
        ),
        (
            "def batch_policy(self, config): return 5",
            "Bad.batch_policy() returned 5; it must return a BatchP",
        ),
        ("def validate(self, config): return 5", "Bad.validate() returned 5; it must return a list of sent"),
        (
            "def validate(self, config): raise SystemExit(3)",
            "Bad.validate() failed: SystemExit: 3 at Bad.val",
        ),
        (
            "config_class = dict",
            "importing bad:Bad failed: TypeError: Bad.config_class is dict: it must be a",
        ),
        ("task_class = Task()", "importing bad:Bad failed: TypeError: Bad.task_class is an instance of type"),
    ],
)
def test_an_error_in_a_connectors_hook_names_class_and_hook(here: Here, body: str, problem: str) -> None:
    module = f"bad{abs(hash(body))}"  # Python imports a module only once per process
    here.file(f"{module}.py", f"from linesink import *\n\n\nclass Bad(Sink):\n    {body}\n")

    result = here.sinksdk("validate", here.config(connector_class=f"{module}:Bad"))

    assert result.exit_code == 2
    assert problem in " ".join(result.stdout.split()).replace(module, "bad")


def test_an_error_in_a_configurations_hook_names_the_hook(here: Here) -> None:
    here.file(
        "worried.py",
        "from linesink import *\n\n\nclass Worried(Config):\n"
        "    def warnings(self): return {}['zz']\n\n\nclass Bad(Sink):\n    config_class = Worried\n",
    )

    result = here.sinksdk("validate", here.config(connector_class="worried:Bad"))

    assert result.exit_code == 2
    assert (
        "Worried.warnings() failed: KeyError: 'zz' at Worried.warnings (worried.py, line 5)" in result.stdout
    )


def test_references_are_resolved_and_their_values_never_shown(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")

    result = here.sinksdk(
        "validate", here.config(lines_per_file="${env:SECRET}", out_folder="${env:NOWHERE}")
    )

    assert result.exit_code == 2
    assert "the environment variable NOWHERE is not set here" in result.stdout
    assert "'lines.per.file': " in result.stdout
    assert "hunter2" not in result.output


def test_a_reference_to_an_unknown_provider_is_a_problem(here: Here) -> None:
    # sinksdk lacks Connect's Vault and Kubernetes providers: their references would be used as the secret
    # itself.
    result = here.sinksdk(
        "validate", here.config(out_folder="${secrets:connect/out:folder}", format_class="${vault:x:y}")
    )

    assert result.exit_code == 0
    assert "1 warning\n" in result.stdout
    assert "'out.folder' is not resolved: ${secrets:…} names an unknown config provider" in result.stdout
    assert "connect/out" not in result.stdout


def test_an_invalid_file_is_reported_in_one_line_on_stderr(here: Here) -> None:
    result = here.sinksdk("validate", "absent.json")

    assert result.exit_code == 2
    assert result.stderr == "error: the configuration absent.json cannot be read: No such file or directory\n"
    assert "Traceback" in here.sinksdk("validate", "absent.json", "--verbose").stderr


def test_a_configuration_of_confluents_s3_connector_is_valid(here: Here) -> None:
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


S3 = {"connector.class": "s3-archiver", "topics": "flights", "s3.bucket.name": "archive", "flush.size": "5"}


@pytest.mark.parametrize("kind", ["AvroFormat", "ParquetFormat"])
def test_a_format_without_a_converter_is_valid_for_dataframes_only(here: Here, kind: str) -> None:
    path = here.file("a.json", json.dumps({"name": "a", "config": {**S3, "format.class": kind}}))
    text = here.sinksdk("validate", path)
    found = json.loads(here.sinksdk("validate", path, "--json").stdout)

    assert text.exit_code == 0
    assert "it would start only with a DataFrame's records: 'sinksdk run' refuses it" in " ".join(
        text.stdout.split()
    )
    assert "'value.converter' is not set" in found["unmet"][0]
    assert found["problems"] == []


def test_run_refuses_a_format_without_a_converter(here: Here) -> None:
    path = here.file("a.json", json.dumps({"name": "a", "config": {**S3, "format.class": "AvroFormat"}}))
    result = here.sinksdk("run", path, "--topic-directory", here.topic())

    assert result.exit_code == 2
    assert "'value.converter' is not set" in result.stderr


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("key.converter.schema.registry.urls", "key.converter.schema.registry.url"),
        ("value.converter.schemas.enabled", "value.converter.schemas.enable"),
        ("key.converter.converter.encodings", "key.converter.converter.encoding"),
    ],
)
def test_a_misspelt_key_of_a_converter_names_that_converters_key(here: Here, key: str, near: str) -> None:
    converters = {"key.converter": "json", "value.converter": "json", "store.kafka.keys": "true"}
    raw = {**S3, **converters, "format.class": "JsonFormat", key: "x"}
    path = here.file("a.json", json.dumps({"name": "a", "config": raw}))
    found = json.loads(here.sinksdk("validate", path, "--json").stdout)
    (option,) = (one for one in found["options"] if one["key"] == key)

    assert option["verdict"] == "ignored" or option["why"] == f"did you mean '{near}'?"
    assert "value.converter" not in option["why"] or key.startswith("value.converter")
