"""Secrets in the log lines of a process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sinksdk.support.confidential import (
    HIDDEN,
    Secrets,
    passwords_in,
    sounds_secret,
    without_passwords_in_urls,
)

pytestmark = pytest.mark.slow

PARSED = """
from pydantic import SecretStr
from sinksdk import ConnectorConfig
class Config(ConnectorConfig):
    password: SecretStr
config = Config.parse({"name": "c", "connector.class": "x:Y", "topics": "t", "password": "hunter2hunter2"})
secret = config.password.get_secret_value()
log = logging.getLogger("my_sink")
"""
EMBEDDED = f"""
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(name)s %(message)s")
{PARSED}
log.info("login with %s", config.password.get_secret_value())
log.info("a percent sign, %d and hunter2hunter2", 7)
try:
    raise ValueError("no login: " + secret)
except ValueError:
    log.exception("stop failed")
log.info("as before: %(key)s", {{"key": 1}})
"""
OWN_FORMATTER = f"""
import json, logging, sys
class Json(logging.Formatter):
    def format(self, record):
        trace = self.formatException(record.exc_info)
        return json.dumps({{"kind": record.exc_info[0].__name__, "error": repr(record.exc_info[1]), "trace": trace}})
logging.basicConfig(stream=sys.stdout)
logging.getLogger().handlers[0].setFormatter(Json())
{PARSED}
class LoginError(OSError):
    def __init__(self, user, password):
        super().__init__(7, password)
        self.add_note("tried " + password)
def log_in():
    try:
        {{}}[secret]
    except KeyError as error:
        raise LoginError("u", secret) from error
try:
    try:
        log_in()
    except LoginError as error:
        raise ExceptionGroup("several " + secret, [error, ValueError("harmless")])
except ExceptionGroup:
    log.exception("stop failed")
first = ValueError(secret)
first.__context__ = ExceptionGroup("several", [first])
class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError(secret)
class Quiet(Exception):
    def __str__(self):
        return "quiet"
for error in (UnicodeDecodeError("utf-8", secret.encode(), 0, 1, secret), first, Unprintable(secret), Quiet(secret)):
    log.error("failed", exc_info=error)
try:
    raise ValueError("harmless")
except ValueError as error:
    log.exception("as before")
    assert error.args == ("harmless",)
"""
EXTRA = f"""
import logging, sys
format = "%(message)s url=%(url)s more=%(more)s where=%(where)s"
logging.basicConfig(level="INFO", stream=sys.stdout, format=format)
{PARSED}
class Address:
    def __str__(self):
        return "db://u:" + secret + "@h"
more = {{"urls": ["db://u:" + secret + "@h", 7]}}
log.info("x", extra={{"url": "db://u:" + secret + "@h", "more": more, "where": Address()}})
assert more["urls"][0] == "db://u:" + secret + "@h"
log.info("y", extra={{"url": "db://h", "more": 7, "where": None}})
log.handle(logging.makeLogRecord({{"msg": "z " + secret, "url": 1, "more": 2, "where": 3, "levelno": 30}}))
"""
ARGUMENTS = f"""
import logging, sys
class Arguments(logging.Formatter):
    def format(self, record):
        return f"{{record.msg}} {{record.args}}"
logging.basicConfig(level="INFO", stream=sys.stdout)
logging.getLogger().handlers[0].setFormatter(Arguments())
{PARSED}
log.info("login", {{"password": secret}})
log.info("too many", secret)
log.info({{"event": "login", "password": secret}})
"""
OWN_FACTORY = f"""
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s %(mark)s")
{PARSED}
class Own(logging.LogRecord):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.mark = "own"
logging.setLogRecordFactory(Own)
log.info("login with %s", secret)
"""


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_secrets_are_hidden_without_sinksdks_log_formatter() -> None:
    lines = printed(EMBEDDED)
    assert "hunter2" not in lines
    assert "my_sink login with ********" in lines
    assert "my_sink a percent sign, 7 and ********" in lines
    assert "ValueError: no login: ********" in lines
    assert "Traceback" in lines
    assert "my_sink as before: 1" in lines


def test_secrets_are_hidden_in_exceptions_of_log_records() -> None:
    first, *others, last = map(json.loads, printed(OWN_FORMATTER).splitlines())
    assert "hunter2" not in f"{first} {others}"
    assert [each["kind"] for each in others] == ["UnicodeDecodeError", "ValueError", "Unprintable", "Quiet"]
    assert first["kind"] == "ExceptionGroup"
    for line in (
        "ExceptionGroup: several ******** (2 sub-exceptions)",
        "KeyError: '********'",
        "The above exception was the direct cause of the following exception:",
        "in log_in",
        "LoginError: [Errno 7] ********",
        "tried ********",
        "ValueError: harmless",
    ):
        assert line in first["trace"]
    assert last["error"] == "ValueError('harmless')"


def test_secrets_are_hidden_in_extra_fields_of_log_records() -> None:
    first, second, third = printed(EXTRA).splitlines()
    address = "db://u:********@h"
    assert first == f"x url={address} more={{'urls': ['{address}', 7]}} where={address}"
    assert second == "y url=db://h more=7 where=None"
    assert third == "z ******** url=1 more=2 where=3"


DEEP = f"""
import json, logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(more)s")
{PARSED}
more = secret
for _ in range(12):
    more = [{{"a": more}}]
log.info("x", extra={{"more": more}})
log.info("x", extra={{"more": [[[[[[[[[["harmless"]]]]]]]]]]}})
more.append(more)
log.info("x", extra={{"more": more}})
"""


def test_secrets_are_hidden_in_nested_containers() -> None:
    deep, harmless, cyclic = printed(DEEP).splitlines()
    assert "hunter2" not in f"{deep} {cyclic}"
    assert "********" in deep
    assert harmless == "[[[[[[[[[['harmless']]]]]]]]]]"


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("s3.credentials.provider.secret.access.key", True),
        ("config.providers.vault.param.token", True),
        ("aws.credentialsProvider.password", True),
        ("s3.credentials.provider.class", False),
        ("s3.credentials.provider.sts.role.arn", False),
        ("s3.credentials.provider.sts.role.external.id", False),
        ("aws.credentials.provider", False),
        ("config.providers", False),
        ("config.providers.secretManager.class", False),
        ("config.providers.secretManager.param.aws.region", False),
        ("basic.auth.credentials.source", False),
        ("transforms.token.type", False),
    ],
)
def test_key_after_a_provider_may_be_secret(key: str, *, is_secret: bool) -> None:
    assert sounds_secret(key) is is_secret


@pytest.mark.parametrize(
    "text",
    [
        "a%2Fsecret+with+%26",  # the secret as it is quoted in a form
        "a/secret%20with%20%26",  # the secret as it is quoted in a path
        "a%2Fsecret%20with%20%26",
    ],
)
def test_secrets_are_hidden_in_url_encoding(text: str) -> None:
    secrets = Secrets()
    secrets.add({"a/secret with &": HIDDEN})
    assert secrets.hide(f"token={text}!") == f"token={HIDDEN}!"


def test_secrets_are_hidden_in_json_encoding() -> None:
    secrets = Secrets()
    secrets.add({'grün "quoted"': HIDDEN})
    for ascii_only in (True, False):
        line = json.dumps({"password": 'grün "quoted"'}, ensure_ascii=ascii_only)
        assert secrets.hide(line) == f'{{"password": "{HIDDEN}"}}'


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("ScramLoginModule required username=u password = 'hunter2hunter2';", "hunter2hunter2"),
        ("PlainLoginModule required username=u password=hunter2hunter2;", "hunter2hunter2"),
        ('PlainLoginModule required password="hunter\\"2hunter2" username=u;', 'hunter"2hunter2'),
        ("http://u:hunter2@hunter2@host/", "hunter2@hunter2"),
        ("amqp://u:hunter2hunter2@host,u:another@other/", "hunter2hunter2"),
    ],
)
def test_passwords_in_jaas_and_urls_are_found(text: str, password: str) -> None:
    assert password in passwords_in(text)
    assert "hunter2" not in without_passwords_in_urls(text) or "://" not in text


def test_secrets_are_hidden_in_unused_log_arguments() -> None:
    assert printed(ARGUMENTS).splitlines() == [
        "login {'password': '********'}",
        "too many ('********',)",
        "{'event': 'login', 'password': '********'} ()",
    ]


def test_secrets_are_hidden_with_a_later_log_record_factory() -> None:
    assert printed(OWN_FACTORY) == "login with ******** own\n"
