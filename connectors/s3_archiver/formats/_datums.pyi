from collections.abc import Callable
from typing import Any

def encode(order: tuple[bytes, int, Callable[[int], Any], tuple[Any, ...]], /) -> tuple[Any, Any] | int: ...
def values(
    order: tuple[int, bytes, bytes, int, Callable[[int], Any], tuple[Any, ...] | None], /
) -> tuple[Any, Any, Any]: ...
