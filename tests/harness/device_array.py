"""An array that is as strict as those of a GPU are: it takes part in NumPy's dispatch and in nothing else.

CuPy's arrays refuse to become NumPy arrays by themselves, mix with none, and take Python's and NumPy's own numbers but
no enumeration. Reductions give arrays without axes. What runs on this class to the same bits runs there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

_NUMBERS = (int, float, bool)
_FROM_PROCESSOR = (np.array, np.asarray)
"""The functions that copy from the processor on purpose."""


class DeviceArray(NDArrayOperatorsMixin):
    """`kept` is the array that stands for the device's memory."""

    def __init__(self, kept: np.ndarray) -> None:
        self.kept = kept

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("implicit conversion of a device's array to a NumPy array")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or set(kwargs) - {"out", "dtype", "casting"}:
            raise TypeError(f"{ufunc.__name__}.{method} with {sorted(kwargs)} is not there on a device")
        out = kwargs.pop("out", None)
        if out is not None:
            kwargs["out"] = tuple(_taken(one) for one in out)
        return _given(ufunc(*[_taken(one) for one in inputs], **kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if "device" in kwargs:
            raise TypeError(
                f"{func.__name__} with like= names a device, as np.full and np.ones do, which CuPy's do not"
            )
        if func in _FROM_PROCESSOR:
            values, *rest = args
            return DeviceArray(func(getattr(values, "kept", values), *rest, **kwargs))
        taken = {name: _taken(value) for name, value in kwargs.items()}
        return _given(func(*[_taken(one) for one in args], **taken))

    def __getitem__(self, place: Any) -> DeviceArray:
        found = self.kept[_place(place)]
        return DeviceArray(found if isinstance(found, np.ndarray) else np.asarray(found))

    def __setitem__(self, place: Any, value: Any) -> None:
        self.kept[_place(place)] = _taken(value)

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "dtype", "ndim", "size"):
            return getattr(self.kept, name)
        if name == "T":
            return DeviceArray(self.kept.T)
        if name not in ("all", "any", "argmax", "astype", "clip", "copy", "max", "min", "reshape", "sum", "view"):
            raise AttributeError(name)
        method = getattr(self.kept, name)
        return lambda *args, **kwargs: _given(method(*map(_taken, args), **{k: _taken(v) for k, v in kwargs.items()}))

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.kept)

    def __int__(self) -> int:
        return int(self.kept)


def _taken(value: Any) -> Any:
    """What is behind an argument. TypeError for what a device would refuse."""
    if isinstance(value, DeviceArray):
        return value.kept
    if isinstance(value, (list, tuple)):
        return type(value)(_taken(one) for one in value)
    if value is None or isinstance(value, (str, type, np.dtype, np.generic)) or type(value) in _NUMBERS:
        return value
    raise TypeError(f"{type(value).__name__} {value!r} is mixed with arrays of a device")


def _place(place: Any) -> Any:
    """An index; lists and arrays of constants are copied to the device."""
    if isinstance(place, tuple):
        return tuple(_place(one) for one in place)
    return place.kept if isinstance(place, DeviceArray) else place


def _given(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return DeviceArray(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return type(value)(_given(one) for one in value)
    return value


def to_device(table: Any) -> Any:
    """The same table with arrays of the device, copied."""
    names = [field.name for field in dataclasses.fields(table)]
    return type(table)(*[DeviceArray(getattr(table, name).copy()) for name in names])
