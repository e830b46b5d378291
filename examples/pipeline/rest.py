"""The requests of Connect's REST interface that the pipeline needs."""

import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TIMEOUT = 30.0  # seconds
REFUSED = 400


class Rest:
    """A client of one server. Raises OSError while the server does not respond."""

    def __init__(self, url: str) -> None:
        self.url = url

    def configure(self, config: Mapping[str, str]) -> None:
        """Create a connector; one with this configuration is left unchanged."""
        try:
            self.request("PUT", f"/connectors/{config['name']}/config", config)
        except HTTPError as error:
            if error.code == REFUSED:
                sys.exit(f"{config['name']}: the configuration is invalid: {error.read().decode()}")
            raise

    def end_of_topics(self, sink: Mapping[str, str]) -> int:
        """Return the sum of end offsets at the sink's last poll."""
        partitions = self.request("GET", f"/progress/{sink['name']}")["partitions"]
        return sum(partition["end"] or 0 for partition in partitions)

    def request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        prepared = Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - http
        with urlopen(prepared, timeout=TIMEOUT) as response:  # noqa: S310 - the same
            return json.load(response)
