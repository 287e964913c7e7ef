"""Read the configuration file strictly; report all mistakes at once, each with its path and its remedy."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kqueue.config.compatible import GROUP, VERSIONS, from_v1beta1
from kqueue.config.gates import parse_gates, resolve_gates
from kqueue.config.model import DEFAULT_NAMESPACE, Configuration, cross_problems, default_namespace_selector
from kqueue.config.names import nearest
from kqueue.config.section import PROBLEMS, Section
from kqueue.config.without_effect import warnings
from kqueue.documents import load_yaml
from kqueue.errors import ConfigError, FieldError

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""File with the namespace of the pod."""


class ConfigFileError(ConfigError):
    """A configuration file is invalid.  Carries every problem, not only the first."""

    def __init__(self, source: str, problems: list[FieldError]) -> None:
        self.source, self.problems = source, problems
        if len(problems) == 1:
            super().__init__(f"{source}: {problems[0]}")
        else:
            lines = "".join(f"\n  {problem}" for problem in problems)
            super().__init__(f"{source} has {len(problems)} problems:{lines}")


def load(path: str | Path | None, *, feature_gates: str = "", namespace_file: Path = NAMESPACE_FILE) -> Configuration:
    """Return the configuration in file `path`, or all defaults when it is None, with everything filled in.

    Args:
        path: a YAML or JSON file.
        feature_gates: the flag's text, `Gate=true,Other=false`; refused when the file has gates of its own.
        namespace_file: the file with the own namespace, read when the configuration does not name it.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or breaks a rule (`ConfigFileError`, with all problems).
    """
    own_namespace = _own_namespace(namespace_file)
    if path is None:
        return parse("", source="--feature-gates", feature_gates=feature_gates, own_namespace=own_namespace)
    text = read_text(Path(path), remedy="give --config the path of a Configuration file")
    return parse(text, source=str(path), feature_gates=feature_gates, own_namespace=own_namespace)


def parse(text: str, *, source: str, feature_gates: str = "", own_namespace: str = DEFAULT_NAMESPACE) -> Configuration:
    """Return the configuration in `text`, as `load` does; `source` is its name in errors.  Empty text: all defaults."""
    data: dict[str, Any] = (
        document_of(text, source) if text else {"apiVersion": f"{GROUP}/v1beta2", "kind": "Configuration"}
    )
    notes, problems = _prepare(data, feature_gates)
    data.setdefault("namespace", own_namespace)
    try:
        # as JSON, because pydantic's strict mode reads lists and numbers there as the file means them
        document = json.dumps(data)
        configuration = Configuration.model_validate_json(document, strict=True, by_alias=True, by_name=False)
    except ValidationError as e:
        problems += [problem for error in e.errors(include_url=False) for problem in _problems(error)]
        raise ConfigFileError(source, problems) from e
    problems += cross_problems(configuration)
    if problems:
        raise ConfigFileError(source, problems)
    return _resolved(configuration, notes)


def read_text(path: Path, *, remedy: str) -> str:
    """Return the text of a file of a user; the error about a missing or empty one ends with `remedy`.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {remedy}") from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {e.start}); save it as UTF-8") from e
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror or e}") from e
    if not text.strip():
        raise ConfigError(f"{path}: is empty; {remedy}")
    return text


def _own_namespace(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE  # not in a pod, or a pod without a service account


if TYPE_CHECKING:
    _FastLoader = yaml.SafeLoader
else:
    _FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # without libyaml there is only the slow one


class _StrictLoader(_FastLoader):
    """YAML loader that refuses duplicate fields."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; a key that is given twice raises."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key.value, str):
                continue  # a list or mapping as key: refused below
            if key.value in lines and key.tag != "tag:yaml.org,2002:merge":
                problem = f"{key.value} is given twice, first on line {lines[key.value]}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def document_of(text: str, source: str) -> dict[str, Any]:
    """Return the Configuration in `text` as written, with apiVersion and kind; `source` is its name in errors.

    Raises:
        ConfigError: it is no YAML, or no Configuration of a version that is read.
    """
    data = mapping_of(text, source, begins="begins with apiVersion and kind")
    _check_kind(data, source)
    return data


def mapping_of(text: str, source: str, *, begins: str) -> dict[str, Any]:
    """Return the only document of a YAML text, a mapping; the error for another text says how one `begins`.

    Raises:
        ConfigError: it is no YAML, or no such document.
    """
    try:
        documents = load_yaml(text, _StrictLoader)
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{source}: not valid YAML:{where}: {e.problem or e.context}") from e
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise ConfigError(f"{source}: not valid YAML: {str(e).splitlines()[0]}") from e
    if len(documents) != 1:
        raise ConfigError(f"{source}: must hold exactly one document, found {len(documents)}")
    if not isinstance(documents[0], dict):
        raise ConfigError(f"{source}: must be a mapping that {begins}")
    return _plain(documents[0], source)


def _plain(data: dict[str, Any], source: str) -> dict[str, Any]:
    """Return `data` as JSON values: keys and dates become text, cycles are refused."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, default=str))
        return plain
    except (ValueError, TypeError, RecursionError) as e:
        raise ConfigError(f"{source}: not valid YAML: {e}") from e


def _check_kind(data: Mapping[str, Any], source: str) -> None:
    problems = []
    if data.get("kind") != "Configuration":
        problems.append(FieldError("kind", "must be Configuration", data.get("kind")))
    accepted = [f"{GROUP}/{version}" for version in VERSIONS]
    if data.get("apiVersion") not in accepted:
        problems.append(FieldError("apiVersion", f"must be {' or '.join(accepted)}", data.get("apiVersion")))
    if problems:
        raise ConfigFileError(source, problems)


def _prepare(data: dict[str, Any], feature_gates: str) -> tuple[list[str], list[FieldError]]:
    """Bring `data` to the shape of the model, in place: (warnings, problems)."""
    version = data.pop("apiVersion").rpartition("/")[2]
    del data["kind"]
    drop_nulls(data)
    notes, problems = from_v1beta1(data) if version == "v1beta1" else ([], [])
    if feature_gates:
        try:
            given = parse_gates(feature_gates)
        except ValueError as e:
            raise ConfigError(f"--feature-gates: {e}") from None
        if data.get("featureGates"):
            problems.append(FieldError("featureGates", "must be left out of the file when --feature-gates is given"))
        data["featureGates"] = given
    _drop_empty_texts(data)
    _drop_what_gates_switch_off(data)
    return notes, problems


def _drop_what_gates_switch_off(data: dict[str, Any]) -> None:
    """Remove sections and fields of disabled features, which are neither checked nor used."""
    gates = data.get("featureGates")
    values = resolve_gates(gates) if isinstance(gates, dict) else {}
    if values.get("DisableWaitForPodsReady") is True:
        data["waitForPodsReady"] = None
    resources = data.get("resources")
    if values.get("QuotaCheckStrategy") is False and isinstance(resources, dict):
        resources.pop("quotaCheckStrategy", None)


_EMPTY_IS_MISSING = (
    ("namespace",),
    ("health", "healthProbeBindAddress"),
    ("health", "readinessEndpointName"),
    ("health", "livenessEndpointName"),
    ("metrics", "bindAddress"),
    ("webhook", "certDir"),
    ("leaderElection", "resourceLock"),
    ("leaderElection", "resourceName"),
    ("internalCertManagement", "webhookServiceName"),
    ("internalCertManagement", "webhookSecretName"),
    ("tls", "minVersion"),
    ("waitForPodsReady", "requeuingStrategy", "timestamp"),
    ("multiKueue", "dispatcherName"),
    ("resources", "quotaCheckStrategy"),
)
"""Fields whose empty text is the default, as in the compatible file: charts write them out with nothing inside."""


def _drop_empty_texts(data: dict[str, Any]) -> None:
    for path in _EMPTY_IS_MISSING:
        section: Any = data
        for step in path[:-1]:
            section = section.get(step) if isinstance(section, dict) else None
        if isinstance(section, dict) and section.get(path[-1]) == "":
            del section[path[-1]]


def drop_nulls(value: object) -> None:
    """Remove the keys of mappings whose value is null, at any depth: null means "not given" in Kubernetes."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        drop_nulls(item)


def _resolved(configuration: Configuration, notes: list[str]) -> Configuration:
    election = configuration.leader_election
    namespace = election.resource_namespace or configuration.namespace
    ready = configuration.wait_for_pods_ready
    selector = configuration.managed_jobs_namespace_selector or default_namespace_selector(configuration.namespace)
    found = (*notes, *warnings(configuration))
    resolved = configuration.model_copy(
        update={
            "leader_election": election.model_copy(update={"resource_namespace": namespace}),
            "managed_jobs_namespace_selector": selector,
            "wait_for_pods_ready": ready and ready.resolved(),
        }
    )
    resolved._warnings = found  # noqa: SLF001  (ours; a private attribute so that no file can set it)
    return resolved


# --- pydantic's errors as messages of kqueue

_WORDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "is required",
    "bool_type": lambda _: "must be true or false, without quotes",
    "int_type": lambda _: "must be a whole number, without quotes",
    "int_from_float": lambda _: "must be a whole number",
    "float_type": lambda _: "must be a number, without quotes",
    "finite_number": lambda _: "must be a finite number",
    "string_type": lambda _: "must be text; put it in quotes",
    "path_type": lambda _: "must be a path",
    "dict_type": lambda _: "must be a mapping",
    "model_type": lambda _: "must be a mapping",
    "tuple_type": lambda _: "must be a list",
    "literal_error": lambda c: f"must be {c['expected']}",
    "greater_than_equal": lambda c: f"must be at least {c['ge']}",
    "less_than_equal": lambda c: f"must be at most {c['le']}",
    "too_long": lambda c: f"must have at most {c['max_length']} entries",
    "too_short": lambda c: f"must have at least {c['min_length']} entries",
    "string_too_short": lambda _: "must not be empty",
    "string_pattern_mismatch": lambda c: f"must match {c['pattern']}",
    "value_error": lambda c: str(c["error"]),
}


def _problems(error: ErrorDetails) -> list[FieldError]:
    path, context, kind = _path(error["loc"]), error.get("ctx", {}), error["type"]
    if kind == PROBLEMS:
        return [FieldError(_join(path, p.path), p.problem, p.value) for p in context[PROBLEMS]]
    if kind == "extra_forbidden":
        return [FieldError(path, _unknown(error["loc"]))]
    words = _WORDS.get(kind)
    problem = words(context) if words else error["msg"][:1].lower() + error["msg"][1:]
    shown = error["input"] if kind != "missing" and not isinstance(error["input"], dict | list) else None
    return [FieldError(path, problem, shown)]


def _join(path: str, rest: str) -> str:
    return f"{path}.{rest}" if path and rest else path or rest


def _path(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc).lstrip(".")


_V1BETA1_SWITCHES: Mapping[tuple[int | str, ...], str] = {
    ("waitForPodsReady", "enable"): "the feature is on, unless feature gate DisableWaitForPodsReady is true",
    ("fairSharing", "enable"): "the feature is on when the section is there, so leave the section out to switch it off",
}


def _unknown(loc: tuple[int | str, ...]) -> str:
    if loc in _V1BETA1_SWITCHES:
        return f"is a field of v1beta1; in v1beta2 {_V1BETA1_SWITCHES[loc]}"
    model: type[Section] = Configuration
    for step in loc[:-1]:
        field = next((f for name, f in model.model_fields.items() if step in (f.alias, name)), None)
        model = (_section_in(field.annotation) or model) if field else model
    known = sorted(f.alias or name for name, f in model.model_fields.items())
    return "unknown field" + (nearest(str(loc[-1]), known) or f"; known here are {', '.join(known)}")


def _section_in(annotation: Any) -> type[Section] | None:
    """Return the section that a field has as value, alone or in a list; None when it has none."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_in, typing.get_args(annotation))), None)
