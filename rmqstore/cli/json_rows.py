"""Messages as JSON objects, as the command line prints them."""

import json

import pyarrow as pa

from rmqstore.cli.decoding.decoder import BodyDecoder
from rmqstore.cli.output import escaped
from rmqstore.snapshot.arrow.json_lines import json_lines

_AT_THE_END = ("body", "corruptReason")


def json_objects(batch: pa.RecordBatch, decoder: BodyDecoder | None = None) -> list[str]:
    """The rows of a batch, each as json.dumps(…, ensure_ascii=False) writes an object of its columns in order, with
    what could steer a terminal escaped.

    At the end stand `body`, as "bodyBase64" where it is not UTF-8, or as `decoder` has it, and `corruptReason` where
    there is one; the batch must have these two columns.
    """
    others = [name for name in batch.schema.names if name not in _AT_THE_END]
    if decoder is None:
        return [escaped(line) for line in json_lines(batch.select([*others, *_AT_THE_END]), end="").to_pylist()]
    heads = json_lines(batch.select(others), end="").to_pylist()
    bodies = decoder.json_fields(batch.column("body").to_pylist())
    reasons = batch.column("corruptReason").to_pylist()
    ends = ["}" if text is None else f', "corruptReason": {json.dumps(text, ensure_ascii=False)}}}' for text in reasons]
    # What is decoded may hold halves of characters, which no Arrow text does.
    return [
        escaped(f"{head[:-1]}{', ' if others else ''}{body}{end}")
        for head, body, end in zip(heads, bodies, ends, strict=True)
    ]
