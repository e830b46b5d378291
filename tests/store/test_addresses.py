"""URLs of stores: their meaning, their errors, and the parts that are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinksdk import ConfigException
from sinksdk.store import open_store
from sinksdk.store.addresses import S3Address
from tests.helpers.stores import sql_address

HARD = "p@ss/w:rd?&=%41+#"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HARD", HARD)
    monkeypatch.setenv("HOST", "db.example")
    monkeypatch.setenv("PORT", "6543")
    (tmp_path / "secrets").write_text(f"password={HARD}\n")


# -- S3 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://bucket", S3Address("bucket")),
        ("s3://bucket/", S3Address("bucket")),
        ("s3://bucket/a/b/", S3Address("bucket", "a/b")),
        ("s3://bucket/a%20b?region=eu-west-1", S3Address("bucket", "a b", region="eu-west-1")),
        (
            "s3://bucket/p?endpoint=http://127.0.0.1:9000",
            S3Address("bucket", "p", endpoint="http://127.0.0.1:9000", is_path_style=True),
        ),
        (
            "s3://bucket/p?endpoint=https://minio&path_style=false",
            S3Address("bucket", "p", endpoint="https://minio"),
        ),
        ("s3://bucket/p?path_style=TRUE", S3Address("bucket", "p", is_path_style=True)),
        (
            "s3://bucket/p?access_key_id=AK&secret_access_key=a/b+c%26d&session_token=t==",
            S3Address("bucket", "p", access_key_id="AK", secret_access_key="a/b+c&d", session_token="t=="),
        ),
        (
            "s3://${env:HOST}/p?access_key_id=AK&secret_access_key=${env:HARD}",
            S3Address("db.example", "p", access_key_id="AK", secret_access_key=HARD),
        ),
    ],
)
def test_s3_urls_are_parsed(url: str, parts: S3Address) -> None:
    assert S3Address.parse(url) == parts


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://", "must name its bucket"),
        ("s3:///prefix", "must name its bucket"),
        ("s3://b?endpont=http://x", "no option 'endpont'; did you mean 'endpoint'?"),
        ("s3://b?q=1", "no option 'q'; there are endpoint, region, path_style, access_key_id,"),
        ("s3://b?endpoint=localhost:9000", "must begin with http:// or https://"),
        ("s3://b?path_style=yes", "must be true or false, not 'yes'"),
        ("s3://b?access_key_id=AK", "needs both 'access_key_id' and 'secret_access_key'"),
        ("s3://b?secret_acces_key=secret", "did you mean 'secret_access_key'?"),
        ("s3://b?secret_access_key=${env:NO_SUCH}", "the environment variable NO_SUCH is not set here"),
    ],
)
def test_invalid_s3_urls_are_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigException) as caught:
        open_store(url)
    assert problem in str(caught.value)
    assert "=secret" not in str(caught.value)


def test_s3_urls_mask_their_secrets() -> None:
    address = S3Address.parse(
        "s3://bucket/a b?endpoint=http://h:1&region=r&path_style=false&access_key_id=AK"
        "&secret_access_key=${env:HARD}&session_token=token"
    )
    shown = (
        "s3://bucket/a%20b?endpoint=http://h:1&region=r&path_style=false&access_key_id=AK"
        "&secret_access_key=***&session_token=***"
    )
    assert str(address) == repr(address) == f"{address}" == shown


@pytest.mark.parametrize(
    "url",
    ["s3://b", "s3://b/a/b", "s3://b/a%20b?region=r", "s3://b/p?endpoint=http://h:1&path_style=false"],
)
def test_s3_urls_without_secrets_are_shown_unchanged(url: str) -> None:
    assert str(S3Address.parse(url)) == url


# -- SQL ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_urls_use_psycopg(scheme: str) -> None:
    url = sql_address(f"{scheme}://user@host:5432/db?sslmode=require")
    assert url.render_as_string() == "postgresql+psycopg://user@host:5432/db?sslmode=require"


def test_a_password_may_contain_any_character(tmp_path: Path) -> None:
    url = sql_address(
        f"postgresql://${{env:HARD}}:${{file:{tmp_path}/secrets:password}}@${{env:HOST}}:${{env:PORT}}/d"
    )
    assert (url.username, url.password, url.host, url.port, url.database) == (
        HARD,
        HARD,
        "db.example",
        6543,
        "d",
    )
    assert HARD not in url.render_as_string()


def test_a_complete_url_may_be_a_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STORE", f"sqlite:///{tmp_path}/state.db")
    open_store("${env:STORE}", create=True).put("k", {"x": 1}, None)
    assert open_store(f"sqlite:///{tmp_path}/state.db").list("") == ["k"]


def test_a_file_path_may_contain_a_reference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    open_store("sqlite:///${env:FOLDER}/state.db", create=True)
    assert (tmp_path / "state.db").exists()


@pytest.mark.parametrize("url", ["mysql://u:secret@h/db", "nonsense://u:secret@h/db"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(
        ConfigException, match="postgresql://USER@HOST/DATABASE or s3://BUCKET/PREFIX"
    ) as caught:
        open_store(url)
    assert "secret" not in str(caught.value)
