from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from sinksdk import DataException
from sinksdk.source.positions import SourcePosition, as_json, partition_key


def test_json_scalars_are_accepted() -> None:
    partition = MappingProxyType({"file": "ä", "number": 7, "share": 0.5, "open": True, "owner": None})
    position = SourcePosition.of(partition, {})
    assert position.partition == partition
    assert as_json(position.partition) == '{"file":"ä","number":7,"open":true,"owner":null,"share":0.5}'


def test_order_of_fields_does_not_matter() -> None:
    # The values 1 and True are different, although Python's == says otherwise.
    assert partition_key({"a": 1, "b": 2}) == partition_key({"b": 2, "a": 1})
    assert partition_key({"a": 1}) != partition_key({"a": True})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "must be a mapping of names to values, not a NoneType"),
        ("file", "must be a mapping of names to values, not a str"),
        ({1: "x"}, "has an int as a name"),
        ({"file": ["x"]}, "has a list as 'file'; only str, int, float, bool and None can be stored"),
        ({"file": {"name": "x"}}, "has a dict as 'file'"),
        ({"file": b"x"}, "has a bytes as 'file'"),
        ({"share": float("nan")}, "has nan as 'share', which JSON cannot hold"),
        ({"byte": 2**63}, "has a number of more than 64 bits as 'byte'; use a string"),
        ({"byte": 10**5000}, "has a number of more than 64 bits as 'byte'; use a string"),
        ({"file": "\udcff"}, "has a lone surrogate at 'file', which UTF-8 cannot hold"),
        ({"\udcff": 1}, "has a lone surrogate at '\\udcff', which UTF-8 cannot hold"),
    ],
)
def test_other_values_are_refused_by_type(value: Any, problem: str) -> None:
    with pytest.raises(DataException, match=r"^(a|the) source partition") as of_partition:
        partition_key(value)
    assert problem in str(of_partition.value)
    with pytest.raises(DataException, match=r"^(a|the) source offset") as of_offset:
        SourcePosition.of({}, value)
    assert problem in str(of_offset.value)
