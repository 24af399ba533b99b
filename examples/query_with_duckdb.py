"""SQL over a RocketMQ store with DuckDB, without Spark or Java.

    python examples/query_with_duckdb.py build/demo/store

DuckDB pulls the Arrow stream batch by batch, so the store may be larger than memory.  A stream is read once: scan again
for the next query.
"""

import sys

import duckdb

import rmqstore

PAID_BY_METHOD = """
SELECT   json_extract_string(decode(body), '$.method') AS method,
         count(*) AS orders,
         sum(json_extract(decode(body), '$.amount_cents')::BIGINT) AS cents
FROM     messages
WHERE    tags = 'paid'
GROUP BY method
ORDER BY method
"""


def paid_by_method(store: str) -> list[tuple[str, int, int]]:
    """(method, orders, cents) of the paid orders in the example store."""
    snapshot = rmqstore.open_snapshot(store)
    messages = snapshot.scan(topics=["orders"], columns=["tags", "body"])
    with duckdb.connect() as connection:
        connection.register("messages", messages)
        return connection.sql(PAID_BY_METHOD).fetchall()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/query_with_duckdb.py STORE")
    for method, orders, cents in paid_by_method(sys.argv[1]):
        print(f"{method:<10}{orders:>6}{cents / 100:>14,.2f}")  # noqa: T201
