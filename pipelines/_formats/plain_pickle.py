"""Reader for pickles of plain data, such as torchvision's folders of CIFAR, that runs nothing of them.

A pickle is a program, and the library's reader runs it. This reader looks at its opcodes one by one and follows the few
that build dictionaries, lists, numbers, texts and arrays of bytes; any other opcode is refused.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass
from typing import Any

import numpy as np

_ARRAY_PARTS = {
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
    "numpy ndarray",
    "numpy dtype",
    "_codecs encode",
}
_PUSHED = frozenset(
    ("BININT", "BININT1", "BININT2", "INT", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE",
     "BINBYTES", "SHORT_BINBYTES", "BINSTRING", "SHORT_BINSTRING", "STRING")
)  # fmt: skip
_PUT = frozenset(("BINPUT", "LONG_BINPUT", "PUT"))
_GET = frozenset(("BINGET", "LONG_BINGET", "GET"))
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class NotPlain(ValueError):
    """Error for a pickle that is damaged or holds anything but plain data."""


@dataclass(frozen=True)
class _Name:
    """Name that the pickle would import: only a text here."""

    text: str


@dataclass(eq=False)
class _BuiltObject:
    """Object that one of the known names would make of arguments, and the state it would get."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


_MARK = object()


def read_plain(content: bytes) -> dict[Any, Any]:
    """Return the dictionary of a pickle, with lists, texts, numbers and uint8 arrays in it.

    Texts of Python 2 are bytes.

    Raises:
        NotPlain: The pickle holds anything else or is damaged.
    """
    try:
        return _plain(_followed(content))
    except NotPlain:
        raise
    except Exception as error:  # cut off, or made to break readers
        raise NotPlain(f"is damaged ({type(error).__name__})") from None


def _followed(content: bytes) -> Any:
    """Return the object that a pickle builds, from its opcodes alone."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    argument: Any
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        if name == "STOP":
            return stack.pop()

        handled = (
            name in ("PROTO", "FRAME")
            or _push_constant(stack, name, argument)
            or _use_memo(stack, memo, name, argument)
            or _build_container(stack, name)
            or _build_object(stack, name, argument)
        )
        if not handled:
            raise NotPlain(f"has the opcode {name}")

    raise NotPlain("is cut off")


def _push_constant(stack: list[Any], name: str, argument: Any) -> bool:
    """Follow an opcode that pushes a constant, an empty container or a mark; return whether it is one."""
    if name in _PUSHED:
        stack.append(argument.encode("latin-1") if name in ("BINSTRING", "SHORT_BINSTRING", "STRING") else argument)
    elif name == "MARK":
        stack.append(_MARK)
    elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
        stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
    elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
    else:
        return False

    return True


def _use_memo(stack: list[Any], memo: dict[int, Any], name: str, argument: Any) -> bool:
    """Follow an opcode that stores the top of the stack in the memo or fetches it; return whether it is one."""
    if name in _PUT:
        memo[int(argument)] = stack[-1]
    elif name == "MEMOIZE":
        memo[len(memo)] = stack[-1]
    elif name in _GET:
        stack.append(memo[int(argument)])
    else:
        return False

    return True


def _build_container(stack: list[Any], name: str) -> bool:
    """Follow an opcode that builds or extends a tuple, a list or a dictionary; return whether it is one."""
    if name in _TUPLES:
        count = _TUPLES[name]
        stack[-count:] = [tuple(stack[-count:])]
    elif name in ("TUPLE", "LIST", "DICT"):
        items = _pop_to_mark(stack)
        container = {"TUPLE": tuple, "LIST": list}.get(name)
        stack.append(dict(zip(items[::2], items[1::2], strict=True)) if container is None else container(items))
    elif name in ("APPEND", "APPENDS"):
        items = _pop_to_mark(stack) if name == "APPENDS" else [stack.pop()]
        stack[-1].extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        items = _pop_to_mark(stack) if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
        stack[-1].update(zip(items[::2], items[1::2], strict=True))
    else:
        return False

    return True


def _pop_to_mark(stack: list[Any]) -> list[Any]:
    """Remove the topmost mark and all items above it; return these items."""
    mark = len(stack) - 1 - next(i for i, item in enumerate(reversed(stack)) if item is _MARK)
    items = stack[mark + 1 :]
    del stack[mark:]
    return items


def _build_object(stack: list[Any], name: str, argument: Any) -> bool:
    """Follow an opcode that names, calls or fills an object, recording it only; return whether it is one."""
    if name in ("GLOBAL", "STACK_GLOBAL"):
        text = argument if name == "GLOBAL" else " ".join((stack.pop(-2), stack.pop()))
        if text not in _ARRAY_PARTS:
            raise NotPlain(f"names {text!r}, which is no plain data")
        stack.append(_Name(text))
    elif name == "REDUCE":
        arguments, called = stack.pop(), stack.pop()
        if not isinstance(called, _Name):
            raise NotPlain("calls something")
        stack.append(_BuiltObject(called.text, arguments))
    elif name == "BUILD":
        state = stack.pop()
        if not isinstance(stack[-1], _BuiltObject):
            raise NotPlain("builds something")
        stack[-1].state = state
    else:
        return False

    return True


def _plain(found: Any) -> dict[Any, Any]:
    """Return the dictionary one level deep: lists that refer to each other could expand without limit."""
    if not isinstance(found, dict):
        raise NotPlain("holds no dictionary")
    return {_value(key): _value(value) for key, value in found.items()}


def _value(value: Any) -> Any:
    return _array(value) if isinstance(value, _BuiltObject) else value


def _array(built: _BuiltObject) -> Any:
    """Return an array of bytes from the state that numpy gives it: version, shape, type, order, content."""
    if built.name == "_codecs encode":  # how protocol 2 of Python 3 writes bytes
        text, encoding = built.arguments
        if encoding not in ("latin1", "latin-1"):
            raise NotPlain(f"holds a text in {encoding}")
        return text.encode("latin-1")

    if not built.name.endswith("_reconstruct"):
        raise NotPlain(f"holds {built.name}")

    _, shape, kind, fortran, content = built.state
    if (
        not isinstance(kind, _BuiltObject)
        or kind.name != "numpy dtype"
        or _text(kind.arguments[0]) not in ("u1", "|u1")
    ):
        raise NotPlain("holds an array that is none of bytes")

    content = _array(content) if isinstance(content, _BuiltObject) else content
    content = content.encode("latin-1") if isinstance(content, str) else content
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
