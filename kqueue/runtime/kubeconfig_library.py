"""Gets the identity of kubeconfig users with a plugin (`exec`) or a provider (`auth-provider`) from a client library.

The only module that uses `kubernetes_asyncio`.  Only the needed parts of the library are imported, on first use; a
kubeconfig without such a user needs no part of it.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from kqueue.errors import ConfigError
from kqueue.runtime.access import Identity, Pem
from kqueue.runtime.kubeconfig_file import KubeconfigEntry

_FILES = ("client-certificate", "client-key", "tokenFile")
"""Fields whose values are paths of files."""


def needs_library(user: KubeconfigEntry) -> bool:
    """Whether the identity of a user comes from a plugin or a provider."""
    return "exec" in user.fields or "auth-provider" in user.fields


async def identity_by_library(user: KubeconfigEntry) -> Identity:
    """Run the plugin, or call the provider.

    Raises:
        ConfigError: plugin or provider failed; gives the reason.
    """
    library = _library()
    found: Any = library.Configuration()
    try:
        await library.kube_config.load_kube_config_from_dict(_document(user), client_configuration=found)
    except Exception as e:  # the library raises many types of errors while it parses
        raise ConfigError(f"{user.what}: {e or type(e).__name__}") from e
    return Identity(
        authorization=found.api_key.get("BearerToken"),
        certificate=_pem(found.cert_file),
        key=_pem(found.key_file),
    )


def _document(user: KubeconfigEntry) -> dict[str, Any]:
    """Return a kubeconfig with this user alone and an https server: without https the library reads no certificates."""
    fields: dict[str, Any] = copy.deepcopy(dict(user.fields))
    fields.update({key: str(file) for key in _FILES if (file := user.path(key)) is not None})
    return {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": "https://kubernetes"}}],
        "users": [{"name": "it", "user": fields}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }


def _pem(file: str | None) -> Pem | None:
    return Pem(Path(file).read_bytes(), Path(file)) if file else None


_PARTS = ("kubernetes_asyncio", "kubernetes_asyncio.client")
_RARELY_USED = "urllib3"
"""A module that the library imports, and uses only to encode a user's name and password."""


@cache
def _library() -> SimpleNamespace:
    """Return the parts of the library for plugins and providers: `Configuration`, `kube_config`.

    Importing all of it imports 700 classes of objects, which takes 0.25 s.  So empty packages replace its two packages
    while these parts are imported.  Where `urllib3` is not loaded, the library gets a module that
    imports it on first use: 25 ms of CPU less.
    """
    loaded = {name: sys.modules.pop(name) for name in (*_PARTS, _RARELY_USED) if name in sys.modules}
    root = importlib.util.find_spec("kubernetes_asyncio")
    assert root is not None, "the library is a dependency of kqueue"
    folder = Path(next(iter(root.submodule_search_locations or ())))
    try:
        for name, place in zip(_PARTS, (folder, folder / "client"), strict=True):
            sys.modules[name] = empty = ModuleType(name)
            empty.__path__ = [str(place)]
        sys.modules[_RARELY_USED] = loaded.get(_RARELY_USED) or _on_first_use(_RARELY_USED)
        client: Any = sys.modules[_PARTS[1]]
        client.Configuration = importlib.import_module("kubernetes_asyncio.client.configuration").Configuration
        client.ApiClient = object  # used by functions that are not called here
        config = importlib.import_module("kubernetes_asyncio.config.kube_config")
    finally:
        for name in (*_PARTS, _RARELY_USED):
            sys.modules.pop(name, None)
        sys.modules.update(loaded)
    return SimpleNamespace(Configuration=client.Configuration, kube_config=config)


def _on_first_use(name: str) -> ModuleType:
    """Return a module that imports the module `name` when one of its attributes is read first."""
    module = ModuleType(name)
    module.__dict__["__getattr__"] = lambda attribute: getattr(importlib.import_module(name), attribute)
    return module
