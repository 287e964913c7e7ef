"""Users of a kubeconfig that need a plugin (`exec`) or a provider (`auth-provider`): the client library knows them.

The one module that knows `kubernetes_asyncio`.  Of the library only the parts that are needed are imported, on first
use; a kubeconfig without such a user needs none of it.
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
from kqueue.runtime.kubeconfig_file import Entry

_FILES = ("client-certificate", "client-key", "tokenFile")
"""Fields that name files."""


def needs_library(user: Entry) -> bool:
    """Whether the identity of a user comes from a plugin or a provider."""
    return "exec" in user.fields or "auth-provider" in user.fields


async def identity_by_library(user: Entry) -> Identity:
    """Run the plugin, or ask the provider.

    Raises:
        ConfigError: that failed; says why.
    """
    library = _library()
    found: Any = library.Configuration()
    try:
        await library.kube_config.load_kube_config_from_dict(_document(user), client_configuration=found)
    except Exception as e:  # the library raises whatever its parsing stumbles over
        raise ConfigError(f"{user.what}: {e or type(e).__name__}") from e
    return Identity(
        authorization=found.api_key.get("BearerToken"),
        certificate=_pem(found.cert_file),
        key=_pem(found.key_file),
    )


def _document(user: Entry) -> dict[str, Any]:
    """A kubeconfig of this user alone, with a server over TLS: for others the library reads no certificates."""
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
"""What the library imports, and uses only to encode a user's name and password."""


@cache
def _library() -> SimpleNamespace:
    """The parts of the library that know plugins and providers: `Configuration`, `kube_config`.

    Importing all of it imports 700 classes of objects, which takes 0.25 s.  So empty packages stand in for its two
    packages while these parts are imported.  Where `urllib3` is not loaded, the library gets a module that
    imports it on first use: 25 ms of CPU less.
    """
    loaded = {name: sys.modules.pop(name) for name in (*_PARTS, _RARELY_USED) if name in sys.modules}
    root = importlib.util.find_spec("kubernetes_asyncio")
    assert root is not None, "kqueue is installed with what it needs"
    folder = Path(next(iter(root.submodule_search_locations or ())))
    try:
        for name, place in zip(_PARTS, (folder, folder / "client"), strict=True):
            sys.modules[name] = empty = ModuleType(name)
            empty.__path__ = [str(place)]
        sys.modules[_RARELY_USED] = loaded.get(_RARELY_USED) or _on_first_use(_RARELY_USED)
        client: Any = sys.modules[_PARTS[1]]
        client.Configuration = importlib.import_module("kubernetes_asyncio.client.configuration").Configuration
        client.ApiClient = object  # named by functions that are not called here
        config = importlib.import_module("kubernetes_asyncio.config.kube_config")
    finally:
        for name in (*_PARTS, _RARELY_USED):
            sys.modules.pop(name, None)
        sys.modules.update(loaded)
    return SimpleNamespace(Configuration=client.Configuration, kube_config=config)


def _on_first_use(name: str) -> ModuleType:
    """A module whose attributes are those of the module `name`, which is imported when one of them is read."""
    module = ModuleType(name)
    module.__dict__["__getattr__"] = lambda attribute: getattr(importlib.import_module(name), attribute)
    return module
