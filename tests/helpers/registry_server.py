"""A schema registry in this process with the part of Confluent's HTTP interface that its client uses."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Reply = tuple[int, dict[str, Any]]

_NO_SUBJECT: Reply = (404, {"error_code": 40401, "message": "Subject not found."})
_NO_VERSION: Reply = (404, {"error_code": 40402, "message": "Version not found."})
_NO_SCHEMA: Reply = (404, {"error_code": 40403, "message": "Schema not found"})
_NO_PATH: Reply = (404, {"error_code": 404, "message": "HTTP 404 Not Found"})


class RegistryServer:
    # ``failing`` is the status of every response; 0 closes the connection instead. ``credentials`` is
    # ``user:password``.
    def __init__(self) -> None:
        self.failing: int | None = None
        self.credentials: str | None = None
        self.requests: list[str] = []
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = defaultdict(list)
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                if registry.failing == 0:
                    self.close_connection = True
                    return
                self.respond(
                    *registry.reply(unquote(urlsplit(self.path).path), self.headers["Authorization"])
                )

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                subject = unquote(urlsplit(self.path).path).split("/")[2]
                schema_id = registry.register(subject, body.pop("schema"), **body)
                self.respond(200, {"id": schema_id})

            def respond(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def register(
        self, subject: str, schema: str, references: Sequence[dict[str, Any]] = (), **more: Any
    ) -> int:
        entry = {"schema": schema, **more, **({"references": list(references)} if references else {})}
        found = [schema_id for schema_id, known in self._schemas.items() if known == entry]
        schema_id = found[0] if found else len(self._schemas) + 1
        self._schemas[schema_id] = entry
        if schema_id not in self._subjects[subject]:
            self._subjects[subject].append(schema_id)
        return schema_id

    @staticmethod
    def guid(schema_id: int) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(schema_id)))

    def reply(self, path: str, authorization: str | None) -> Reply:
        if self.failing is not None:
            return self.failing, {"error_code": self.failing * 100 + 1, "message": "told to fail"}
        if self.credentials is not None and authorization != _basic(self.credentials):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match path.strip("/").split("/"):
            case ["schemas", "ids" | "guids" as kind, text]:
                name = str if kind == "ids" else self.guid
                schema = {name(number): schema for number, schema in self._schemas.items()}.get(text)
                return (200, schema) if schema else _NO_SCHEMA
            case ["subjects"]:
                return 200, {"subjects": sorted(self._subjects)}
            case ["subjects", subject, "versions", text]:
                latest = len(self._subjects[subject]) if subject in self._subjects else 0
                return self._version(subject, latest if text == "latest" else int(text))
        return _NO_PATH

    def _version(self, subject: str, version: int) -> Reply:
        if subject not in self._subjects:
            return _NO_SUBJECT
        ids = self._subjects[subject]
        if not 0 < version <= len(ids):
            return _NO_VERSION
        schema_id = ids[version - 1]
        return 200, {"subject": subject, "version": version, "id": schema_id, **self._schemas[schema_id]}

    @contextmanager
    def running(self) -> Iterator[RegistryServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def _basic(credentials: str) -> str:
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"
