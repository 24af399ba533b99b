"""The questions about a cluster: its masters, and of each what a replica has to know."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rmqstore.core.arguments import I32_MAX
from rmqstore.errors import Corrupt, Rejected
from rmqstore.formats import broker_json
from rmqstore.formats.delay_levels import LEVELS_SETTING, parse_levels
from rmqstore.replica.remoting.client import UNSIGNED, Access, Refused, RemotingClient, Unreachable, host_and_port

# Java: RequestCode.
GET_BROKER_CONFIG, GET_BROKER_RUNTIME_INFO, GET_BROKER_CLUSTER_INFO = 26, 28, 106
GET_ALL_TOPIC_CONFIG, GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET, GET_ALL_SUBSCRIPTION_GROUP = 21, 43, 45, 201
_EXCHANGE_BROKER_HA_INFO, _QUERY_CONSUME_QUEUE = 906, 321
# How brokers say that a queue has not been used yet, with SYSTEM_ERROR.
_NO_QUEUE = "is not exist"
_MASTER_ID = "0"
_PROPERTY = re.compile(r"^([A-Za-z]\w*)=(.*)$", re.MULTILINE)


class ListedMaster(NamedTuple):
    """A master as a name server lists it; `address` is where it is asked."""

    cluster: str
    broker_name: str
    address: str


class BrokerSettings(NamedTuple):
    """A master by its own words: sizes in bytes, `ha_address` where slaves attach, `is_controlled` in controller
    mode (another handshake), `settings` all of its configuration."""

    broker_name: str
    cluster: str
    ha_address: str
    log_file_size: int
    is_controlled: bool
    settings: Mapping[str, str]

    @property
    def delay_levels(self) -> str | None:
        """Its delay levels, in words; None where it does not say so."""
        return self.settings.get(LEVELS_SETTING)


class Runtime(NamedTuple):
    """A master at this moment: its commitlog goes from `log_start` to `log_end`, and its release; of the log's newest
    `undispatched` bytes its queues have nothing yet."""

    log_start: int
    log_end: int
    version: str
    undispatched: int = 0


def masters(name_servers: str, access: Access = UNSIGNED) -> list[ListedMaster]:
    """All masters of the clusters that name servers know, by cluster and name; `name_servers` is host:port, more after
    semicolons, of which the first that answers counts.  Raises Unreachable when none does, Refused."""
    addresses = [address.strip() for address in name_servers.split(";") if address.strip()]
    for address in addresses:
        host_and_port(address)
    if not addresses:
        raise Rejected("a name server is needed: host:port")
    failures = []
    for address in addresses:
        try:
            with RemotingClient(address, access) as client:
                return sorted(_masters_of(_document(client, GET_BROKER_CLUSTER_INFO), address))
        except (Unreachable, Refused) as failure:
            failures.append(failure)
    raise failures[0]


def settings(client: RemotingClient, *, is_stranger: bool = False) -> BrokerSettings:
    """A broker's configuration; of one that may be no broker at all: a stranger.  Raises Unreachable, Refused."""
    answer = client.ask_stranger(GET_BROKER_CONFIG) if is_stranger else client.ask(GET_BROKER_CONFIG)
    body = answer.body.decode("utf-8", "replace")
    found = {name: value.strip() for name, value in _PROPERTY.findall(body)}
    file_size = _number(client.address, found, "mappedFileSizeCommitLog", 1024**3)
    if file_size > I32_MAX:  # an int in Java
        raise Unreachable(client.address, f"mappedFileSizeCommitLog is {file_size}, above the maximum of {I32_MAX}")
    try:
        parse_levels(found.get(LEVELS_SETTING, ""))
    except ValueError as wrong:
        raise Unreachable(client.address, f"{LEVELS_SETTING}: {wrong}") from None
    ha_host = found.get("brokerIP2") or host_and_port(client.address)[0]
    ha_host = f"[{ha_host}]" if ":" in ha_host and not ha_host.startswith("[") else ha_host
    return BrokerSettings(
        broker_name=found.get("brokerName", ""),
        cluster=found.get("brokerClusterName", ""),
        ha_address=f"{ha_host}:{found.get('haListenPort', '10912')}",
        log_file_size=file_size,
        is_controlled=found.get("enableControllerMode") == "true",
        settings=found,
    )


def require_name_server(client: RemotingClient) -> None:
    """Raises Unreachable, Refused unless the peer, which may be anybody, answers as a name server does."""
    client.ask_stranger(GET_BROKER_CLUSTER_INFO)


def runtime(client: RemotingClient) -> Runtime:
    """Where a broker's log begins and ends now.  Raises Unreachable, Refused."""
    table = _document(client, GET_BROKER_RUNTIME_INFO).get("table")
    if not isinstance(table, dict):
        raise Unreachable(client.address, "its runtime info has no table")
    texts = {str(name): str(value) for name, value in table.items()}
    if texts.get("commitLogMinOffset") == "-1":  # Java's answer while there is no log file at all
        texts["commitLogMinOffset"] = "0"
    if texts.get("dispatchBehindBytes", "").startswith("-"):  # its two ends are read one after the other
        texts["dispatchBehindBytes"] = "0"
    return Runtime(
        _number(client.address, texts, "commitLogMinOffset"),
        _number(client.address, texts, "commitLogMaxOffset"),
        texts.get("brokerVersionDesc", ""),
        _number(client.address, texts, "dispatchBehindBytes", 0),
    )


def attach_slave(client: RemotingClient, ha_address: str) -> None:
    """Tells a slave of release 5 at which replication port it gets its log.  Raises Unreachable, Refused."""
    client.ask(_EXCHANGE_BROKER_HA_INFO, {"masterHaAddress": ha_address, "masterAddress": ""})


def table(client: RemotingClient, code: int) -> dict[str, Any]:
    """One of a broker's tables, as the file in its config/ has it.  Raises Unreachable, Refused."""
    return _document(client, code)


def queue_place(client: RemotingClient, topic: str, queue_id: int, number: int) -> int | None:
    """Where in a broker's log the message `number` of a queue stands; None where the queue has none of that number.
    Raises Unreachable, Refused.
    """
    fields = {"topic": topic, "queueId": str(queue_id), "index": str(number), "count": "1"}
    try:
        answer = client.ask(_QUERY_CONSUME_QUEUE, fields)
    except Unreachable as failure:
        if _NO_QUEUE in failure.reason:
            return None
        raise
    if not answer.body:  # "Index 7 of 0@orders is not exist!", and SUCCESS
        return None
    try:
        found = broker_json.parse(answer.body)["queueData"]
        if found == []:
            return None
        place = found[0]["physicOffset"]
    except (Corrupt, LookupError, TypeError):
        place = None
    if type(place) is not int or place < 0:
        raise Unreachable(client.address, f"its answer to {_QUERY_CONSUME_QUEUE} is not a part of a queue")
    return place


def _document(client: RemotingClient, code: int) -> dict[str, Any]:
    try:
        document = broker_json.parse(client.ask(code).body)
    except Corrupt as error:
        raise Unreachable(client.address, f"its answer to {code} is {error.reason}") from None
    if not isinstance(document, dict):
        raise Unreachable(client.address, f"its answer to {code} is no object")
    return document


def _masters_of(document: Mapping[str, Any], address: str) -> Sequence[ListedMaster]:
    found, brokers = [], document.get("brokerAddrTable")
    if not isinstance(brokers, dict):
        raise Unreachable(address, "its list of brokers has no brokerAddrTable")
    for name, broker in brokers.items():
        addresses = broker.get("brokerAddrs") if isinstance(broker, dict) else None
        master = addresses.get(_MASTER_ID) if isinstance(addresses, dict) else None
        if isinstance(master, str):
            found.append(ListedMaster(str(broker.get("cluster") or ""), name, master))
    return found


def _number(address: str, texts: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = texts.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 2**63):
        raise Unreachable(address, f"{name} is {text[:40]!r}, and no number")
    return int(text)
