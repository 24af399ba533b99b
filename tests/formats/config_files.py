"""The files under config/ of the golden stores."""

import functools
import tarfile

from tests.golden.cases import FOLDERS


@functools.cache
def config_files(case: str) -> dict[str, bytes]:
    """The files of store/config by name, read out of the archive."""
    found = {}
    with tarfile.open(FOLDERS[case] / "store.tar.gz") as archive:
        for member in archive:
            directory, _, name = member.name.rpartition("/")
            file = archive.extractfile(member) if directory == "store/config" and member.isfile() else None
            if file is not None:
                found[name] = file.read()
    return found
