"""Real configurations of S3 sinks, and how a test gets one into its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

CORPUS: Final = Path(__file__).with_name("corpus")
NAMES: Final = sorted(path.stem for path in CORPUS.glob("*.json"))

_SECRETS_FOLDER = "/opt/connect/secrets"
_VARIABLES = (
    "AWS_SECRET",
    "KAFKA_API_KEY",
    "KAFKA_API_SECRET",
    "PROXY_PASSWORD",
    "REGISTRY_PASSWORD",
    "SSE_CUSTOMER_KEY",
)


def place(name: str, folder: Path) -> Path:
    (folder / "registry.properties").write_text("user.info=reader:secret-of-registry\n")
    (folder / "aws.properties").write_text("access.key=AKIAFROMFILE\nsecret.key=secret-from-file\n")
    (folder / "registry.properties").write_text("user.info=reader:secret-from-file\n")
    text = (CORPUS / f"{name}.json").read_text().replace(_SECRETS_FOLDER, str(folder))
    path = folder / f"{name}.json"
    path.write_text(text)
    return path


def settings_of(document: Mapping[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = document.get("spec", document).get("config", document)
    return inner


def change(path: Path, settings: Mapping[str, Any]) -> None:
    """Set keys in a configuration file of any form; None removes a key."""
    document = json.loads(path.read_text())
    inner = settings_of(document)
    inner.update(settings)
    for key in [key for key, value in inner.items() if value is None]:
        del inner[key]
    path.write_text(json.dumps(document))


def set_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.setenv(name, f"value-of-{name}")
