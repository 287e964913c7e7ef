"""S3-compatible storage by boto3.  This is the only module that knows the package, which is optional."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any

from kqueue.errors import ConfigError
from kqueue.printable import printable
from kqueue.record.store import StoreError

_PIECE = 1 << 20
_TIMES_LONGER = 10
"""One file may take so many times as long as one answer."""
_AGAIN = frozenset({408, 425, 429})
"""Answers below 500 after which another try may help."""
_MOST_WORDS = 300
_KEYS = "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of the controller, or the account of its web identity"
_RIGHTS = "give the account of the controller s3:PutObject on the prefix of decisionRecord.upload"
_BUSY = "kqueue tries again; if it lasts, look at the load of the storage"
_REMEDIES: Mapping[str, str] = {
    "NoSuchBucket": "create the bucket, or correct decisionRecord.upload.bucket",
    "InvalidBucketName": "correct decisionRecord.upload.bucket",
    "InvalidAccessKeyId": _KEYS,
    "SignatureDoesNotMatch": _KEYS,
    "ExpiredToken": _KEYS,
    "XAdminUserNotFound": _KEYS,  # versitygw, for an unknown key
    "NoCredentialsError": _KEYS,
    "PartialCredentialsError": _KEYS,
    "AccessDenied": _RIGHTS,
    "AuthorizationHeaderMalformed": "correct decisionRecord.upload.region",
    "PermanentRedirect": "correct decisionRecord.upload.region",
    "RequestTimeTooSkewed": "set the clock of the node, or that of the storage",
    "ProfileNotFound": "correct AWS_PROFILE of the controller",
    "EndpointConnectionError": "correct decisionRecord.upload.endpoint, or allow its port in networkPolicy.egress",
    "SSLError": "set AWS_CA_BUNDLE of the controller to the certificate of the storage",
    "ConnectTimeoutError": "correct decisionRecord.upload.endpoint, or raise decisionRecord.upload.timeout",
    "ReadTimeoutError": "raise decisionRecord.upload.timeout, or look at the load of the storage",
    "TimeoutError": "raise decisionRecord.upload.timeout, or look at the load of the storage",
}
"""By code of the storage or class of the client's error."""
_OTHER_REMEDY = "look at the log of the storage, and at decisionRecord.upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Where objects are stored; times in seconds.

    Args:
        prefix: empty, or a path that ends with a slash.
        endpoint: the URL of the storage; empty: AWS, or what the environment of boto3 says.
        region: empty: what the environment of boto3 says.
        path_style: whether the bucket is in the path of a URL.
        timeout: the longest wait for a connection, and for an answer.
    """

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    region: str = ""
    path_style: bool = False
    timeout: float = 30.0


def problem_with_package() -> str:
    """Return why no file can be sent from this machine, with the remedy; empty: nothing is missing."""
    try:
        import_module("boto3")
    except ImportError:
        return "sending files needs another package: pip install 'kqueue[s3]', or leave the section out"
    return ""


class S3Store:
    """A bucket.  Credentials are found and renewed by boto3: environment, web identity, files, machine."""

    def __init__(self, settings: S3Settings) -> None:
        """Load the client, which holds the caller for some tenths of a second.  No request is sent.

        Raises ConfigError: the package is missing.
        """
        if problem := problem_with_package():
            raise ConfigError(f"decisionRecord.upload: {problem}")
        import boto3

        self._settings = settings
        self._making = threading.Lock()
        self._client: Any = None
        self._session = boto3.session.Session()
        # The descriptions of the API are parsed once for each session, and would hold a running event loop.
        self._make_client(aws_access_key_id="none", aws_secret_access_key="none")  # noqa: S106

    @property
    def place(self) -> str:
        """The place for people and for the state of an uploader."""
        found = self._settings
        return f"{found.endpoint or 'AWS'}/{found.bucket}/{found.prefix}"

    def put(self, name: str, path: Path) -> None:
        """Store a file in one request with its MD5, so that the storage refuses bytes that changed on the way."""
        from botocore.exceptions import BotoCoreError, ClientError

        settings = self._settings
        with _LimitedFile(path, settings.timeout * _TIMES_LONGER) as file:
            try:
                self._ready_client().put_object(
                    Bucket=settings.bucket,
                    Key=f"{settings.prefix}{name}",
                    Body=file,
                    ContentMD5=file.md5(),
                    ContentType="application/octet-stream",
                )
            except ClientError as e:
                raise _refused(e.response) from e
            except (BotoCoreError, TimeoutError) as e:
                self._client = None  # the next one looks for credentials anew
                words = _with_remedy(f"{type(e).__name__}: {e}", type(e).__name__)
                raise StoreError(words, is_final=_needs_change(e)) from e

    def _ready_client(self) -> Any:
        with self._making:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    def _make_client(self, **credentials: str) -> Any:
        from botocore.config import Config

        settings = self._settings
        return self._session.client(
            "s3",
            endpoint_url=settings.endpoint or None,
            region_name=settings.region or None,
            config=Config(
                connect_timeout=settings.timeout,
                read_timeout=settings.timeout,
                retries={"total_max_attempts": 1},  # the uploader tries again
                s3={"addressing_style": "path" if settings.path_style else "auto"},
                # storage of other makers refuses checksums that it does not know; MD5 is known to all
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
            **credentials,
        )


class _LimitedFile(FileIO):
    """A file whose reading ends with TimeoutError after so many seconds: a slow storage must not hold it for ever."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__(path, "rb")
        self._until = time.monotonic() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes."""
        if time.monotonic() > self._until:
            raise TimeoutError("the storage took the file too slowly")
        return super().read(-1 if size is None else size) or b""

    def md5(self) -> str:
        """Return the MD5 of the file as S3 wants it."""
        digest = hashlib.md5(usedforsecurity=False)
        while piece := self.read(_PIECE):
            digest.update(piece)
        self.seek(0)
        return base64.b64encode(digest.digest()).decode()


def _needs_change(error: Exception) -> bool:
    from botocore import exceptions

    kinds = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.ParamValidationError,
        exceptions.ProfileNotFound,
    )
    return isinstance(error, kinds)


def _refused(response: Any) -> StoreError:
    error, status = response.get("Error", {}), response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(error.get("Code", "unknown"))
    is_final = 400 <= status < 500 and status not in _AGAIN
    words = _with_remedy(f"{code} ({status}): {error.get('Message', '')}", code, _OTHER_REMEDY if is_final else _BUSY)
    return StoreError(words, is_final=is_final)


def _with_remedy(text: str, problem: str, otherwise: str = _OTHER_REMEDY) -> str:
    """Return the words of the storage, cut to a length, and what to do."""
    return f"{printable(text)[:_MOST_WORDS]}; {_REMEDIES.get(problem, otherwise)}"
