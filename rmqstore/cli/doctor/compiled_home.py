"""A `pyspark.zip` with compiled modules, in a SPARK_HOME of links beside the installation, or in the installation."""

import io
import json
import marshal
import os
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import MAGIC_NUMBER, source_hash

from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.doctor.pyspark_zip import (
    ZIP_PLACE,
    content_of,
    import_seconds,
    is_module,
    is_this_python,
    spark_home,
    worker_program,
    zip_facts,
    zip_of,
)
from rmqstore.errors import Rejected, next_step
from rmqstore.files.replace import replace_output

_AREA, _NAME = "Spark", "written"
# In a directory that this command made: the installation that its links lead to.
_MARK = ".rmqstore-spark-home.json"
_BACKUP = ".orig"
# The directories that are none of links.
_ROOMS = ("", "jars", "python", os.path.join("python", "lib"))
# PEP 552: a module that is known by the hash of its source, which is not looked at again.
_UNCHECKED = (1).to_bytes(4, "little")


def write_home(directory: str) -> Iterator[Fact]:
    """Writes the zip, for the installation that this environment has; what was written, and what it costs now.

    `directory` is new, empty, one that this made before, or the installation itself, whose zip is then replaced and
    kept beside as pyspark.zip.orig.  Raises Rejected, with nothing changed, for another directory, without a Spark or a
    zip that can be read, where workers run another Python than this one, and where the disk refuses.
    """
    found = spark_home()
    if found is None:
        raise Rejected("no Spark is installed here: pip install 'rmqstore[spark]', or set SPARK_HOME")
    home = _origin(found) or found
    source = _readable_zip(home)
    program, called = worker_program()
    if not is_this_python(program):
        raise Rejected(
            f"{called} is a different Python than this one, or does not run; set PYSPARK_PYTHON, or run rmqstore "
            "with that Python"
        )
    target = os.path.realpath(directory)
    paid_s = import_seconds(program, home)
    if target == os.path.realpath(home):
        _replace_in(source)
        place = f"{source}, which was kept as {os.path.basename(source)}{_BACKUP}"
    else:
        _refuse(directory, target, os.path.realpath(home))
        _write_links(home, target)
        place = f"{target}, links to {home}: export SPARK_HOME={target}"
    paid = "" if paid_s is None else f" (before: {paid_s:.2f} s)"
    yield Fact(_AREA, _NAME, f"{place}{paid}")
    yield from zip_facts(target)


def _readable_zip(home: str) -> str:
    path = zip_of(home)
    if not os.path.isfile(path):
        raise Rejected(f"{home}: there is no python/lib/pyspark.zip; Python imports the installed package as it is")
    try:
        content_of(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise Rejected(f"{path}: cannot be read ({error}); install PySpark again") from None
    return path


def _origin(home: str) -> str | None:
    """The installation that a directory of links was made of; None for any other directory."""
    try:
        with open(os.path.join(home, _MARK), encoding="utf-8") as file:
            said = json.load(file)
    except (OSError, ValueError):
        return None
    origin = said.get("links to") if isinstance(said, dict) else None
    return origin if isinstance(origin, str) else None


def _refuse(given: str, target: str, home: str) -> None:
    if not given:
        raise Rejected("--write-pyspark-zip: name a directory")
    if f"{target}/".startswith(f"{home}/") or f"{home}/".startswith(f"{target}/"):
        raise Rejected(f"{given}: lies in {home} or holds it; name another directory, or {home} itself")
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise Rejected(f"{given}: is not a directory; name another")
    try:
        origin = _origin(target)
        is_free = not os.listdir(target) or origin is not None
        foreign = None if origin is None else _foreign(target, origin)
    except OSError as error:
        raise Rejected(f"{given}: cannot be read ({error.strerror}); {next_step(error)}") from None
    if not is_free:
        raise Rejected(f"{given}: is not empty and was not made by this command; name another directory")
    if foreign is not None:
        raise Rejected(f"{given}: holds {foreign}, which this command did not put there and would delete; move it away")


def _foreign(target: str, origin: str) -> str | None:
    """The first thing in a directory of links that is none of its own."""
    for room in _ROOMS:
        directory = os.path.join(target, room)
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else ():
            place = os.path.join(room, name)
            path = os.path.join(target, place)
            is_link = os.path.islink(path) and os.readlink(path) == os.path.join(origin, place)
            is_own = place in (_MARK, ZIP_PLACE) or (place in _ROOMS and not os.path.islink(path))
            if not (is_link or is_own):
                return place
    return None


def _replace_in(path: str) -> None:
    """The zip of an installation, replaced whole; the one that Spark came with stays beside it."""
    content = content_of(path)
    data = _read(path)
    compiled = compiled_zip(data, path)
    if not content.compiled:
        replace_output(path + _BACKUP, data)
    replace_output(path, compiled)


def _write_links(home: str, target: str) -> None:
    """A SPARK_HOME that is nothing but links and the zip, put in place whole.

    Jars are linked one by one: their names have the version, so that after an upgrade of what they lead to Spark does
    not start with a zip that does not fit.
    """
    parent, name = os.path.split(target)
    try:
        made = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
    except OSError as error:
        raise Rejected(f"{target}: cannot be made ({error.strerror}); {next_step(error, 'write')}") from None
    fresh, old = os.path.join(made, "new"), os.path.join(made, "old")
    try:
        _link_all(home, fresh, ("jars", "python"))
        _link_all(os.path.join(home, "jars"), os.path.join(fresh, "jars"))
        _link_all(os.path.join(home, "python"), os.path.join(fresh, "python"), ("lib",))
        lib = os.path.join("python", "lib")
        _link_all(os.path.join(home, lib), os.path.join(fresh, lib), ("pyspark.zip",))
        with open(zip_of(fresh), "wb") as file:
            file.write(compiled_zip(_read(zip_of(home)), zip_of(target)))
        with open(os.path.join(fresh, _MARK), "w", encoding="utf-8") as file:
            json.dump({"links to": home}, file)
        if os.path.lexists(target):
            os.rename(target, old)
        os.rename(fresh, target)
    except OSError as error:
        raise Rejected(f"{target}: cannot be written ({error.strerror}); {next_step(error, 'write')}") from None
    finally:
        if os.path.lexists(old) and not os.path.lexists(target):
            os.rename(old, target)
        shutil.rmtree(made, ignore_errors=True)


def _link_all(home: str, directory: str, but: tuple[str, ...] = ()) -> None:
    os.mkdir(directory)
    for name in sorted(os.listdir(home)):
        if name not in but and name != "__pycache__" and not name.endswith(_BACKUP):
            os.symlink(os.path.join(home, name), os.path.join(directory, name))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def compiled_zip(data: bytes, path: str) -> bytes:
    """The bytes of a zip with each module compiled beside its source, for this Python.

    Everything else is as it was.  `path` is where the zip will lie: tracebacks name their files by it, and PySpark
    shortens them by that.  What does not compile stays as source.
    """
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        names = set(source.namelist())
        for member in source.infolist():
            if member.filename.endswith(".pyc") and member.filename[:-1] in names:
                continue
            content = source.read(member)
            target.writestr(member, content)
            if is_module(member.filename):
                with suppress(SyntaxError, ValueError):
                    beside = zipfile.ZipInfo(f"{member.filename}c", member.date_time)
                    beside.external_attr, beside.compress_type = member.external_attr, zipfile.ZIP_DEFLATED
                    target.writestr(beside, _compiled(content, f"{path}/{member.filename}"))
    return made.getvalue()


def _compiled(content: bytes, name: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(content, name, "exec", dont_inherit=True, optimize=0)
    return MAGIC_NUMBER + _UNCHECKED + source_hash(content) + marshal.dumps(code)
