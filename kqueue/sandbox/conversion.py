"""Conversion of custom objects between versions, by the webhook that their definition names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from kqueue.sandbox import failure
from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoredObject
from kqueue.sandbox.webhook_client import CallError, WebhookClient, WebhookTarget, target_of

SECONDS = 30.0
"""Time limit of a call, as in the real server."""
AT_ONCE = 500
"""Most objects of one review."""
API_VERSION = "apiextensions.k8s.io/v1"
_CHANGEABLE = ("labels", "annotations")
"""The metadata that a conversion may change."""


class Converter:
    """Knows the conversion webhook of each custom kind, by its storage."""

    def __init__(self, client: WebhookClient, new_uid: Callable[[], str]) -> None:
        self._client, self._new_uid = client, new_uid
        self._targets: dict[str, WebhookTarget] = {}

    def learn(self, storage: str, definition: Object | None) -> None:
        """Note the webhook of a definition; None: the definition is gone."""
        self._targets.pop(storage, None)
        conversion = (definition or {}).get("spec", {}).get("conversion") or {}
        if conversion.get("strategy") == "Webhook":
            self._targets[storage] = target_of(conversion["webhook"]["clientConfig"])

    async def prepare(self, kind: ServedKind, records: Iterable[StoredObject]) -> None:
        """Convert stored objects, so that `kind.shown` has them.

        Raises:
            ServerError: the webhook failed.
        """
        missing = [r for r in records if not kind.is_as_stored(r) and kind.api_version not in r.forms]
        for first in range(0, len(missing), AT_ONCE):
            portion = missing[first : first + AT_ONCE]
            for record, found in zip(
                portion, await self.convert(kind, [r.obj for r in portion], kind.api_version), strict=True
            ):
                record.forms[kind.api_version] = found

    async def convert(self, kind: ServedKind, objects: Sequence[Object], api_version: str) -> list[Object]:
        """Return objects in another version, in their order.

        Raises:
            ServerError: the webhook failed.
        """
        try:
            return await self._convert(kind, objects, api_version)
        except CallError as error:
            name = f"{objects[0]['apiVersion']}, Kind={kind.kind}"
            raise failure.internal(f"conversion webhook for {name} failed: {error}") from error

    async def _convert(self, kind: ServedKind, objects: Sequence[Object], api_version: str) -> list[Object]:
        target = self._targets.get(kind.storage)
        if target is None:
            raise CallError("the definition names none")
        request = {"uid": self._new_uid(), "desiredAPIVersion": api_version, "objects": list(objects)}
        review = {"apiVersion": API_VERSION, "kind": "ConversionReview", "request": request}
        found = _objects(await self._client.post(target, review, SECONDS), request["uid"])
        if len(found) != len(objects):
            raise CallError(f"expected {len(objects)} converted objects, got {len(found)}")
        return [_checked(old, new, api_version) for old, new in zip(objects, found, strict=True)]


def _objects(text: bytes, uid: object) -> list[Object]:
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise CallError(f"the answer is not JSON: {text[:100]!r}") from error
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict) or answer.get("kind") != "ConversionReview":
        raise CallError("the answer is not a ConversionReview with a response")
    if answer.get("apiVersion") != API_VERSION:
        raise CallError(f"expected apiVersion {API_VERSION}, got {answer.get('apiVersion')}")
    if response.get("uid") != uid:
        raise CallError(f'expected response.uid="{uid}", got "{response.get("uid")}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise CallError(str(result.get("message") or "the webhook gave no reason"))
    found = response.get("convertedObjects")
    if not isinstance(found, list) or not all(isinstance(obj, dict) for obj in found):
        raise CallError("convertedObjects is not a list of objects")
    return found


def _checked(old: Object, new: Object, api_version: str) -> Object:
    """Return a converted object with the metadata that a conversion must not change.

    Raises:
        CallError: the object is another one, or in another version.
    """
    if (new.get("apiVersion"), new.get("kind")) != (api_version, old["kind"]):
        raise CallError(f"expected {api_version} {old['kind']}, got {new.get('apiVersion')} {new.get('kind')}")
    sent, found = old["metadata"], new.get("metadata")
    if not isinstance(found, dict):
        raise CallError("a converted object has no metadata")
    for key in ("name", "namespace", "uid"):
        if sent.get(key) != found.get(key):
            raise CallError(f"metadata.{key} of a converted object is {found.get(key)!r}, not {sent.get(key)!r}")
    kept = {key: value for key, value in sent.items() if key not in _CHANGEABLE}
    return {**new, "metadata": kept | {key: found[key] for key in _CHANGEABLE if key in found}}
