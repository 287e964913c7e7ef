"""Renewal of certificates: step by step, by any number of replicas, without a moment in which nobody is trusted."""

from __future__ import annotations

import base64
import random
import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from kqueue.clock import FakeClock
from kqueue.errors import AlreadyExistsError, ConfigError, ConflictError, NotFoundError, UnreachableError
from kqueue.runtime.certificate_keeper import CertificateKeeper
from kqueue.runtime.certificate_secret import MemoryShelf, SecretShelf, holding_of
from kqueue.runtime.certificates import Bundle, make_bundle
from kqueue.runtime.rotation import CertificateHolding, Rhythm, next_step, split_authorities

NAMES = ["hooks.kueue-system.svc", "127.0.0.1"]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RHYTHM = Rhythm(valid=timedelta(days=10), renew_before=timedelta(days=2), pause=timedelta(seconds=60))


def bundle(*, made: datetime = NOW, names: list[str] = NAMES) -> Bundle:
    return make_bundle(names, now=made, valid=RHYTHM.valid)


def step(held: CertificateHolding, *, after: timedelta = timedelta(0), told: bool = False) -> CertificateHolding | None:
    return next_step(held, NAMES, NOW + after, RHYTHM, told=told)


def test_the_first_certificate_is_made_at_once() -> None:
    """There is nobody yet who could lose trust."""
    made = step(CertificateHolding())

    assert made is not None
    assert made.current is not None
    assert (made.current.not_after - NOW, made.upcoming, made.authorities) == (RHYTHM.valid, None, made.current.ca)


@pytest.mark.parametrize(
    ("after", "names", "begins"),
    [
        pytest.param(timedelta(days=7, hours=23), NAMES, False, id="young"),
        pytest.param(timedelta(days=8), NAMES, True, id="near-its-end"),
        pytest.param(timedelta(0), NAMES[:1], True, id="not-for-all-names"),
        pytest.param(timedelta(0), [*NAMES, "old.example.com"], False, id="for-more-names"),
    ],
)
def test_a_renewal_begins_with_telling_of_it(after: timedelta, names: list[str], begins: bool) -> None:
    """The old certificate is served meanwhile, and both authorities are told."""
    old = bundle(names=names)
    begun = step(CertificateHolding(current=old), after=after)

    assert (begun is not None) is begins
    if begun is not None:
        assert (begun.current, begun.announced) == (old, NOW + after)
        assert begun.upcoming is not None
        assert split_authorities(begun.authorities) == (old.ca, begun.upcoming.ca)


@pytest.mark.parametrize(
    ("seconds", "told", "switches"),
    [
        pytest.param(59, True, False, id="too-early"),
        pytest.param(3600, False, False, id="nobody-was-told"),
        pytest.param(60, True, True, id="told-and-waited-for"),
    ],
)
def test_the_new_certificate_is_served_after_a_pause(seconds: int, told: bool, switches: bool) -> None:
    """API servers hear of an authority by watch; the old one stays trusted, as replicas follow one by one."""
    old, new = bundle(), bundle()
    held = CertificateHolding(current=old, upcoming=new, announced=NOW)
    switched = step(held, after=timedelta(seconds=seconds), told=told)

    assert switched == (CertificateHolding(current=new, retired=(old.ca,)) if switches else None)


def test_an_authority_is_told_until_it_expires() -> None:
    """Then it is dropped, in a step of its own."""
    old, new = bundle(made=NOW - timedelta(days=9)), bundle()
    held = CertificateHolding(current=new, retired=(old.ca, b"-----BEGIN CERTIFICATE-----\nrubbish"))
    cleaned = step(CertificateHolding(current=new, retired=(old.ca,)), after=timedelta(days=1))

    assert step(CertificateHolding(current=new, retired=(old.ca,))) is None
    assert cleaned == CertificateHolding(current=new)
    assert step(held) == CertificateHolding(current=new, retired=(old.ca,))


def test_after_the_end_nothing_is_waited_for() -> None:
    """A process that was stopped for months serves what was prepared, or something new, at once."""
    old, new = bundle(made=NOW - timedelta(days=11)), bundle()
    prepared = step(CertificateHolding(current=old, upcoming=new, announced=NOW))
    afresh = step(CertificateHolding(current=old))

    assert prepared == CertificateHolding(current=new)
    assert afresh is not None
    assert afresh.current not in (None, old)


class Cluster:
    """The Secret and what the API server trusts; replicas share both."""

    def __init__(self) -> None:
        self.secret: dict[str, object] | None = None
        self.version = 0
        self.trusted = b""
        self.told = 0
        self.down = False
        self.conflicts = 0

    async def get_json(self, _resource: object, _name: str, _namespace: str) -> dict[str, object]:
        self._reach()
        if self.secret is None:
            raise NotFoundError("none", status=404)
        return {"metadata": {"resourceVersion": str(self.version)}, "data": dict(self.secret)}

    async def create(self, _resource: object, obj: dict[str, dict[str, object]]) -> None:
        self._reach()
        if self.secret is not None:
            self.conflicts += 1
            raise AlreadyExistsError("there", status=409)
        self.secret, self.version = dict(obj["data"]), self.version + 1

    async def patch(self, _resource: object, _name: str, patch: dict[str, dict[str, object]], _namespace: str) -> None:
        self._reach()
        if patch["metadata"]["resourceVersion"] != str(self.version):
            self.conflicts += 1
            raise ConflictError("changed", status=409)
        assert self.secret is not None
        merged = self.secret | patch["data"]
        self.secret, self.version = {k: v for k, v in merged.items() if v is not None}, self.version + 1

    async def announce(self, authorities: bytes) -> None:
        self._reach()
        self.told += 1
        self.trusted = authorities

    def _reach(self) -> None:
        if self.down:
            raise UnreachableError("down")


class Replica:
    """One webhook process."""

    def __init__(self, cluster: Cluster, clock: FakeClock) -> None:
        self.cluster, self.served = cluster, list[Bundle]()
        shelf = SecretShelf(cluster, "kueue-system", "hooks")  # type: ignore[arg-type]
        self.keeper = CertificateKeeper(shelf, names=NAMES, serve=self.served.append, clock=clock, rhythm=RHYTHM)

    async def look(self) -> None:
        await self.keeper.look(self.cluster.announce)


def is_trusted(cluster: Cluster, replica: Replica, now: datetime) -> bool:
    """Whether what a replica serves is signed by an authority that is told, and has not expired."""
    served = x509.load_pem_x509_certificate(replica.served[-1].certificate)
    for pem in split_authorities(cluster.trusted):
        authority = x509.load_pem_x509_certificate(pem)
        if authority.subject == served.issuer and authority.public_key() is not None:
            try:
                served.verify_directly_issued_by(authority)
            except Exception:  # noqa: BLE001 - another authority of the same name
                continue
            return served.not_valid_after_utc > now
    return False


@pytest.mark.parametrize("seed", range(5))
async def test_replicas_renew_for_years_and_are_always_trusted(seed: int) -> None:
    """They look in any order, at any time; now and then the API server is away.  Renewals happen, one at a time."""
    chance, clock, cluster = random.Random(seed), FakeClock(NOW), Cluster()
    replicas = [Replica(cluster, clock) for _ in range(3)]
    for replica in replicas:
        await replica.keeper.load()
    for replica in replicas:
        await replica.look()
    for _ in range(400):
        await clock.advance(chance.choice([1, 20, 3600, 86_400 / 2]))
        cluster.down = chance.random() < 0.1
        for replica in chance.sample(replicas, 3):
            try:
                await replica.look()
            except UnreachableError:
                assert cluster.down
            assert is_trusted(cluster, replicas[0], clock.now())
    cluster.down = False
    for replica in replicas * 2:
        await replica.look()

    assert all(is_trusted(cluster, replica, clock.now()) for replica in replicas)
    assert len({replica.served[-1].certificate for replica in replicas}) == 1
    assert len(replicas[0].served) > 3
    assert len(split_authorities(cluster.trusted)) <= 4


async def test_two_replicas_that_begin_at_once_share_one_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one finds out, and takes what there is."""
    cluster, clock = Cluster(), FakeClock(NOW)
    first, second = Replica(cluster, clock), Replica(cluster, clock)
    read = cluster.get_json
    late = [NotFoundError("none", status=404)]

    async def stale(*args: str) -> dict[str, object]:
        if late:
            raise late.pop()
        return await read(*args)

    await first.keeper.load()
    monkeypatch.setattr(cluster, "get_json", stale)
    await second.keeper.load()

    assert (cluster.conflicts, first.served) == (1, second.served)


async def test_of_two_replicas_that_renew_at_once_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower one's certificate is never stored, and it goes on with the other's."""
    cluster, clock = Cluster(), FakeClock(NOW)
    first, second = Replica(cluster, clock), Replica(cluster, clock)
    await first.keeper.load()
    await second.keeper.load()
    await clock.advance(timedelta(days=8).total_seconds())
    read, stale = cluster.get_json, [await cluster.get_json(None, "", "")]
    await first.look()
    begun = dict(cluster.secret or {})

    async def outdated(*args: str) -> dict[str, object]:
        return stale.pop() if stale else await read(*args)

    monkeypatch.setattr(cluster, "get_json", outdated)
    await second.look()

    assert (cluster.conflicts, stale) == (1, [])
    assert cluster.secret == begun


async def test_a_secret_that_a_chart_made_empty_is_filled() -> None:
    """And one whose contents nobody can use is replaced, key by key."""
    for data in ({}, {"tls.crt": "", "tls.key": ""}, {"tls.crt": "cnViYmlzaA==", "other": "a2VwdA=="}):
        cluster = Cluster()
        cluster.secret, cluster.version = dict(data), 7
        replica = Replica(cluster, FakeClock(NOW))
        await replica.keeper.load()

        assert replica.served[-1].certificate == base64.b64decode(str(cluster.secret["tls.crt"]))
        assert cluster.secret.get("other") == data.get("other")
        ssl.create_default_context(cadata=base64.b64decode(str(cluster.secret["ca.crt"])).decode())


async def test_what_is_shared_survives_being_stored() -> None:
    """All of it, in the middle of a renewal as well as after it."""
    cluster = Cluster()
    shelf = SecretShelf(cluster, "kueue-system", "hooks")  # type: ignore[arg-type]
    old, new, older = bundle(), bundle(), bundle()
    during = CertificateHolding(current=old, upcoming=new, announced=NOW, retired=(older.ca,))
    after = CertificateHolding(current=new, retired=(old.ca, older.ca))
    found = []
    for holding in (during, after):
        await shelf.write(holding, (await shelf.read())[1])
        found.append((await shelf.read())[0])

    assert found == [during, after]
    assert "next-tls.key" not in (cluster.secret or {})


def test_a_renewal_that_cannot_be_read_is_begun_anew() -> None:
    """The certificate that is served does not suffer."""
    old = bundle()
    data = {"tls.crt": old.certificate, "tls.key": old.key, "ca.crt": old.ca}
    for broken in ({"next-tls.crt": b"x"}, {"next-tls.crt": b"x", "next-since": b"\xff"}):
        assert holding_of(data | broken, where="s") == CertificateHolding(current=old)
    with pytest.raises(ConfigError, match=r"s/tls\.key"):
        holding_of(data | {"tls.key": b"x"}, where="s")


async def test_a_process_that_is_alone_shares_with_nobody() -> None:
    """In memory, with the same steps."""
    clock, served = FakeClock(NOW), list[Bundle]()
    cluster = Cluster()
    keeper = CertificateKeeper(MemoryShelf(), names=NAMES, serve=served.append, clock=clock, rhythm=RHYTHM)
    await keeper.load()
    await clock.advance(timedelta(days=8).total_seconds())
    await keeper.look(cluster.announce)
    during = cluster.trusted
    await clock.advance(60)
    await keeper.look(cluster.announce)

    assert [len(split_authorities(each)) for each in (during, cluster.trusted)] == [2, 2]
    assert len(served) == 2
    assert replace(keeper.held, current=None, retired=()) == CertificateHolding()
