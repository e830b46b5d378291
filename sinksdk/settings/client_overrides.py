"""Kafka client properties that a connector's configuration cannot override, and keys that name files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from sinksdk.compatibility import Rules, Verdict
from sinksdk.settings.addresses import local_path
from sinksdk.settings.job import DEAD_LETTER_DIRECTORY
from sinksdk.support.jaas import jaas_options

# A user who creates connectors over REST must not run code in the server, nor use files of its disk.
PREFIXES: Final = ("consumer.override.", "producer.override.", "admin.override.")
_LIBRDKAFKA: Final = "librdkafka."
_LOADED: Final = "it loads a library into the process"
_CODE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "plugin.library.paths": _LOADED,
        "sasl.kerberos.kinit.cmd": "it is a command that the client runs",
        "ssl.engine.location": _LOADED,
        "ssl.providers": _LOADED,
    }
)
_HOW: Final = "only the client properties of the process (--kafka-config) may contain it"
_KINIT_ARGUMENTS: Final = ("sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.service.name")
_HARMLESS: Final = re.compile(r"(?!-)[\w./@:=-]*")  # kinit would take -c/path as the file to write
_FILES: Final = re.compile(
    r"(?:consumer|producer|admin)\.override\..*\.(?:location|file|keytab)|(?:key|value)\.converter\..*\.location"
)
# Kerberos' prefixes of a key table's path, which would make it look relative.
_KEY_TABLE: Final = re.compile(r"^(?:WR)?FILE:")

# Verdicts that precede those of any connector.
OVERRIDE_RULES: Final[Rules] = MappingProxyType(
    {
        f"{prefix}{before}{name}": Verdict.unsupported(f"{why}; {_HOW}")
        for prefix in PREFIXES
        for before in ("", _LIBRDKAFKA)
        for name, why in _CODE.items()
    }
)


def override_problems(overrides: Mapping[str, str], translated: Mapping[str, str]) -> list[str]:
    problems = [
        f"'{key}' cannot be set by a connector's configuration: {_CODE[name]}; {_HOW}"
        for key, text in overrides.items()
        if (name := key.removeprefix(_LIBRDKAFKA)) in _CODE and text.strip()
    ]
    if any("kerberos" in key or key == "sasl.jaas.config" for key in overrides):
        problems += [
            f"'{name}' has characters that are special in the shell to which librdkafka passes it: {_HOW}"
            for name in _KINIT_ARGUMENTS
            if not _HARMLESS.fullmatch(translated.get(name, ""))
        ]
    return problems


def local_files(key: str, text: str) -> Iterator[str]:
    if key == DEAD_LETTER_DIRECTORY and text.strip():
        with suppress(ValueError):  # ErrorSettings reports this error
            yield local_path(text)
    # With "probe" librdkafka searches the system's certificates.
    if _FILES.fullmatch(key) and text.strip() and text != "probe":
        yield _KEY_TABLE.sub("", text) if key.endswith(".keytab") else text
    if key.startswith(PREFIXES) and key.endswith(".sasl.jaas.config"):
        yield from (_KEY_TABLE.sub("", value) for option, value in jaas_options(text) if option == "keyTab")
