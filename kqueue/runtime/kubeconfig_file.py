"""Reads kubeconfig files, merges them like kubectl, and chooses the entries of one context.

Source of the rules: "Organizing Cluster Access Using kubeconfig Files" of Kubernetes' documentation.  Of several
clusters, users or contexts of one name, and of several current contexts, the first file counts.  Paths are relative to
their file.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kqueue.errors import ConfigError
from kqueue.runtime.access import Pem


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """An entry of a cluster, user or context."""

    what: str
    """Kind and name of the entry, for messages: `cluster 'c'`."""
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    folder: Path = Path()
    """The folder to which paths of the entry are relative."""

    def text(self, key: str) -> str:
        """Return a field; empty when missing.  Raises ConfigError when the field is no text."""
        value = self.fields.get(key)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ConfigError(f"{self.what}: {key} must be a text; put it in quotes")
        return str(value)

    def texts(self, key: str) -> list[str]:
        """Return a field with a list of texts; empty when missing.  Raises ConfigError for other values."""
        value = self.fields.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"{self.what}: {key} must be a list of texts; put them in quotes")
        return list(value)

    def flag(self, key: str) -> bool:
        """Return a boolean field; False when missing.  Raises ConfigError for other values."""
        value = self.fields.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise ConfigError(f"{self.what}: {key} must be true or false")

    def path(self, key: str) -> Path | None:
        """Return the path of a field that names a file; None when missing."""
        named = self.text(key)
        return self.folder / Path(named) if named else None

    def pem(self, key: str) -> Pem | None:
        """Return the decoded value of `KEY-data`, else the content of the file `KEY`; None when both are missing.

        Raises:
            ConfigError: the value or file cannot be read; names field and file.
        """
        data, file = self.text(f"{key}-data"), self.path(key)
        if data:
            try:
                return Pem(base64.b64decode(data))
            except ValueError as e:
                raise ConfigError(f"{self.what}: {key}-data is not base64: {e}") from e
        if file is None:
            return None
        try:
            return Pem(file.read_bytes(), file)
        except OSError as e:
            raise ConfigError(f"{self.what}: {key} {file} cannot be read: {e.strerror or e}") from e


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The entries of all files by name."""

    clusters: Mapping[str, KubeconfigEntry]
    users: Mapping[str, KubeconfigEntry]
    contexts: Mapping[str, KubeconfigEntry]
    current: str
    """Name of the current context; empty for none."""


@dataclass(frozen=True, slots=True)
class SelectedEntries:
    """The entries to use."""

    cluster: KubeconfigEntry
    user: KubeconfigEntry
    namespace: str
    """Empty where none is named."""


def read_kubeconfig(files: Iterable[Path]) -> Kubeconfig:
    """Merge the existing files.

    Raises:
        ConfigError: a file cannot be read, or is no kubeconfig.
    """
    clusters: dict[str, KubeconfigEntry] = {}
    users: dict[str, KubeconfigEntry] = {}
    contexts: dict[str, KubeconfigEntry] = {}
    current = ""
    for file in files:
        if file.is_file():
            document = _document(file.read_bytes, file)
            current = current or str(document.get("current-context") or "")
            _add(clusters, document, "cluster", file)
            _add(users, document, "user", file)
            _add(contexts, document, "context", file)
    return Kubeconfig(clusters, users, contexts, current)


def parse_kubeconfig(content: bytes, name: str) -> Kubeconfig:
    """Return the kubeconfig of a text that is in no file; `name` is its name in messages.

    Raises:
        ConfigError: it is no kubeconfig.
    """
    clusters: dict[str, KubeconfigEntry] = {}
    users: dict[str, KubeconfigEntry] = {}
    contexts: dict[str, KubeconfigEntry] = {}
    document, where = _document(lambda: content, Path(name)), Path(name)
    _add(clusters, document, "cluster", where)
    _add(users, document, "user", where)
    _add(contexts, document, "context", where)
    return Kubeconfig(clusters, users, contexts, str(document.get("current-context") or ""))


def choose(config: Kubeconfig, context: str | None, *, cluster: str = "", user: str = "") -> SelectedEntries:
    """Return the entries of a context (None: of the current one), with another cluster or user where one is named.

    Raises:
        ConfigError: an entry does not exist; names the entry, and the flag to check.
    """
    named = context or config.current
    found = config.contexts.get(named)
    if found is None and (context or not (cluster and user)):
        if not named:
            raise ConfigError("it has no current-context: choose a context with --context")
        raise ConfigError(f"it has no context {named!r}: check --context")
    found = found or KubeconfigEntry(f"context {named!r}")
    where, who = cluster or found.text("cluster"), user or found.text("user")
    return SelectedEntries(
        _named(config.clusters, where, "cluster", by="--cluster" if cluster else found.what),
        _named(config.users, who, "user", by="--user" if user else found.what) if who else KubeconfigEntry("no user"),
        found.text("namespace"),
    )


def _named(entries: Mapping[str, KubeconfigEntry], name: str, kind: str, *, by: str) -> KubeconfigEntry:
    entry = entries.get(name)
    if entry is None:
        raise ConfigError(f"it has no {kind} {name!r}: check {by}")
    return entry


def _document(read: Callable[[], bytes], file: Path) -> Mapping[str, Any]:
    from yaml import YAMLError

    from kqueue.documents import first_document

    try:
        found = first_document(read())
    except (OSError, ValueError, YAMLError) as e:
        raise ConfigError(f"{file} cannot be read: {e}") from e
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(f"{file} is no kubeconfig: clusters, users and contexts are expected")
    return found


def _add(entries: dict[str, KubeconfigEntry], document: Mapping[str, Any], kind: str, file: Path) -> None:
    listed = document.get(f"{kind}s") or []
    if not isinstance(listed, list):
        raise ConfigError(f"{file}: {kind}s must be a list")
    for each in listed:
        if not isinstance(each, dict) or each.get("name") is None:
            raise ConfigError(f"{file}: each of {kind}s needs a name")
        fields = each.get(kind)
        entry = KubeconfigEntry(
            f"{kind} {each['name']!r}", fields if isinstance(fields, dict) else {}, file.absolute().parent
        )
        entries.setdefault(str(each["name"]), entry)
