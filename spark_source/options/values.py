"""How the text of one option becomes a value.  Each parser raises Rejected with what to write instead."""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from rmqstore.core.arguments import instant
from rmqstore.errors import Rejected
from rmqstore.formats.names import is_topic_name
from rmqstore.snapshot import StoresIn
from rmqstore.snapshot.request import GROUP_PREFIX
from rmqstore.snapshot.stream.offsets import topics_in

# A full map of 2,000 queues takes 60 KB; the bounds keep a wrong file's content out of the parser.
JSON_BYTES_MAX = 1024 * 1024
JSON_DEPTH_MAX = 8
# Nothing here is wider than 64 bits with its sign, and int() of a long text is slow.
JSON_DIGITS_MAX = 20
PATTERN_SIZE_MAX = 4096

# A store, or a store and the directories of its commitlog elsewhere; and what `open_snapshot` takes of them.
StorePaths = str | tuple[str, ...]
Stores = tuple[StorePaths, ...] | dict[str, StorePaths] | StoresIn

_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SIZE = re.compile(r"(\d{1,18})\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_SIZE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_OFFSET_NUMBER = {"earliest": -2, "latest": -1}
STORE_OPTIONS = ("path", "paths", "stores")
_DURATION = re.compile(r"(\d{1,15})\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONG_UNIT_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def flag(text: str) -> bool:
    """A boolean, in any case."""
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise Rejected("write true or false")
    return folded == "true"


def one_of(*words: str) -> Callable[[str], str]:
    """A parser of one of `words`, in any case."""

    def word(text: str) -> str:
        folded = text.strip().lower()
        if folded not in words:
            raise Rejected(f"write {', '.join(words[:-1])} or {words[-1]}")
        return folded

    return word


def count(least: int, most: int) -> Callable[[str], int]:
    """A parser of a whole number in [least, most]."""

    def number(text: str) -> int:
        digits = text.strip()
        if not re.fullmatch(r"[+-]?\d{1,19}", digits, re.ASCII) or not least <= int(digits) <= most:
            raise Rejected(f"write a whole number from {least} to {most}")
        return int(digits)

    return number


def byte_size(most: int) -> Callable[[str], int]:
    """A parser of a size in bytes in [1, most], plain or as Spark writes them: 64k, 128m, 1g (powers of 1024)."""

    def size(text: str) -> int:
        match = _SIZE.fullmatch(text.strip())
        value = int(match[1]) << _SIZE_SHIFT[match[2].lower()] if match else 0
        if not 1 <= value <= most:
            raise Rejected(f"write a size in bytes from 1 to {most}, such as 8388608 or 8m")
        return value

    return size


def duration(text: str) -> int:
    """A span of time in ms, as Spark writes them: 500ms, 30s, 15m, 1h, 2 minutes."""
    match = _DURATION.fullmatch(text.strip())
    unit = match[2].lower() if match else ""
    unit_ms = _UNIT_MS.get(unit) or _LONG_UNIT_MS.get(unit.removesuffix("s"))
    if match is None or unit_ms is None:
        raise Rejected("write a time with its unit, such as 500ms, 30s, 15m or 1h")
    return int(match[1]) * unit_ms


def comma_list(text: str) -> tuple[str, ...]:
    """Names between commas, trimmed; a doubled name counts once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if "" in names:
        raise Rejected("write names separated by commas, such as orders,payments")
    return names


def pattern(text: str) -> str:
    """A regular expression of Python that a whole topic name has to match."""
    if not 0 < len(text) <= PATTERN_SIZE_MAX:
        raise Rejected(f"write a regular expression of 1 to {PATTERN_SIZE_MAX} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a doubled bracket: allowed, and means what it says
            re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise Rejected(f"not a regular expression of Python: {error}; .* stands for any characters") from None
    return text


def group_name(text: str) -> str:
    """The name of a consumer group."""
    if not is_topic_name(text.strip()):
        raise Rejected("write a group name of letters, digits, %, |, _ and -, at most 255")
    return text.strip()


def local_path(text: str) -> str:
    """A directory or file on this machine or a mount, as a path or a file: URI."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/", text)
    if scheme and scheme[1].lower() != "file":
        raise Rejected(f"{scheme[1]}: is not a file system path; mount or copy the store and give its directory")
    path = unquote(urlsplit(text).path) if scheme else text
    if not path.strip() or "\0" in path:
        raise Rejected("write the path of a store directory")
    return path


def path_list(text: str) -> tuple[str, ...]:
    """The paths of `load([...])`, which Spark hands over as a JSON list."""
    paths = parse_json(text)
    if not isinstance(paths, list) or not paths or not all(isinstance(path, str) for path in paths):
        raise Rejected("""write a JSON list of directories, such as ["/data/a", "/data/b"]""")
    return tuple(local_path(path) for path in paths)


def log_paths(text: str) -> tuple[str, ...]:
    """Directories between commas, as storePathCommitLog has them."""
    return tuple(local_path(part) for part in comma_list(text))


def stores_of(given: Mapping[str, Any]) -> Stores:
    """The stores that the options path, paths, stores and storePathCommitLog mean, of which one and the last may be
    given.
    """
    if "path" in given:
        logs = given.get("storePathCommitLog")
        return ((given["path"], *logs),) if logs else (given["path"],)
    stores: Stores = given["stores"] if "stores" in given else given["paths"]
    return stores


def contradicting_stores(given: Mapping[str, Any]) -> list[str]:
    """The mistakes in how those options are combined."""
    where = [name for name in STORE_OPTIONS if name in given]
    mistakes = []
    if not where:
        mistakes.append("no store: name its directory in load('/data/rocketmq/store'), or several in the option stores")
    elif len(where) > 1:
        mistakes.append(f"{' and '.join(where)} are given: keep one of them")
    elif "storePathCommitLog" in given and where != ["path"]:
        mistakes.append(
            "storePathCommitLog goes with one store: write each store's log directories after its own, as "
            """stores={"broker-a": ["/data/a", "/log/a"]}"""
        )
    return mistakes


def directories_of(stores: Stores) -> list[str]:
    """The directories that are named: those of stores and commitlogs, or the one in which all stores are."""
    if isinstance(stores, StoresIn):
        return [stores.directory]
    given = stores.values() if isinstance(stores, dict) else stores
    return [path for paths in given for path in ([paths] if isinstance(paths, str) else paths)]


def store_paths(text: str) -> StoresIn | dict[str, StorePaths]:
    """The directory in which the stores are, or directories by broker name from a JSON object: a path, or a list of it
    and those of its commitlog elsewhere.
    """
    if not text.lstrip().startswith(("{", "[", '"')):
        return StoresIn(local_path(text))
    stores = parse_json(text)
    if not isinstance(stores, dict) or not stores or not all(map(_is_store, stores.values())):
        raise Rejected(
            """write the directory that holds the stores, or a JSON object of directories by broker name, such as """
            """{"broker-a": "/data/a"}, or {"broker-a": ["/data/a", "/log/a"]} where its commitlog lies elsewhere"""
        )
    return {
        broker: local_path(given) if isinstance(given, str) else tuple(map(local_path, given))
        for broker, given in stores.items()
    }


def _is_store(given: Any) -> bool:
    paths = given if isinstance(given, list) else [given]
    return bool(paths) and all(isinstance(path, str) for path in paths)


def assignment(text: str) -> dict[str, Any]:
    """Queues by topic, {"t": [0, 1]} or {"t": {"broker-a": [0, 1]}}; the snapshot checks them against the store."""
    queues = parse_json(text)
    if not isinstance(queues, dict) or not queues:
        raise Rejected("""write a JSON object of queue ids by topic, such as {"orders": [0, 1]}""")
    return queues


def offsets(refused_word: str) -> Callable[[str], str | dict[str, Any]]:
    """A parser of earliest, latest or offset JSON, where `refused_word` makes no sense for a batch read."""
    other = "latest" if refused_word == "earliest" else "earliest"

    def bound(text: str) -> str | dict[str, Any]:
        word = text.strip().lower()
        if word == other:
            return word
        if word == refused_word:
            raise Rejected(
                f"a batch read cannot use {refused_word} here; write {other}, offset JSON, or use a timestamp"
            )
        value = _offset_json(text, other)
        for leaf in _leaves(value):
            if leaf == refused_word or (leaf == _OFFSET_NUMBER[refused_word] and not isinstance(leaf, bool)):
                raise Rejected(f"a batch read cannot use {refused_word} ({leaf!r}) here; write {other} or an offset")
        return value

    return bound


def batch_start(text: str) -> str | dict[str, Any]:
    """Where a batch read starts: earliest, offset JSON, or group:<name>."""
    return group_start(text) if _is_group(text) else offsets("latest")(text)


def stream_start(text: str) -> str | dict[str, Any]:
    """Where a stream starts: earliest, latest, offset JSON in which -2 and -1 mean them, or group:<name>."""
    word = text.strip().lower()
    if word in _OFFSET_NUMBER:
        return word
    return group_start(text) if _is_group(text) else _offset_json(text, "earliest, latest, group:<name>")


def group_start(text: str) -> str:
    """`group:` and the name of a consumer group, whose committed offsets are the start."""
    name = text.strip()[len(GROUP_PREFIX) :].strip()
    if not name:
        raise Rejected("write the consumer group after group:, such as group:billing")
    return GROUP_PREFIX + name


def _is_group(text: str) -> bool:
    return text.strip().lower().startswith(GROUP_PREFIX)


def _offset_json(text: str, words: str) -> dict[str, Any]:
    """Offset JSON as it stands in options, checkpoints and progress, by topic; a stream's own notes are left out."""
    advice = f"""write {words} or offset JSON such as {{"orders": {{"broker-a": {{"0": 12}}}}}}"""
    if not text.strip().startswith("{"):
        raise Rejected(advice)
    value = parse_json(text)
    kept = topics_in(value) if isinstance(value, dict) else {}
    if not kept:
        raise Rejected(advice)
    return kept


def instants(text: str) -> dict[str, Any]:
    """Times in the shape of offset JSON, {"orders": {"broker-a": {"0": 1714521600000}}}; every leaf becomes ms."""
    times = parse_json(text)
    if not isinstance(times, dict) or not times:
        raise Rejected("""write times as JSON, such as {"orders": {"0": 1714521600000}}""")
    return {topic: _instants_below(value) for topic, value in times.items()}


def parse_json(text: str) -> Any:
    """The value of JSON text within the bounds of this module; a float, a doubled key or NaN is refused."""
    if len(text) > JSON_BYTES_MAX:
        raise Rejected(f"JSON of more than {JSON_BYTES_MAX} characters")
    depth = 0
    for character in re.sub(r"[^][{}]", "", _JSON_STRING.sub("", text)):
        depth += 1 if character in "[{" else -1
        if depth > JSON_DEPTH_MAX:
            raise Rejected(f"JSON nested more than {JSON_DEPTH_MAX} deep")
    try:
        return json.loads(
            text,
            object_pairs_hook=_distinct,
            parse_int=_json_integer,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except json.JSONDecodeError as error:
        raise Rejected(f"not JSON: {error}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise Rejected(f"one JSON object has the same key twice: {', '.join(name for name, _ in pairs)}"[:200])
    return value


def _json_integer(digits: str) -> int:
    if len(digits) > JSON_DIGITS_MAX:
        raise Rejected("a JSON number wider than 64 bits")
    return int(digits)


def _refuse_number(text: str) -> Any:
    raise Rejected(f"whole numbers only, not {text[:40]}")


def _leaves(value: Mapping[str, Any]) -> list[Any]:
    below = [_leaves(item) if isinstance(item, dict) else [item] for item in value.values()]
    return [leaf for leaves in below for leaf in leaves]


def _instants_below(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _instants_below(item) for name, item in value.items()}
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Rejected("a time is a number of ms or ISO-8601 text with a zone")
    return instant(str(value))
