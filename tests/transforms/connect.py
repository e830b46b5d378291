"""Results of a real Connect worker: ``python -m tests.transforms.connect`` writes ``connect_answers.json``."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from benchmarks.kafka_connect.worker import Worker, running_worker, worker_jars
from tests.kafka.broker import serving
from tests.kafka.topics import consume, create_topic
from tests.transforms.connect_cases import CHAINS, PARTITIONS, TOPICS, config_of, sent

ANSWERS: Final = Path(__file__).with_name("connect_answers.json")
_JAVA: Final = Path(__file__).with_name("java")
_PATIENCE: Final = 120.0  # seconds
_BROKER: Final = {"log.retention.ms": "-1"}
"""Records, and so their dead letters, are older than a topic's default retention."""
_CONTEXT: Final = "__connect.errors."


def run_worker() -> str:
    """Return the records that sinks receive, and dead letters, by chain and topic, as JSON.

    Raises:
        MavenError: Connect's jars cannot be downloaded.
    """
    worker_jars()
    with tempfile.TemporaryDirectory(prefix="sinksdk-connect-") as name, serving(_BROKER) as broker:
        folder = Path(name)
        compile_sink(folder / "classes")
        for topic in TOPICS:
            create_topic(broker.bootstrap, topic, PARTITIONS)
            _produce(broker.bootstrap, topic)
        settings = {"plugin.discovery": "service_load"}
        with running_worker(folder, broker.bootstrap, settings, classpath=[folder / "classes"]) as worker:
            results = _results(worker, broker.bootstrap, folder)
    lines = [
        f"{json.dumps(chain)}:{{\n"
        + ",\n".join(f" {json.dumps(topic)}:{_lines(answer)}" for topic, answer in by_topic.items())
        + "}"
        for chain, by_topic in results.items()
    ]
    return "{" + ",\n".join(lines) + "}\n"


def _lines(answer: dict[str, Any]) -> str:
    compact = {"separators": (",", ":"), "sort_keys": True}
    if "refused" in answer:
        return json.dumps(answer, **compact)
    records = ",\n  ".join(json.dumps(record, **compact) for record in answer["records"])
    return f'{{"letters":{json.dumps(answer["letters"])},"records":[\n  {records}]}}'


def stored_results() -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = json.loads(ANSWERS.read_text())
    return results


def compile_sink(classes: Path) -> None:
    """Compile the sink that records its input, as a plugin."""
    services = classes / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "org.apache.kafka.connect.sink.SinkConnector").write_text("RecordingSink\n")
    jars = ":".join(map(str, worker_jars()))
    sources = [str(_JAVA / "Answers.java"), str(_JAVA / "RecordingSink.java")]
    subprocess.run(["javac", "-nowarn", "-d", str(classes), "-cp", jars, *sources], check=True)


def _produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(PARTITIONS):
        for key, value, timestamp, headers in sent(topic, partition):
            producer.produce(
                topic, value, key, partition=partition, timestamp=timestamp, headers=list(headers)
            )
    assert producer.flush(_PATIENCE) == 0


def _results(worker: Worker, bootstrap: str, folder: Path) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {chain: {} for chain in CHAINS}
    for chain in CHAINS:
        for topic in TOPICS:
            name = f"{chain}-{topic}"
            config = {"connector.class": "RecordingSink", "file": str(folder / name)}
            try:
                worker.start(name, {**config, **config_of(chain, topic), "name": name})
            except HTTPError as error:
                results[chain][topic] = {"refused": json.loads(error.read())["message"]}
    for chain, by_topic in results.items():
        for topic in TOPICS:
            if topic not in by_topic:
                by_topic[topic] = _result(worker, bootstrap, folder / f"{chain}-{topic}", chain, topic)
    return results


def _result(worker: Worker, bootstrap: str, file: Path, chain: str, topic: str) -> dict[str, Any]:
    _await_end(worker, bootstrap, file.name, topic)
    if failed := worker.failed(file.name):
        causes = [line for line in failed[0].splitlines() if "Exception: " in line]
        return {"refused": causes[-1].partition("Exception: ")[2]}
    lines = file.read_text().splitlines() if file.exists() else []
    records = sorted(map(json.loads, lines), key=lambda record: (record["partition"], record["offset"]))
    letters = []
    letters_topic = config_of(chain, topic)["errors.deadletterqueue.topic.name"]
    for letter in consume(bootstrap, letters_topic):
        headers = {name: value.decode() for name, value in letter.headers if value and _CONTEXT in name}
        place = [int(headers[_CONTEXT + name]) for name in ("partition", "offset")]
        letters.append([*place, headers[f"{_CONTEXT}stage"]])
    return {"records": records, "letters": sorted(letters)}


def _await_end(worker: Worker, bootstrap: str, name: str, topic: str) -> None:
    """Wait until a connector has committed all of its topic, or failed."""
    ends = {partition: len(sent(topic, partition)) for partition in range(PARTITIONS)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [KafkaPartition(topic, partition) for partition in ends]
    group = f"connect-{name}"
    deadline = time.monotonic() + _PATIENCE
    places: object = "nothing is committed"
    while time.monotonic() < deadline:
        if worker.failed(name):
            return
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
        try:
            places = found[group].result().topic_partitions
        except KafkaException as error:  # a broker that has just started loads its offsets first
            if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                raise
        else:
            if {place.partition: place.offset for place in places} == ends:
                return
        time.sleep(0.1)
    raise TimeoutError(f"{name}: {places}; {worker.log.read_text()[-3000:]}")


if __name__ == "__main__":
    ANSWERS.write_text(run_worker())
