"""A local S3 that survives kill -9: ``python -m examples.pipeline.s3 PORT FILE``.

It is moto, which keeps everything in memory; this wrapper writes all of it to a file before it responds to a
request that has changed something. Good enough for an example's few megabytes.
"""

import logging
import pickle
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

READS = {"GET", "HEAD"}


class DurableS3:
    def __init__(self, file: Path) -> None:
        self.app = DomainDispatcherApplication(create_backend_app)
        self.backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        self.file = file
        self.lock = threading.Lock()
        if file.exists():
            self.backend.buckets, owners = pickle.loads(file.read_bytes())  # noqa: S301 - our own file
            s3_backends.bucket_accounts.update(owners)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self.lock:
            answer = list(self.app(environ, start_response))
            if environ["REQUEST_METHOD"] not in READS:
                self.save()
        return answer

    def save(self) -> None:
        written = self.file.with_suffix(".tmp")
        written.write_bytes(pickle.dumps((self.backend.buckets, s3_backends.bucket_accounts)))
        written.replace(self.file)


def main(port: str, file: str) -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise one line per request
    s3 = DurableS3(Path(file))
    make_server("127.0.0.1", int(port), s3, threaded=True, request_handler=MotoRequestHandler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
