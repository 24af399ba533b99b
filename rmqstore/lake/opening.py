"""Tables by their format; its library is an extra, and is imported here, when a table is asked for."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Literal

from rmqstore.core import arguments
from rmqstore.errors import Rejected
from rmqstore.files.reading import canonical_path
from rmqstore.lake.sink import Consent, TableSink
from rmqstore.lake.table_columns import TableColumns

Format = Literal["iceberg", "delta"]
_LIBRARIES: dict[Format, tuple[str, ...]] = {"iceberg": ("pyiceberg", "sqlalchemy"), "delta": ("deltalake",)}


def open_table(
    format: Format, name: str, *, catalog: str | None = None, options: Mapping[str, str] | None = None,  # noqa: A002
    columns: TableColumns | None = None, consent: Consent | None = None,
) -> TableSink:  # fmt: skip
    """A table of Iceberg by its name in a catalog, or of Delta by its path; it need not be there yet.

    `catalog`: the name that pyiceberg's configuration has for it, or `sqlite:///FILE`, beside which the tables lie, or
    the http(s) address of a REST catalog; `options`: properties of the catalog, or storage options of deltalake.
    `columns`: those of a table that is made, by default the default ones, and of one that is there what of it is
    filled, by default all that messages have.  Raises Rejected, also where the library is not installed, TableFailed.
    """
    arguments.word("format", format, tuple(_LIBRARIES))
    for library in _LIBRARIES[format]:
        if find_spec(library) is None:
            raise Rejected(f"tables of {format} need the library {library}: pip install 'rmqstore[{format}]'")
    if format == "iceberg":
        from rmqstore.lake.iceberg import open_iceberg

        found, more = _catalog(catalog)
        return open_iceberg(name, catalog=found, options=more | dict(options or {}), columns=columns, consent=consent)
    if catalog is not None:
        raise Rejected(f"catalog={catalog}: a Delta table has no catalog, give only its path")
    from rmqstore.lake.delta import open_delta

    return open_delta(name, options=options, columns=columns, consent=consent)


def _catalog(given: str | None) -> tuple[str | None, dict[str, str]]:
    """A name of pyiceberg's configuration, or the properties that an address stands for."""
    if given is None or "://" not in given:
        return given, {}
    if given.startswith(("http://", "https://")):
        return None, {"type": "rest", "uri": given}
    found = {"type": "sql", "uri": given}
    if given.startswith("sqlite:///"):
        file = canonical_path(given.removeprefix("sqlite:///"))
        found = {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": file.rpartition("/")[0] or "/"}
    return None, found
