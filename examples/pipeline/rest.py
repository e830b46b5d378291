"""The two requests of Connect's REST interface that are needed here."""

import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

PATIENCE = 30.0  # seconds for an answer
REFUSED = 400


class Rest:
    """A server. What is asked of one that does not answer raises OSError."""

    def __init__(self, url: str) -> None:
        self.url = url

    def configure(self, config: Mapping[str, str]) -> None:
        """Create a connector; one that has this configuration is left as it is."""
        try:
            self.ask("PUT", f"/connectors/{config['name']}/config", config)
        except HTTPError as error:
            if error.code == REFUSED:
                sys.exit(f"{config['name']} is refused: {error.read().decode()}")
            raise

    def end_of_topics(self, sink: Mapping[str, str]) -> int:
        """How many offsets there were when a sink looked last."""
        partitions = self.ask("GET", f"/progress/{sink['name']}")["partitions"]
        return sum(partition["end"] or 0 for partition in partitions)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - http
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - the same
            return json.load(answer)
