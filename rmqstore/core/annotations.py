"""Checks the arguments of public calls, and fields of dataclasses, by their annotations.

Known are str, int, bool, float, words (Literal), several texts (Sequence[str]), tuples and tables of texts, mappings,
classes and protocols, several things of a class, functions, and None beside any of them.  Other annotations (paths,
offsets in their many shapes, rows of Arrow data) are left to the called function.
"""

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from inspect import signature
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from rmqstore.core import arguments
from rmqstore.errors import Rejected, WrongType

P = ParamSpec("P")
R = TypeVar("R")
Fields = TypeVar("Fields")
# Takes the name of a field and its value; returns the value, made plain where it means the same.
Check = Callable[[str, Any], Any]

_TEXTS = "text, or several texts"


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with its arguments checked by their annotations before it runs.  It raises WrongType and
    Rejected, which name the argument, with nothing done.

    Takes about 0.5 us a call: the functions that every put goes through check their arguments in their own way.
    """
    names = tuple(signature(function).parameters)

    @functools.cache
    def checks() -> tuple[Mapping[str, Check | None], Sequence[Check | None]]:
        # Not before the first call: a module may name what it has not defined yet.  What comes back is not asked for.
        of_arguments = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        hints = get_type_hints(types.SimpleNamespace(__annotations__=of_arguments), function.__globals__)
        by_name = {name: check_of(name, hints[name]) if name in hints else None for name in names}
        return by_name, tuple(by_name.values())

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        by_name, in_order = checks()
        plain: list[Any] = list(args)
        for number, check in enumerate(in_order[: len(plain)]):
            if check is not None:
                plain[number] = check(names[number], plain[number])
        named: dict[str, Any] = kwargs
        for name, value in named.items():
            check = by_name.get(name)
            if check is not None:
                named[name] = check(name, value)
        return function(*plain, **named)

    return call


def plain_fields(value: Fields) -> Fields:
    """A dataclass with fields of exactly the types that it declares.  Raises WrongType, Rejected."""
    changed, mistakes = plain_values(value)
    if mistakes:
        raise Rejected("; ".join(mistakes))
    return replace(value, **changed) if changed else value  # type: ignore[type-var]


def plain_values(value: Any) -> tuple[dict[str, Any], list[str]]:
    """The fields of a dataclass that have to be made plain, and the mistakes in the values of others.

    Raises WrongType.
    """
    changed, mistakes = dict[str, Any](), list[str]()
    for name, check in _field_checks(type(value)).items():  # type: ignore[arg-type]
        given = getattr(value, name)
        try:
            plain = check(name, given)
        except WrongType:
            raise
        except Rejected as mistake:
            mistakes.append(str(mistake))
            continue
        if plain is not given:
            changed[name] = plain
    return changed, mistakes


@functools.cache
def _field_checks(kind: type[Any]) -> dict[str, Check]:
    hints = get_type_hints(kind)
    checks = {field.name: check_of(field.name, hints[field.name]) for field in fields(kind)}
    return {name: check for name, check in checks.items() if check is not None}


def check_of(name: str, hint: Any) -> Check | None:
    """The check for a value of this annotation and name; None where there is none."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union_check(name, inner)
    if origin is Literal:
        return lambda field, value: arguments.word(field, value, inner)
    if origin in (Sequence, Iterable) and inner == (str,):
        return _texts
    if origin is Sequence:
        each = check_of(name, inner[0])
        return None if each is None else functools.partial(_several, each)
    if origin is tuple and inner == (str, ...):
        return _tuple_of_texts
    if origin is Callable:
        return _callable
    if origin is Mapping:
        return arguments.text_table if inner == (str, str) else _mapping
    if hint is int and name.endswith("_ms"):
        return _milliseconds
    known: Mapping[Any, Check] = {
        str: arguments.text, int: arguments.integer, bool: arguments.flag, float: arguments.seconds,
    }  # fmt: skip
    if hint in known or not isinstance(hint, type) or hint is object:
        return known.get(hint)
    return functools.partial(_protocol if getattr(hint, "_is_protocol", False) else _instance, hint)


def _union_check(name: str, kinds: Sequence[Any]) -> Check | None:
    """The check of a union; none for one with words, mappings or paths, of which the function itself knows more."""
    may_be_none = types.NoneType in kinds
    left = [kind for kind in kinds if kind is not types.NoneType]
    if len(left) > 1 and not all(kind in (str, int) or get_args(kind) == (str,) for kind in left):
        return None
    texts_too = [kind for kind in left if get_args(kind) == (str,)]
    checks = [check_of(name, kind) for kind in texts_too or left]
    if None in checks:
        return None
    return functools.partial(_any_of, [check for check in checks if check is not None], may_be_none)


def _any_of(checks: Sequence[Check], may_be_none: bool, field: str, value: Any) -> Any:
    if value is None and may_be_none:
        return None
    wanted = []
    for check in checks:
        try:
            return check(field, value)
        except WrongType as wrong:
            if len(checks) == 1:
                raise
            wanted.append(wrong.wanted)
    raise arguments.wrong_type(field, value, " or ".join(wanted))


def _texts(field: str, value: Any) -> str | tuple[str, ...]:
    """Several texts, or one, which the caller may read as several."""
    if isinstance(value, str):
        return arguments.text(field, value)
    return arguments.texts(field, value, _TEXTS)


def _tuple_of_texts(field: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise arguments.wrong_type(field, value, "several texts, as ('one',)")
    return arguments.texts(field, value, "several texts, as ('one',)")


def _several(each: Check, field: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise arguments.wrong_type(field, value, "several, in a list")
    return tuple(each(f"{field}[{number}]", item) for number, item in enumerate(value))


def _mapping(field: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise arguments.wrong_type(field, value, "a mapping, such as a dict")
    return value


def _callable(field: str, value: Any) -> Any:
    if not callable(value):
        raise arguments.wrong_type(field, value, "a function")
    return value


def _milliseconds(field: str, value: Any) -> int:
    if type(value) is not int and (hasattr(value, "timestamp") or isinstance(value, float)):
        arguments.milliseconds(field, value)  # says how to make them
    return arguments.integer(field, value)


def _instance(kind: type[Any], field: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise arguments.wrong_type(field, value, f"a {kind.__name__}")
    return value


def _protocol(kind: type[Any], field: str, value: Any) -> Any:
    """An object with all methods of a protocol; the class of such objects is not one."""
    wanted = [name for name in vars(kind) if not name.startswith("_")] or ["__call__"]
    lacking = wanted if isinstance(value, type) else [name for name in wanted if not hasattr(value, name)]
    if lacking:
        raise arguments.wrong_type(field, value, f"a {kind.__name__}, which has {lacking[0]}")
    return value
