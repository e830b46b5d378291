from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.support import Here

WORKER = """\
bootstrap.servers=kafka:9092
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""
AIVEN: dict[str, Any] = {
    "name": "archive",
    "config": {
        "connector.class": "io.aiven.kafka.connect.s3.AivenKafkaConnectS3SinkConnector",
        "topics": "orders",
        "aws.s3.bucket.name": "bucket",
        "format.output.type": "parquet",
        "file.max.records": "500",
    },
}


def test_convert_drops_keys_without_effect_with_a_note(here: Here) -> None:
    result = here.sinksdk("convert", here.config(format_class="x", lines_per_file=5, lines_per_fil=6))

    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["lines.per.file"] == "5"
    assert printed["connector.class"] == "linesink:Sink"
    assert not printed.keys() & {"format.class", "lines.per.fil"}
    assert "  - 'format.class' has no effect here: files hold plain lines\n" in result.stderr
    assert "  - 'lines.per.fil' is not known to this connector and has no effect;" in result.stderr


def test_convert_keeps_refused_keys_and_exits_2(here: Here) -> None:
    result = here.sinksdk("convert", here.config(lines_encoding="UTF-16"))

    assert result.exit_code == 2
    assert json.loads(result.stdout)["lines.encoding"] == "UTF-16"
    assert "problems\n  - 'lines.encoding' is unsupported: lines are UTF-8: take it out\n" in result.stderr


def test_convert_reports_each_problem_of_validate_once(here: Here) -> None:
    result = here.sinksdk("convert", here.config(lines_per_file=13))

    assert result.exit_code == 2
    assert result.stderr.count("'lines.per.file' is unlucky: choose another") == 1


def test_convert_notes_warnings_of_validate(here: Here) -> None:
    # Without the worker's converters the result would start and archive nothing.
    keys = {"connector.class": "s3-archiver", "topics": "t", "s3.bucket.name": "bucket", "flush.size": "5"}
    named = {"name": "archive", "config": {**keys, "format.class": "AvroFormat"}}
    result = here.sinksdk("convert", here.file("avro.json", json.dumps(named)))

    assert result.exit_code == 0
    (note,) = [line for line in result.stderr.splitlines() if "'value.converter' is not set" in line]
    assert note.startswith("  - ")


@pytest.mark.parametrize("name", ["AivenKafkaConnectS3SinkConnector", "S3SinkConnector"])
def test_convert_of_its_own_output_changes_nothing(here: Here, name: str) -> None:
    # Both names of Aiven's class are unknown to sinksdk until they are converted.
    written = {**AIVEN, "config": {**AIVEN["config"], "connector.class": f"io.aiven.kafka.connect.s3.{name}"}}
    file = here.file("aiven.json", json.dumps(written))
    first = here.sinksdk("convert", file)
    refused = here.sinksdk("validate", file)
    assert refused.exit_code == 2
    assert "Aiven's sink has other keys" in refused.output
    again = here.sinksdk("convert", here.file("converted.json", first.stdout))

    assert (first.exit_code, again.exit_code) == (0, 0)
    assert json.loads(first.stdout)["connector.class"] == "s3-archiver"
    assert json.loads(again.stdout) == json.loads(first.stdout)


def test_convert_uses_the_workers_converters_by_default(here: Here) -> None:
    worker = here.file("worker.properties", WORKER)
    own = {"value_converter": "string"}

    without = json.loads(here.sinksdk("convert", here.config(), "--worker", worker).stdout)
    with_own = json.loads(here.sinksdk("convert", here.config(**own), "--worker", worker).stdout)

    assert without["value.converter"] == "org.apache.kafka.connect.json.JsonConverter"
    assert without["value.converter.schemas.enable"] == "false"
    assert with_own["value.converter"] == "string"
    assert "value.converter.schemas.enable" not in with_own
    assert "bootstrap.servers" not in without


def test_convert_of_a_missing_class_exits_2(here: Here) -> None:
    result = here.sinksdk("convert", here.config(connector_class="io.example.Sink"))

    assert result.exit_code == 2
    assert "installed connectors are s3-archiver" in result.stderr
