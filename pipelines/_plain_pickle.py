"""Pickles of plain data, such as torchvision's folders of CIFAR hold, read without running anything of them.

A pickle is a program, and the library's reader runs it. Here its opcodes are looked at one by one, and the few that
build dictionaries, lists, numbers, texts and arrays of bytes are followed; any other is refused.
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
    """It holds something else than plain data, or is damaged."""


@dataclass(frozen=True)
class _Name:
    """A name that the pickle would import: nothing but a text here."""

    text: str


@dataclass(eq=False)
class _Made:
    """What one of the known names would make of arguments, and the state it would be given."""

    name: str
    arguments: tuple[Any, ...]
    state: Any = None


_MARK = object()


def read_plain(content: bytes) -> dict[Any, Any]:
    """The dictionary of a pickle, with lists, texts, numbers and uint8 arrays in it; texts of Python 2 are bytes.
    `NotPlain` for all others."""
    try:
        return _plain(_followed(content))
    except NotPlain:
        raise
    except Exception as error:  # cut off, or made to break readers
        raise NotPlain(f"is damaged ({type(error).__name__})") from None


def _followed(content: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        place = len(stack) - 1 - next(i for i, item in enumerate(reversed(stack)) if item is _MARK)
        found = stack[place + 1 :]
        del stack[place:]
        return found

    argument: Any
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        if name in ("PROTO", "FRAME"):
            continue
        if name in _PUSHED:
            stack.append(argument.encode("latin-1") if name in ("BINSTRING", "SHORT_BINSTRING", "STRING") else argument)
        elif name in _PUT:
            memo[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in _GET:
            stack.append(memo[int(argument)])
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("NONE", "NEWTRUE", "NEWFALSE"):
            stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name in ("TUPLE", "LIST", "DICT"):
            items = since_mark()
            made = {"TUPLE": tuple, "LIST": list}.get(name)
            stack.append(dict(zip(items[::2], items[1::2], strict=True)) if made is None else made(items))
        elif name in ("APPEND", "APPENDS"):
            items = since_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = since_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            text = argument if name == "GLOBAL" else " ".join((stack.pop(-2), stack.pop()))
            if text not in _ARRAY_PARTS:
                raise NotPlain(f"names {text!r}, which is no plain data")
            stack.append(_Name(text))
        elif name == "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            if not isinstance(called, _Name):
                raise NotPlain("calls something")
            stack.append(_Made(called.text, arguments))
        elif name == "BUILD":
            state = stack.pop()
            if not isinstance(stack[-1], _Made):
                raise NotPlain("builds something")
            stack[-1].state = state
        elif name == "STOP":
            return stack.pop()
        else:
            raise NotPlain(f"has the opcode {name}")
    raise NotPlain("is cut off")


def _plain(found: Any) -> dict[Any, Any]:
    """One level deep: lists and dictionaries may refer to each other, and would grow without end when followed."""
    if not isinstance(found, dict):
        raise NotPlain("holds no dictionary")
    return {_value(key): _value(value) for key, value in found.items()}


def _value(value: Any) -> Any:
    return _array(value) if isinstance(value, _Made) else value


def _array(made: _Made) -> Any:
    """An array of bytes from the state that numpy gives one: version, shape, type, order, content."""
    if made.name == "_codecs encode":  # how protocol 2 of Python 3 writes bytes
        text, encoding = made.arguments
        if encoding not in ("latin1", "latin-1"):
            raise NotPlain(f"holds a text in {encoding}")
        return text.encode("latin-1")
    if not made.name.endswith("_reconstruct"):
        raise NotPlain(f"holds {made.name}")
    _, shape, kind, fortran, content = made.state
    if not isinstance(kind, _Made) or kind.name != "numpy dtype" or _text(kind.arguments[0]) not in ("u1", "|u1"):
        raise NotPlain("holds an array that is none of bytes")
    content = _array(content) if isinstance(content, _Made) else content
    content = content.encode("latin-1") if isinstance(content, str) else content
    return np.frombuffer(content, np.uint8).reshape(shape, order="F" if fortran else "C")


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
