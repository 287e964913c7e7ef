"""Labels, taints and tolerations as they are written on the command line."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.errors import ConfigError

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def parse_labels(values: Iterable[str], flag: str) -> dict[str, str]:
    """Parse values of the form `KEY=VALUE,KEY=VALUE`; a VALUE may be empty.  Errors name `flag`.

    Raises:
        ConfigError: a part has another form, or a key is used twice.
    """
    found: dict[str, str] = {}
    for part in _parts(values):
        key, equals, value = part.partition("=")
        if not (key and equals):
            raise ConfigError(f"{flag} {part!r}: write KEY=VALUE, several separated by commas")
        if key in found:
            raise ConfigError(f"{flag} names {key} twice")
        found[key] = value
    return found


def parse_taints(values: Iterable[str], flag: str) -> list[dict[str, str]]:
    """Parse values of the form `KEY[=VALUE]:EFFECT,...`.  Errors name `flag`.

    Raises:
        ConfigError: a part has another form, or key and effect are used twice.
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for part in _parts(values):
        rest, colon, effect = part.rpartition(":")
        key, value = _key_and_value(part, rest, flag)
        if not (key and colon):
            raise ConfigError(f"{flag} {part!r}: write KEY=VALUE:EFFECT or KEY:EFFECT, several separated by commas")
        _check_effect(part, effect, flag)
        if (key, effect) in found:
            raise ConfigError(f"{flag} names {key}:{effect} twice")
        found[key, effect] = {"key": key, **({"value": value} if value else {}), "effect": effect}
    return list(found.values())


def parse_tolerations(values: Iterable[str], flag: str) -> list[dict[str, str]]:
    """Parse values of the form `KEY[=VALUE][:EFFECT],...` or `:EFFECT`.  Errors name `flag`.

    With key and value the operator is Equal, else Exists.  Without effect all effects are tolerated, without key all
    keys.

    Raises:
        ConfigError: a part has another form.
    """
    return [_toleration(part, flag) for part in _parts(values)]


def _toleration(part: str, flag: str) -> dict[str, str]:
    rest, colon, effect = part.rpartition(":") if ":" in part else (part, "", "")
    key, value = _key_and_value(part, rest, flag)
    if not key and (value or not colon):
        raise ConfigError(f"{flag} {part!r}: write KEY=VALUE:EFFECT, KEY:EFFECT, KEY=VALUE, KEY or :EFFECT")
    if colon:
        _check_effect(part, effect, flag)
    found = {"key": key, "operator": "Equal" if value else "Exists", "value": value, "effect": effect}
    return {name: text for name, text in found.items() if text}


def _key_and_value(part: str, text: str, flag: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if equals and not value:
        raise ConfigError(f"{flag} {part!r}: there is no value behind =; leave = out, or give one")
    return key, value


def _check_effect(part: str, effect: str, flag: str) -> None:
    if effect not in _EFFECTS:
        raise ConfigError(f"{flag} {part!r}: there is no effect {effect!r}; known are {', '.join(_EFFECTS)}")


def _parts(values: Iterable[str]) -> list[str]:
    return [part.strip() for value in values for part in value.split(",")]
