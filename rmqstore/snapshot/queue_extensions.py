"""Extension files of a queue (consumequeue_ext): the tags code behind an address."""

import numpy as np
import numpy.typing as npt

from rmqstore.files import reading
from rmqstore.files.reading import OpenFile
from rmqstore.formats import names
from rmqstore.formats.queue_extension import EXTENSION_HEAD, address_to_offset, is_extension_address, read_unit


def resolve_extensions(root: str, span: tuple[str, int, str, int, int], entries: npt.NDArray[np.void]) -> None:
    """Puts the tags codes of extension units in place of their addresses; an address that leads nowhere stays as it
    is.
    """
    directory = reading.join(root, "consumequeue_ext", span[0], str(span[1]))
    codes = entries["tags_code"]
    rows = [row for row, code in enumerate(codes.tolist()) if is_extension_address(code)]
    for file in reading.list_stored_files(directory, names.parse_start):
        inside = [row for row in rows if file.start <= address_to_offset(int(codes[row])) < file.end]
        if not inside:
            continue
        places = [address_to_offset(int(codes[row])) - file.start for row in inside]
        low = min(places)
        with OpenFile(file.path) as source:
            data = source.read(low, max(places) - low + EXTENSION_HEAD.size + 2**15)
        for row, place in zip(inside, places, strict=True):
            unit = read_unit(data, place - low)
            if unit is not None:
                codes[row] = unit.tags_code
        rows = [row for row in rows if is_extension_address(int(codes[row]))]
