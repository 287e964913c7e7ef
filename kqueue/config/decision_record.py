"""The section of the configuration file about the record of decisions; it is kqueue's own."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from kqueue.config.duration import Duration
from kqueue.config.section import Section, outside, refuse_any
from kqueue.errors import FieldError

_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=365)
_UPLOAD_BOUNDS = {
    "interval": (timedelta(seconds=10), timedelta(hours=1)),
    "timeout": (timedelta(seconds=1), timedelta(minutes=5)),
}
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
_PREFIX = re.compile(r"[A-Za-z0-9!_.*'()=-]+(/[A-Za-z0-9!_.*'()=-]+)*/?")
_MOST_PREFIX = 512
"""S3 allows names of 1,024 bytes, and the name of a file takes up to 120."""
_REGION = re.compile(r"[a-z0-9-]{1,64}")


class DecisionUploadSettings(Section):
    """The storage to which complete files of the record are sent; it needs the extra `kqueue[s3]`.

    Credentials are never in the file: they come from the environment, a web identity or the machine, as those of all
    programs with boto3.
    """

    bucket: str = ""
    """The bucket.  Empty: nothing is sent."""
    prefix: str = ""
    """The path before all names of objects, without a slash at its begin, such as clusters/east.  Clusters that share a
    bucket need one each."""
    endpoint: str = ""
    """URL of the storage, such as https://minio.storage:9000.  Empty: what the environment of boto3 says, else AWS."""
    region: str = ""
    """The region for which requests are signed.  Empty: what the environment of boto3 says, else us-east-1."""
    path_style: bool = False
    """Whether the bucket is in the path of a URL instead of its host name, which storage of one's own often needs."""
    interval: Duration = timedelta(minutes=1)
    """The time between two looks for complete files, 10s to 1h."""
    timeout: Duration = timedelta(seconds=30)
    """The longest wait for a connection, and for an answer; one file may take ten times as long.  1s to 5m."""

    @model_validator(mode="after")
    def _fields(self) -> Self:
        problems = []
        fields = type(self).model_fields
        if not self.bucket and any(getattr(self, name) != fields[name].default for name in fields):
            problems.append(FieldError("bucket", "must be set, because other fields of the section are"))
        if self.bucket and not _BUCKET.fullmatch(self.bucket):
            rule = "must be the name of a bucket: 3 to 255 letters, digits, dots, dashes and underscores"
            problems.append(FieldError("bucket", rule, self.bucket))
        if self.prefix and not _is_prefix(self.prefix):
            rule = f"must be a path such as clusters/east, of at most {_MOST_PREFIX} characters, without / at its begin"
            problems.append(FieldError("prefix", rule, self.prefix))
        if self.endpoint and (problem := _endpoint_problem(self.endpoint)):
            problems.append(FieldError("endpoint", problem))  # without its value, which may have a password
        if self.region and not _REGION.fullmatch(self.region):
            problems.append(FieldError("region", "must be the name of a region such as eu-west-1", self.region))
        for path, found in (("interval", self.interval), ("timeout", self.timeout)):
            problems += outside(path, found, *_UPLOAD_BOUNDS[path])
        refuse_any(problems)
        return self


def _is_prefix(text: str) -> bool:
    is_path = len(text) <= _MOST_PREFIX and _PREFIX.fullmatch(text) is not None
    return is_path and not {".", ".."} & set(text.split("/"))


def _endpoint_problem(text: str) -> str:
    """Return what is wrong with the URL of a storage; empty: nothing."""
    try:
        url = urlsplit(text)
        has_host = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return "must be a URL such as https://minio.storage:9000"
    if "@" in text:
        return "must not have credentials; give them to the process as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if not (is_plain and has_host and url.scheme in ("http", "https")):
        return "must be a URL with http or https and a host, such as https://minio.storage:9000"
    if url.path not in ("", "/") or url.query or url.fragment:
        return "must end with its host and port; a path belongs to prefix"
    return ""


class DecisionRecordSettings(Section):
    """The record of all plans of the scheduling loop, for `kqueue record`."""

    path: str = ""
    """The folder of the files, as an absolute path; it is made if its parent exists.  Replicas may share it: only the
    leader writes.  Empty: nothing is recorded."""
    max_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = 512 << 20
    """The most bytes of all files, 1 MiB to 1 TiB; the oldest files make room."""
    max_age: Duration = timedelta(hours=48)
    """The age after which files are removed, 10m to 365 days."""
    upload: DecisionUploadSettings = DecisionUploadSettings()

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        problems = []
        if self.path and not PurePosixPath(self.path).is_absolute():
            problems.append(FieldError("path", "must be an absolute path, such as /var/lib/kqueue/record", self.path))
        if not self.path and self.upload.bucket:
            problems.append(FieldError("path", "must be set, because files are uploaded (upload.bucket) from there"))
        problems += outside("maxAge", self.max_age, _SHORTEST, _LONGEST)
        refuse_any(problems)
        return self
