from collections.abc import Callable
from typing import Any, Self

FUNCTIONS: tuple[str, ...]

class Consumer:
    def __new__(cls, functions: tuple[int, ...], properties: dict[str, str], /) -> Self: ...
    def add(self, rows: list[tuple[str, int, int]], /) -> tuple[bytes, bool] | None: ...
    def remove(self, rows: list[tuple[str, int, int]], /) -> tuple[bytes, bool] | None: ...
    def fill(
        self,
        topic: str,
        partition: int,
        timeout_ms: int,
        end: int,
        max_rows: int,
        max_bytes: int,
        columns: int,
        limit: int,
        allocate: Callable[[int], Any],
        /,
    ) -> tuple[Any, ...]: ...
    def position(self, topic: str, partition: int, /) -> int: ...
    def errors(self) -> list[tuple[int, bytes, bool]]: ...
    def close(self) -> None: ...
