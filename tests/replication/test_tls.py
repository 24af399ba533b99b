"""The three files of mutual TLS: wrong, foreign, unreadable, locked; each is one line, and nothing was opened."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import StoreConfig
from rmqstore.config import HaConfig
from rmqstore.errors import Rejected, WrongType
from rmqstore.replica.following.connection import LinkTls
from rmqstore.replica.following.masters import BareMaster
from tests.replication.pem import PEM, files

NOBODY = 65534
GOOD = files("master")
BROKEN = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


def refused_everywhere(tls: Any, root: Path) -> str:
    """The line that a master and a slave refuse these files with; the same, and nothing is there afterwards."""
    with pytest.raises(Rejected) as by_master:
        rmqstore.open_store(root / "new", StoreConfig(ha=HaConfig(listen="127.0.0.1:0", tls=tls)))
    with pytest.raises(Rejected) as by_slave:
        BareMaster("127.0.0.1:1", 4096, tls=LinkTls(tls))
    assert not (root / "new").exists()
    assert str(by_slave.value) == str(by_master.value)
    assert "\n" not in str(by_master.value)
    return str(by_master.value)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"cert_file": PEM / "nothing.pem"}, r"the certificate .*/nothing\.pem: no such file"),
        ({"key_file": PEM / "nothing.key"}, r"the private key .*/nothing\.key: no such file"),
        ({"ca_file": PEM / "nothing.pem"}, r"the authority's certificate .*/nothing\.pem: no such file"),
        ({"cert_file": PEM}, "the certificate .*/certificates: no such file"),
        ({"cert_file": ""}, "the certificate '': is an empty path"),
        ({"cert_file": "s3://bucket/x"}, "the certificate s3://bucket/x: is not a file system path"),
        ({"cert_file": 5}, "the certificate 5: is no path"),
        ({"ca_file": os.devnull}, "the authority's certificate /dev/null"),
        ({"cert_file": PEM / "master.key"}, "the certificate .*master.key is not in this file: .*BEGIN CERTIFICATE"),
        ({"key_file": PEM / "master.pem"}, "the private key .*master.pem is not in this file: .*PRIVATE KEY"),
        (
            {"key_file": PEM / "slave.key"},
            r"the private key .*/slave\.key does not belong to the certificate .*master\.pem",
        ),
        ({"key_file": PEM / "locked.key"}, r"the private key .*/locked\.key has a passphrase: remove the passphrase"),
    ],
    ids=range(12),
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(wrong: dict[str, Any], words: str, tmp_path: Path) -> None:
    line = refused_everywhere(replace(GOOD, **wrong), tmp_path)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(line)


@pytest.mark.parametrize(
    ("field", "kind"), [("cert_file", "CERTIFICATE"), ("ca_file", "CERTIFICATE"), ("key_file", "PRIVATE KEY")]
)
def test_a_file_that_is_damaged_is_named(field: str, kind: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text(BROKEN.format(kind))
    line = refused_everywhere(replace(GOOD, **{field: broken}), tmp_path)
    assert str(broken) in line
    assert "damaged, or not a PEM" in line


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_bytes((PEM / "master.pem").read_bytes())
    with unreadable(own), pytest.raises(Rejected) as refusal:
        BareMaster("127.0.0.1:1", 4096, tls=LinkTls(replace(GOOD, cert_file=own)))
    assert f"the certificate {own}: cannot be read (Permission denied)" in str(refusal.value)


def test_a_pipe_in_place_of_a_key_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "pipe" in refused_everywhere(replace(GOOD, key_file=tmp_path / "pipe"), tmp_path)


@pytest.mark.parametrize("value", [5, "cert.pem", ("a", "b", "c"), {"cert_file": "a"}])
def test_tls_that_is_no_tls_is_refused(value: Any) -> None:
    with pytest.raises(WrongType, match="tls"):
        HaConfig(tls=value)


@pytest.mark.parametrize("name", [".", ".example", "a\0b", "x" * 300])
def test_a_host_name_that_no_host_has_is_refused(name: str) -> None:
    with pytest.raises(Rejected, match="the host name"):
        BareMaster("127.0.0.1:1", 4096, tls=LinkTls(files("slave"), name))


def test_with_tls_a_master_may_be_open_to_the_network() -> None:
    with pytest.raises(Rejected, match="needs tls, or is_open_to_network"):
        HaConfig(listen="0.0.0.0:10912")
    assert HaConfig(listen="0.0.0.0:10912", tls=GOOD).place() == ("0.0.0.0", 10912)


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """A file that this process may not read; it gives up being root for the while where it is."""
    user = os.geteuid()
    path.chmod(0)
    try:
        if user == 0:
            os.seteuid(NOBODY)
        yield
    finally:
        os.seteuid(user)
        path.chmod(0o600)
