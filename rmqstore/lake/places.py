"""Where tables lie: in directories of their own, as what is written into a store's would be taken for messages, or
replace some; and, where deltalake's storage options say how they are reached, by Arrow in the same way.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pa_fs

from rmqstore.errors import Rejected
from rmqstore.files.reading import LOCAL, canonical_path

# Arrow's argument, and the names that deltalake has for it, in its order.
_S3_OPTIONS = {
    "access_key": ("aws_access_key_id", "access_key_id"),
    "secret_key": ("aws_secret_access_key", "secret_access_key"),
    "session_token": ("aws_session_token", "aws_token", "session_token", "token"),
    "region": ("aws_region", "region", "aws_default_region", "default_region"),
    "endpoint_override": ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint"),
}
_ALLOW_HTTP = ("aws_allow_http", "allow_http")
_S3_SCHEMES = ("s3://", "s3a://")


def directory_of_table(table: str, options: Mapping[str, str]) -> pa_fs.FileSystem:
    """The directory of a Delta table by its path, or its URI: file:, s3:, gs: and what else Arrow knows.

    Raises Rejected, and what Arrow raises for a URI that it does not know.
    """
    if "://" not in table:
        return pa_fs.SubTreeFileSystem(table, pa_fs.LocalFileSystem())
    given = {name.lower(): value for name, value in options.items()}
    if table.startswith(_S3_SCHEMES) and given:  # without options Arrow asks AWS where the bucket is
        return pa_fs.SubTreeFileSystem(table.partition("://")[2].strip("/"), _s3(given))
    disk, base = pa_fs.FileSystem.from_uri(table)
    return pa_fs.SubTreeFileSystem(base, disk)


def _s3(given: Mapping[str, str]) -> pa_fs.FileSystem:
    """Raises Rejected for an address without TLS that is not allowed to be, as deltalake does."""
    found = {}
    for argument, names in _S3_OPTIONS.items():
        values = [given[name] for name in names if name in given]
        if values:
            found[argument] = values[0]
    if ("access_key" in found) != ("secret_key" in found):
        raise Rejected("options: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: give both")
    endpoint = found.get("endpoint_override", "")
    if endpoint.startswith("http://"):
        if not any(given.get(name, "").lower() in ("true", "1", "yes", "on") for name in _ALLOW_HTTP):
            raise Rejected(f"options: {endpoint} is not encrypted; AWS_ALLOW_HTTP=true allows it")
        found["scheme"] = "http"
    return pa_fs.S3FileSystem(**found)


def local_directory(location: str) -> str | None:
    """The directory of this machine that a path or URI means; None for another file system's."""
    if location.startswith("file:"):
        return unquote(urlsplit(location).path)
    return None if "://" in location else location


def require_apart(table: str, location: str, stores: Sequence[str]) -> None:
    """Raises Rejected where a table is a store, lies in one or holds one."""
    directory = local_directory(location)
    if directory is None:
        return
    place = LOCAL.real_path(canonical_path(directory))
    for store in stores:
        own = LOCAL.real_path(canonical_path(store))
        if _lies_in(place, own) or _lies_in(own, place):
            raise Rejected(f"{table}: is the store {store}, lies in it or holds it; name another directory")


def _lies_in(path: str, directory: str) -> bool:
    return f"{path}/".startswith(directory.rstrip("/") + "/")
