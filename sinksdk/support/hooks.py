"""Finds hooks, methods of an author's class that the runtime calls, that can never take effect."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from itertools import islice
from types import AsyncGeneratorType, CoroutineType, FunctionType, GeneratorType
from typing import Any, Final, TypeVar

T = TypeVar("T")

# The runtime never awaits a coroutine, iterates over a generator, or calls a misspelt method: records would
# be committed unwritten.
_INFLECTED: Final = ("s", "d")
_WORDS: Final = frozenset({"step", "shop"})  # names that differ from `stop` by one letter, and are allowed
_FORMER: Final = {"onpartitionsassigned": "open", "onpartitionsrevoked": "close"}
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class HookError(TypeError): ...


def check_hooks(cls: type, base: type) -> None:
    hooks = _public(base)
    for name in hooks:
        own = inspect.getattr_static(cls, name, None)
        if own is not inspect.getattr_static(base, name, None):
            check_function(cls.__qualname__, name, getattr(cls, name, None))
    package = cls.__module__.partition(".")[0]
    for owner in cls.__mro__:
        # An author's mixin is checked too, but not that of another package, which was not written with hooks
        # in mind. The check is not issubclass: for an incomplete ABC that would write the result into its
        # base's cache.
        if owner.__module__.partition(".")[0] != package or owner in base.__mro__:
            continue
        for name, value in vars(owner).items():
            # A name that resembles a hook is the author's own if the class body has the hook, too.
            hook = None if name.startswith("_") or name in hooks else _meant(name, value, base, hooks)
            if hook is not None and hook not in vars(owner):
                raise HookError(
                    f"{owner.__qualname__}.{name} is never used: did you mean '{hook}'? If it is a helper of "
                    f"your own, let its name begin with an underscore"
                )


def check_function(owner: str, name: str, function: object) -> None:
    called = (
        function if inspect.isroutine(function) else inspect.getattr_static(type(function), "__call__", None)
    )
    for candidate in (function, called):
        kind = _lazy_kind(candidate)
        if kind is not None:
            raise HookError(f"{owner}.{name} is {kind}, {_ADVICE}")


def _lazy_kind(function: Any) -> str | None:
    # Only the function itself is checked: a decorator may turn a coroutine into an ordinary function.
    if inspect.isasyncgenfunction(function):
        return "an async generator ('async def' with a 'yield')"
    if inspect.iscoroutinefunction(function):
        return "a coroutine ('async def')"
    if inspect.isgeneratorfunction(function):
        return "a generator (it has a 'yield')"
    return None


_ADVICE: Final = (
    "and the runtime would not run it: write it with 'def' and without 'yield', and do all of its work "
    "before it returns; to await something, call asyncio.run(...) inside of it"
)


async def _nothing() -> AsyncIterator[None]:
    return
    yield


_LAZY_TYPES: Final = (
    map,
    filter,
    zip,
    functools.partial,
    GeneratorType,
    AsyncGeneratorType,
    Awaitable,
    Future,
    # Functions of `contextlib.contextmanager` run only inside a `with`.
    type(contextlib.contextmanager(lambda: iter(()))()),
    type(contextlib.asynccontextmanager(_nothing)()),
)
"""Other iterators, such as cursors, do their work when they are created."""


_CHECKED: Final = 100  # a hook may return a whole batch after each call


def finished(hook: str, result: T) -> T:
    """Return a hook's result. Raises HookError for a coroutine or a generator."""
    if result is None or isinstance(result, (str, bytes, bool, int)):
        return result
    parts: Iterable[object] = (result,)
    if isinstance(result, Mapping):
        parts = islice(result.values(), _CHECKED)
    elif isinstance(result, (list, tuple, AbstractSet, deque)):
        parts = islice(result, _CHECKED)
    for part in {type(part): part for part in parts}.values():  # most batches have one type
        if isinstance(part, _LAZY_TYPES):
            if isinstance(part, (GeneratorType, CoroutineType)):
                part.close()  # otherwise Python warns of it later, and elsewhere
            inside = "" if part is result else f"{type(result).__name__} of "
            raise HookError(
                f"{hook} returned a {inside}{type(part).__name__}, whose work is not done: a hook must do "
                f"all of its work before it returns; to await something, call asyncio.run(...) inside of it"
            )
    return result


def _public(base: type) -> Collection[str]:
    return [name for name in dir(base) if not name.startswith("_") and callable(getattr(base, name))]


def _attributes(base: type) -> Iterator[str]:
    for owner in base.__mro__:
        yield from (name for name in getattr(owner, "__annotations__", ()) if not name.startswith("_"))


def _meant(name: str, value: object, base: type, hooks: Collection[str]) -> str | None:
    attributes = list(_attributes(base))
    if name in attributes or name.isupper():  # an upper-case name is a constant
        return None
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    is_method = callable(function) and not isinstance(function, type)
    known = {_plain(each): each for each in (*attributes, *(hooks if is_method else ()))}
    former = _FORMER.get(_plain(name)) if is_method else None
    found = known.get(_plain(name)) or (former if former in hooks else None)
    if found is not None or not isinstance(function, FunctionType):
        return found
    # Misspelt abstract hooks are left to Python, which refuses a class without them.
    optional = (hook for hook in hooks if not getattr(getattr(base, hook), "__isabstractmethod__", False))
    near = (hook for hook in optional if _is_one_letter_off(name, hook))
    return next((hook for hook in near if _could_be(name, function, hook, getattr(base, hook))), None)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _is_one_letter_off(name: str, hook: str) -> bool:
    if name.startswith(hook) or hook.startswith(name):
        return abs(len(name) - len(hook)) == 1
    if len(name) == len(hook):
        wrong = [at for at, (one, other) in enumerate(zip(name, hook, strict=True)) if one != other]
        if len(wrong) == 1:
            return True
        return wrong == [wrong[0], wrong[0] + 1] and name[wrong[0]] + name[wrong[1]] == (
            hook[wrong[1]] + hook[wrong[0]]
        )
    longer, shorter = sorted((name, hook), key=len, reverse=True)
    return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))


def _could_be(name: str, function: FunctionType, hook: str, original: Callable[..., object]) -> bool:
    if name in _WORDS:
        return False
    own, expected = _parameters(function), _parameters(original)
    longer, shorter = sorted((name, hook), key=len, reverse=True)
    if longer in [shorter + ending for ending in _INFLECTED]:
        return bool(expected) and own == expected  # a plural or a participle is probably a helper's name
    return len(own) == len(expected)


def _parameters(function: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if one.kind in _POSITIONAL][1:]


class BoundMethod:
    """A bound method without a truth value: ``if context.is_closing:`` would always be true."""

    def __init__(self, function: Callable[..., Any], instance: object) -> None:
        self.__func__ = function
        self.__self__ = instance
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function.__get__(instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **named)

    def __bool__(self) -> bool:
        raise self._uncalled()

    def __eq__(self, other: object) -> bool:
        if callable(other):
            return bool(self.__wrapped__ == getattr(other, "__wrapped__", other))
        raise self._uncalled()

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def _uncalled(self) -> TypeError:
        name = self.__name__
        return TypeError(f"context.{name} is a method and was not called: write context.{name}(…)")


class _CalledMethod:
    def __init__(self, function: FunctionType) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: type) -> Any:
        return self._function if instance is None else BoundMethod(self._function, instance)


def guard_methods(cls: type) -> None:
    """Make the public methods of a class raise TypeError where they are used without a call."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        is_abstract = getattr(method, "__isabstractmethod__", False)
        if not name.startswith("_") and isinstance(method, FunctionType) and not is_abstract:
            setattr(cls, name, _CalledMethod(method))
