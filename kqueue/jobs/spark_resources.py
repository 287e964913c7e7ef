"""The resources of Spark's driver and executors, which follow from fields and properties of an application.

Source: `BasicDriverFeatureStep`, `BasicExecutorFeatureStep` and `KubernetesConf` of Spark 3.5 and 4.0.  Fields of
the driver and the executor win over `spec.sparkConf`, and that wins over `spec.memoryOverheadFactor`: the operator
hands them to spark-submit in this order.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kqueue.api.bounds import INT32_MAX, INT64_MAX
from kqueue.core.quantity import parse_quantity
from kqueue.errors import FieldError
from kqueue.jobs.fields import JSON, flag, int_of, mapping, strings, text, whole

DRIVER, EXECUTOR = "driver", "executor"
_MIB = 1 << 20
_LEAST_OVERHEAD = 384
"""Mebibytes of overhead that Spark adds at least."""
_DEFAULT_MEMORY = "1g"
_FACTOR, _FACTOR_WITHOUT_JVM = Fraction(1, 10), Fraction(4, 10)
_EXECUTORS = 2
"""The number of executors without any setting.  Source: `spark.executor.instances` of Spark."""
_MEMORY = re.compile(r"([0-9]{1,19})(b|kb?|mb?|gb?|tb?|pb?)?")
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_DEVICE = re.compile(r"spark\.(driver|executor)\.resource\.([^.]+)\.amount")
_DYNAMIC = "spark.dynamicAllocation.enabled"
_FACTORS = ("spark.{}.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")


class UnreadableSettingError(ValueError):
    """A setting of an application cannot be read."""

    def __init__(self, path: str, problem: str, value: object) -> None:
        super().__init__(f"{path}: {problem}")
        self.problem = FieldError(path, problem, value)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one role."""

    spec: Mapping[str, Any]
    """`spec` of the application."""
    role: str
    """`driver` or `executor`."""

    @property
    def section(self) -> Mapping[str, Any]:
        """Return the fields of the role."""
        return mapping(self.spec, self.role)

    def resources(self) -> JSON:
        """Return requests and limits of Spark's container.

        Raises:
            UnreadableSettingError: a setting is not of the form that Spark and Kubernetes can read.
        """
        memory = f"{self._memory()}Mi"
        requests: JSON = {"cpu": self._cores(), "memory": memory}
        limits: JSON = {"memory": memory}
        core_limit, path = self._setting("coreLimit", f"spark.kubernetes.{self.role}.limit.cores")
        if core_limit is not None:
            limits["cpu"] = _quantity(core_limit, path, "cpu")
        for name, amount in self._devices():
            requests[name] = limits[name] = str(amount)
        return {"requests": requests, "limits": limits}

    def _cores(self) -> str:
        request, path = self._setting("coreRequest", f"spark.kubernetes.{self.role}.request.cores")
        if request is not None:
            return _quantity(request, path, "cpu")
        cores, path = self._setting("cores", f"spark.{self.role}.cores")
        return str(_whole(1 if cores is None else cores, path))

    def _memory(self) -> int:
        """Return the mebibytes of a pod."""
        total = self._mebibytes("memory", f"spark.{self.role}.memory", default=_DEFAULT_MEMORY)
        assert total is not None
        overhead = self._mebibytes("memoryOverhead", f"spark.{self.role}.memoryOverhead")
        if overhead is None:
            overhead = max(int(self._factor() * total), self._least_overhead())
        return total + overhead + (self._more_of_executors() if self.role == EXECUTOR else 0)

    def _mebibytes(self, name: str, property_: str, *, default: str | None = None) -> int | None:
        written, path = self._setting(name, property_)
        written = default if written is None else written
        return None if written is None else _bytes(written, path, _MIB) // _MIB

    def _least_overhead(self) -> int:
        found = self._mebibytes("", f"spark.{self.role}.minMemoryOverhead")
        return _LEAST_OVERHEAD if found is None else found

    def _factor(self) -> Fraction:
        conf = strings(self.spec, "sparkConf")
        keys = [key.format(self.role) for key in _FACTORS]
        found = next(((conf[key], _property(key)) for key in keys if key in conf), None)
        if found is None and text(self.spec, "memoryOverheadFactor"):
            found = text(self.spec, "memoryOverheadFactor"), "spec.memoryOverheadFactor"
        if found is None:
            return _FACTOR_WITHOUT_JVM if self._is_python or text(self.spec, "type") == "R" else _FACTOR
        if not _NUMBER.fullmatch(found[0].strip()):
            raise UnreadableSettingError(found[1], "must be a number such as 0.4", found[0])
        return Fraction(found[0].strip())

    @property
    def _is_python(self) -> bool:
        return text(self.spec, "type") == "Python"

    def _more_of_executors(self) -> int:
        """Return the mebibytes of Python and outside the heap."""
        conf = strings(self.spec, "sparkConf")
        python, outside = "spark.executor.pyspark.memory", "spark.memory.offHeap.size"
        found = 0
        if self._is_python and python in conf:
            found += _bytes(conf[python], _property(python), _MIB) // _MIB
        if conf.get("spark.memory.offHeap.enabled", "").strip().lower() == "true" and outside in conf:
            found += _bytes(conf[outside], _property(outside), 1) // _MIB
        return found

    def _devices(self) -> Iterator[tuple[str, int]]:
        conf = strings(self.spec, "sparkConf")
        for key, amount in sorted(conf.items()):
            device = _DEVICE.fullmatch(key)
            vendor = conf.get(f"{key.removesuffix('amount')}vendor", "")
            if device is not None and device[1] == self.role and vendor:
                yield f"{vendor}/{device[2]}", _whole(amount, _property(key))
        gpu = mapping(self.section, "gpu")
        if text(gpu, "name") and (whole(gpu, "quantity") or 0) > 0:
            yield text(gpu, "name"), whole(gpu, "quantity") or 0

    def _setting(self, name: str, property_: str) -> tuple[object, str]:
        """Return the field or else the property, with its path; None if neither is given."""
        if name and self.section.get(name) is not None:
            return self.section[name], self._at(name)
        return strings(self.spec, "sparkConf").get(property_), _property(property_)

    def _at(self, name: str) -> str:
        return f"spec.{self.role}.{name}"


def executors(spec: Mapping[str, Any]) -> int:
    """Return the number of executors at the start.

    Raises:
        UnreadableSettingError: it is no number.
    """
    given, key = mapping(spec, EXECUTOR).get("instances"), "spark.executor.instances"
    if given is not None:
        return _whole(given, "spec.executor.instances")
    written = strings(spec, "sparkConf").get(key)
    return _EXECUTORS if written is None else _whole(written, _property(key))


def allocates_dynamically(spec: Mapping[str, Any]) -> str:
    """Return the path of the setting by which Spark changes the number of executors; empty: it does not."""
    if flag(spec, "dynamicAllocation", "enabled"):
        return "spec.dynamicAllocation"
    return _property(_DYNAMIC) if strings(spec, "sparkConf").get(_DYNAMIC, "").strip().lower() == "true" else ""


def _property(key: str) -> str:
    return f"spec.sparkConf[{key}]"


def _whole(written: object, path: str) -> int:
    number = int_of(written.strip()) if isinstance(written, str) else written
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= INT32_MAX:
        raise UnreadableSettingError(path, f"must be a whole number from 0 to {INT32_MAX}", written)
    return number


def _quantity(written: object, path: str, resource: str) -> str:
    with contextlib.suppress(ValueError):
        if isinstance(written, str | int) and parse_quantity(written, resource) >= 0:
            return str(written)
    raise UnreadableSettingError(path, "must be a quantity such as 500m or 2", written)


def _bytes(written: object, path: str, default_unit: int) -> int:
    """Return the bytes of a text such as `512m`; a number without a suffix is in `default_unit`."""
    found = _MEMORY.fullmatch(written.strip().lower()) if isinstance(written, str) else None
    amount = 0 if found is None else int(found[1]) * (1 << _UNITS[found[2][0]] if found[2] else default_unit)
    if found is None or amount > INT64_MAX:
        raise UnreadableSettingError(path, "must be an amount of memory such as 512m or 2g", written)
    return amount
