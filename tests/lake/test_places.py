"""Where the files of a Delta table are written: where its log is, by the same options."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from pyarrow import fs as pa_fs

from rmqstore.errors import Rejected
from rmqstore.lake.delta import open_delta
from rmqstore.lake.places import directory_of_table

pytestmark = pytest.mark.stores

KEYS = {"AWS_ACCESS_KEY_ID": "who", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}


class Bucket(ThreadingHTTPServer):
    """A store of objects in which there is nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str]] = []


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Bucket)
        self.server.asked.append((f"{self.command} {self.path}", self.headers.get("Authorization", "")))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = _answer  # noqa: N815  the base's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing."""


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with Bucket() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_endpoint_of_the_options_has_the_files_too(bucket: Bucket) -> None:
    options = KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{bucket.server_port}", "aws_allow_http": "true"}
    disk = directory_of_table("s3://lake/shop/orders/", options)
    with pytest.raises(FileNotFoundError):
        disk.open_input_stream("_rmqstore/offsets-1.json").read()
    asked, authorization = bucket.asked[0]
    assert asked.endswith(" /lake/shop/orders/_rmqstore/offsets-1.json")
    assert "Credential=who/" in authorization


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (KEYS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "AWS_ALLOW_HTTP=true"),
        (KEYS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "false"}, "AWS_ALLOW_HTTP=true"),
        ({"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a"}, "give both"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        open_delta("s3://lake/orders", options=options)


def test_paths_and_addresses_of_this_host_are_the_same(tmp_path) -> None:
    for name in (str(tmp_path), f"file://{tmp_path}"):
        with directory_of_table(name, {}).open_output_stream("a") as file:
            file.write(b"x")
        assert (tmp_path / "a").read_bytes() == b"x"
        (tmp_path / "a").unlink()
    assert isinstance(directory_of_table(str(tmp_path), KEYS).base_fs, pa_fs.LocalFileSystem)
