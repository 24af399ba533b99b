"""Brokers that want to know who asks: signed requests in each line of RocketMQ, and TLS."""

import json
import ssl
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqstore.replica.following.masters import Broker as KnownBroker
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.remoting.client import Access, Refused, RemotingClient, Unreachable
from rmqstore.replica.remoting.cluster import runtime
from rmqstore.replica.remoting.signing import Credentials
from tests.conformance.broker import BROKER_NAME, NEWEST, Broker, BrokerClient, Rocketmq, name_server, until
from tests.conformance.replicas import SMALL, Cluster, log_of, row_count, run, send

_PROVIDER = "org.apache.rocketmq.auth.authentication.provider"
_USER, _SECRET = "rocketmq", "12345678"
_UPDATE_BROKER_CONFIG = 25
_ACCOUNTS = f"accounts:\n- accessKey: {_USER}\n  secretKey: {_SECRET}\n  admin: true\n"


def test_a_broker_that_wants_signatures_takes_ours_and_no_wrong_ones(cluster: Cluster, tmp_path: Path) -> None:
    running = guarded(cluster, tmp_path)

    def log_start(credentials: Credentials | None) -> int | None:
        with RemotingClient(running.address, Access(credentials=credentials)) as client:
            try:
                return runtime(client).log_start
            except Unreachable:
                return None

    try:
        right = Credentials(_USER, _SECRET)
        until("the first signed answer", lambda: log_start(right) is not None, [running])
        assert log_start(right) == 0
        for wrong in (None, Credentials(_USER, "guessed"), Credentials("nobody", _SECRET)):
            with pytest.raises(Refused, match="refused it with code"):
                log_start(wrong)
        with Replica(tmp_path / "copy", KnownBroker(running.address, Access(credentials=right))) as replica:
            replica.run(lambda state: state.phase == "following")
            replica.finish()
    finally:
        running.end()


def guarded(cluster: Cluster, work: Path) -> Broker:
    """A broker that answers signed requests only: by an account of 5, by a file before."""
    settings: dict[str, Any] = {"aclEnable": "true"}
    if cluster.is_of_4:
        accounts = work / "broker" / "conf" / "plain_acl.yml"
        accounts.parent.mkdir(parents=True)
        accounts.write_text(_ACCOUNTS)
    else:
        settings = {
            "authenticationEnabled": "true",
            "authenticationProvider": f"{_PROVIDER}.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{_PROVIDER}.LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": json.dumps({"username": _USER, "password": _SECRET}),
            "innerClientAuthenticationCredentials": json.dumps({"accessKey": _USER, "secretKey": _SECRET}),
            "authConfigPath": work / "auth",
        }
    return Broker(work, work / "store", cluster.name_server, SMALL | settings, cluster.rocketmq)


class Certificates(NamedTuple):
    """Files: two authorities, and a server's key and certificate that the first one signed."""

    authority: Path
    other_authority: Path
    key: Path
    certificate: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    place = tmp_path_factory.mktemp("certificates")

    def made(name: str, *how: str) -> Path:
        files = ["-keyout", str(place / f"{name}.key"), "-out", str(place / f"{name}.pem")]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *files, *how]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return place / f"{name}.pem"

    authority, other = (made(name, "-subj", f"/CN={name}") for name in ("authority", "other"))
    signed = ("-CA", str(authority), "-CAkey", str(authority.with_suffix(".key")), "-subj", "/CN=broker")
    server = made("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=CA:FALSE")
    return Certificates(authority, other, server.with_suffix(".key"), server)


def enforcing(certificates: Certificates) -> Rocketmq:
    """Servers that take nothing outside TLS, and clients that use it."""
    return NEWEST.told(
        "-Dtls.server.mode=enforcing", "-Dtls.enable=true", "-Dtls.test.mode.enable=false",
        f"-Dtls.server.keyPath={certificates.key}", f"-Dtls.server.certPath={certificates.certificate}",
    )  # fmt: skip


def registered(address: str, tls: ssl.SSLContext) -> bool:
    """Whether a broker answers, and has registered with its name server by that."""
    with RemotingClient(address, Access(tls=tls)) as client:
        try:
            client.ask(_UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
        except Unreachable:
            return False
        return True


def test_a_cluster_that_takes_tls_only_is_replicated_by_who_trusts_it(
    certificates: Certificates, tmp_path: Path
) -> None:
    rocketmq = enforcing(certificates)
    tls = ssl.create_default_context(cafile=str(certificates.authority))
    with name_server(tmp_path / "named", rocketmq) as address:
        running = Broker(tmp_path, tmp_path / "store", address, SMALL, rocketmq)
        client = None
        try:
            until("its first answer", lambda: registered(running.address, tls), [running])
            client = BrokerClient(tmp_path, address, running)
            send(client, 300, "a")
            assert replicated_rows(address, running, tmp_path, certificates) == [300, 300]
        finally:
            if client is not None:
                client.end()
            running.end()


def replicated_rows(name_server: str, running: Broker, work: Path, certificates: Certificates) -> list[int]:
    """The rows of its replicas, by its name server and by its own address; by nobody who does not trust it."""
    named, alone = work / "replicas" / BROKER_NAME, work / "replica"
    by_name = ["--namesrv", name_server, "--to", str(named.parent)]
    by_address = ["--master", running.address, "--to", str(alone)]
    for given, words in (
        (by_name, "see --tls"),
        (by_address, "see --tls"),
        ([*by_name, "--tls"], "certificate is not accepted"),
        ([*by_address, "--tls-ca", str(certificates.other_authority)], "--tls-ca names the authority that signed it"),
    ):
        status, said = run("replicate", "--once", *given)
        assert (status, said.count("\n"), words in said) == (1, 1, True), said
    assert not named.exists()
    assert not alone.exists()
    for given, replica in ((by_name, named), (by_address, alone)):
        status, said = run("replicate", "--once", *given, "--tls", "--tls-ca", str(certificates.authority))
        assert status == 0, said
        size = 1 << 20
        assert log_of(replica, size) == log_of(work / "store", size)
    return [row_count(named), row_count(alone)]
