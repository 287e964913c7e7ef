"""Preemption where hosts count: quota alone is not enough, and what is taken away comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core import quota
from kqueue.core.preemption import Preemptor, Rules, SharingStrategy, VictimReach, simulate
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import Capacity, GangDomains, Misfit, NodeRules, PodSetRequest, TopologyRequest, Tree, place
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Snapshot, TopologyView
from tests.builders import GPU, make_view
from tests.unit.core.preemption_cases import (
    CPU,
    GPUS,
    LOWER,
    LOWER_OR_NEWER,
    NOW,
    RULES,
    cohort,
    columns,
    find_targets,
    leaf,
    policy,
    runs,
    spared,
    state,
    victims,
    wants,
    world,
)

BOTH = Rules(now=NOW, fair=(SharingStrategy.LTE, SharingStrategy.LTI))


def on(*hosts: str, gpus: int = 8, flavor: str = "gpu") -> dict[str, tuple[DomainUsage, ...]]:
    """One pod of so many GPUs on each of these hosts."""
    return {flavor: tuple(DomainUsage((host,), {GPU: gpus}, 1) for host in hosts)}


def cluster(running: Sequence[Admitted], view: TopologyView, *, queues: int = 1) -> Snapshot:
    """Queues q0, q1 .. of one cohort that share a cluster, their workloads charged to it."""
    view.capacity.charge(usage for w in running for usage in w.domains.get("gpu", ()))
    size = 8 * len(view.tree)
    leaves = [leaf(f"q{i}", nominal=size // queues) for i in range(queues)]
    specs = [policy(node.name, preempts_own=LOWER_OR_NEWER, reclaims=LOWER) for node in leaves]
    return world([cohort("all", *leaves)], running, specs, topologies={"gpu": view})


def asks(pods: int, *, within: str, gpus: int = 8, rack: str | None = None) -> PodSetRequest:
    """So many pods in one domain of a level, on the hosts of one rack or on any."""
    rules = NodeRules(selector=(("rack", rack),) if rack is not None else ())
    topology = TopologyRequest(required=within)
    return PodSetRequest(name="main", count=pods, requests={GPU: gpus}, topology=topology, rules=rules)


def room(snapshot: Snapshot, request: PodSetRequest) -> Callable[[], bool]:
    """Whether the pods find their domain."""
    return lambda: not isinstance(place(snapshot.topologies["gpu"].capacity, [request], explain=False), Misfit)


def gang(snapshot: Snapshot, pods: int, *, within: str, gpus: int = 8) -> Callable[[], bool]:
    """Whether so many pods find room in one domain of a level."""
    return room(snapshot, asks(pods, within=within, gpus=gpus))


def test_targets_make_room_in_one_domain_and_others_stay() -> None:
    """The most recently admitted are in different racks; only those of one rack have to go."""
    view = make_view((1, 2, 2))
    running = [
        runs("r1-new", "q0", 8, reserved=4, domains=on("b0-r1-h0")),
        runs("r0-new", "q0", 8, reserved=3, domains=on("b0-r0-h0")),
        runs("r0-old", "q0", 8, reserved=2, domains=on("b0-r0-h1")),
        runs("r1-old", "q0", 8, reserved=1, domains=on("b0-r1-h1")),
    ]
    snapshot = cluster(running, view)
    before = state(snapshot)
    targets = find_targets(snapshot, wants("q0", 16, priority=5), RULES, places=gang(snapshot, 2, within="rack"))
    assert sorted(victims(targets)) == ["r0-new", "r0-old"]
    assert state(snapshot) == before


def test_quota_that_is_free_does_not_help_without_room() -> None:
    """Somebody has to leave the hosts although there is quota, and nobody when the room cannot be made."""
    view = make_view((1, 1, 2))
    running = [
        runs("low", "q0", 1, domains=on("b0-r0-h0", gpus=1)),
        runs("high", "q0", 1, priority=9, domains=on("b0-r0-h1", gpus=1)),
    ]
    snapshot = cluster(running, view)
    found = [
        victims(find_targets(snapshot, wants("q0", 8 * n, priority=5), RULES, places=gang(snapshot, n, within="rack")))
        for n in (1, 2)
    ]
    assert found == [["low"], []]


def test_hosts_are_asked_about_only_when_quota_is_there_and_hosts_have_changed() -> None:
    """A question about hosts costs more than all else; the same question is not asked twice."""
    running = [runs("quota-0", "q0", 3, domains=on("b0-r0-h0", gpus=3))]
    running += [runs(f"plain-{i}", "q0", 1, priority=1, created=i) for i in range(5)]
    snapshot = cluster(running, make_view((1, 1, 1)))
    asked = count()

    def never() -> bool:
        next(asked)
        return False

    assert find_targets(snapshot, wants("q0", 4, priority=5), RULES, places=never) == ()
    assert next(asked) == 1


def test_hosts_that_do_not_matter_raise_no_question() -> None:
    """Once before and once after the only usable host is left, however many leave others."""
    running = [runs("r0", "q0", 8, priority=1, domains=on("b0-r0-h0"))]
    running += [runs(f"r1-{i}", "q0", 8, domains=on(f"b0-r1-h{i}")) for i in range(4)]
    snapshot = cluster(running, make_view((1, 2, 4)))
    matters = VictimReach(snapshot, {"gpu": [asks(1, within="rack", rack="b0-r0")]}).matters
    asked = count()

    def never() -> bool:
        next(asked)
        return False

    assert find_targets(snapshot, wants("q0", 8, priority=5), RULES, places=never, matters=matters) == ()
    assert next(asked) == 2


@pytest.mark.parametrize(("required", "expected"), [(True, ["r0"]), (False, ["r0", "r1"])])
def test_only_workloads_in_the_domain_of_the_gang_can_help(required: bool, expected: list[str]) -> None:
    """An extra that must go into its gang's rack gains nothing from the end of a workload in another one."""
    running = [runs(f"r{i}", "q0", 8, domains=on(f"b0-r{i}-h0")) for i in range(2)]
    snapshot = cluster(running, make_view((1, 2, 1)))
    levels = snapshot.topologies["gpu"].tree.levels[:2]
    near = GangDomains(levels=levels, paths=(("b0", "b0-r0"),), required=required)
    reach = VictimReach(snapshot, {"gpu": [replace(asks(1, within="rack"), within=near)]})

    assert [workload.key.split("/")[1] for workload in running if reach.matters(workload)] == expected
    assert reach.lacks() == 1


SPOT = FlavorResource("spot", GPU)


@pytest.mark.parametrize("rules", [RULES, BOTH], ids=["by quota and priority", "by fair shares"])
@pytest.mark.parametrize(
    ("running", "cores", "pods", "expected"),
    [
        pytest.param([on("b0-r0-h0", flavor="spot")], 1, 2, ["w0"], id="who holds the host in the flavor looked at"),
        pytest.param([on("b0-r0-h0")], 1, 2, [], id="not who holds it in another flavor"),
        pytest.param([on("b0-r0-h0")], 4, 1, ["w0"], id="that one for its quota, where pods fit beside it"),
        pytest.param([on("b0-r0-h0")], 4, 2, [], id="not for quota alone, where they do not fit beside it"),
        pytest.param(
            [on("b0-r0-h0"), on("b0-r0-h1", flavor="spot")],
            1,
            1,
            ["w1"],
            id="of two the one in the flavor looked at",
        ),
        pytest.param([on("b0-r0-h0"), on("b0-r0-h1", flavor="spot")], 1, 2, [], id="not both, for the hosts of both"),
        pytest.param(
            [{**on("b0-r0-h0"), **on("b0-r0-h1", flavor="spot")}],
            1,
            1,
            ["w0"],
            id="who has pods in both flavors, for the host in this one",
        ),
        pytest.param(
            [{**on("b0-r0-h0"), **on("b0-r0-h1", flavor="spot")}],
            1,
            2,
            [],
            id="not who has pods in both flavors, for the host in the other one",
        ),
    ],
)
def test_hosts_come_back_in_the_flavors_of_whom_they_are_taken_from(
    rules: Rules, running: Sequence[Mapping[str, tuple[DomainUsage, ...]]], cores: int, pods: int, expected: list[str]
) -> None:
    """Two hosts that two flavors stand on, and as many cores as are in use; who wants pods looks at one flavor.

    Everybody needs cores, so that everybody may be asked to leave.
    """
    admitted = [
        runs(
            f"w{i}",
            "q",
            {CPU: 4, **{FlavorResource(flavor, GPU): 8 for flavor in taken}},
            reserved=len(running) - i,
            domains=taken,
        )
        for i, taken in enumerate(running)
    ]
    view = make_view((1, 1, 2))
    view.capacity.charge(usage for workload in admitted for taken in workload.domains.values() for usage in taken)
    topologies = {"gpu": view, "spot": replace(view, capacity=view.capacity.fork())}
    node = leaf("q", nominal={CPU: 4 * len(admitted) + (0 if cores > 1 else 1), GPUS: 16, SPOT: 16})
    spec = policy("q", preempts_own=LOWER)
    snapshot = world([cohort("all", node)], admitted, [spec], topologies=topologies)
    request = asks(pods, within="rack")
    reach = VictimReach(snapshot, {"spot": [request]})
    preemptor = wants("q", {CPU: cores, SPOT: 8 * pods}, priority=5)
    before = state(snapshot)

    def places() -> bool:
        found = place(topologies["spot"].capacity, [request], explain=False)
        if isinstance(found, Misfit):
            return False
        reach.note({"spot": found})
        return True

    plain = find_targets(snapshot, preemptor, rules, places=places)
    known = find_targets(
        snapshot,
        preemptor,
        rules,
        places=places,
        matters=reach.matters,
        lacks=reach.lacks,
        disturbs=reach.disturbs,
    )

    assert victims(plain) == victims(known) == expected
    assert state(snapshot) == before


def full_racks(racks: int, hosts: int) -> tuple[Snapshot, PodSetRequest]:
    """A workload on every host, to go from the last hosts of all racks to the first; and who wants a whole rack."""
    places = [(r, h) for r in range(racks) for h in range(hosts)]
    running = [
        runs(f"w{i}", "q0", 8, reserved=h * racks + r, domains=on(f"b0-r{r}-h{h}")) for i, (r, h) in enumerate(places)
    ]
    return cluster(running, make_view((1, racks, hosts))), asks(hosts, within="rack")


def known(snapshot: Snapshot, request: PodSetRequest) -> tuple[Callable[[], bool], VictimReach]:
    """Whether pods find domains, and what may be known without looking for them."""
    reach = VictimReach(snapshot, {"gpu": [request]})

    def places() -> bool:
        found = place(snapshot.topologies["gpu"].capacity, [request])
        if isinstance(found, Misfit):
            return False
        reach.note({"gpu": found})
        return True

    return places, reach


def test_domains_are_looked_for_when_enough_was_given_back() -> None:
    """Not after each workload that leaves, and not again for each one that comes back beside what was found."""
    snapshot, request = full_racks(2, 4)
    places, reach = known(snapshot, request)
    asked = count()

    def counted() -> bool:
        next(asked)
        return places()

    preemptor = wants("q0", 32, priority=5)
    found = find_targets(
        snapshot, preemptor, RULES, places=counted, matters=reach.matters, lacks=reach.lacks, disturbs=reach.disturbs
    )
    assert victims(found) == victims(find_targets(snapshot, preemptor, RULES, places=places))
    assert len(found) == 4
    assert next(asked) == 2  # one finds them, one makes sure at the end


def test_domains_that_a_search_does_not_find_again_are_not_relied_on() -> None:
    """Should what was found seem free and yet not be found, everybody who comes back raises the question anew."""
    snapshot, request = full_racks(2, 4)
    preemptor = wants("q0", 32, priority=5)
    plain = find_targets(snapshot, preemptor, RULES, places=room(snapshot, request))
    misled = find_targets(
        snapshot, preemptor, RULES, places=room(snapshot, request), disturbs=lambda _: False, lacks=lambda: 0
    )
    assert misled == plain
    assert len(plain) == 4


@pytest.mark.parametrize(
    ("request_", "left", "expected"),
    [
        pytest.param(asks(4, within="rack"), [], 4, id="whole hosts of a full rack"),
        pytest.param(asks(7, within="rack", gpus=4), [], 4, id="two pods to a host, rounded up"),
        pytest.param(asks(4, within="rack"), [0, 1, 4], 2, id="the best rack counts"),
        pytest.param(
            PodSetRequest(name="main", count=6, requests={GPU: 8}, topology=TopologyRequest(preferred="rack")),
            [0, 1, 4],
            3,
            id="all racks count where none is required",
        ),
        pytest.param(asks(2, within="rack"), [0, 1], 0, id="there is room"),
        pytest.param(asks(0, within="rack"), [], 0, id="no pods"),
        pytest.param(asks(1, within="rack", gpus=9), [], 0, id="pods that no host could ever take are not judged"),
        pytest.param(asks(1, within="aisle"), [], 0, id="a level that is unknown is not judged"),
    ],
)
def test_lacking_domains_are_counted(request_: PodSetRequest, left: list[int], expected: int) -> None:
    """So many hosts have to be given back at least."""
    snapshot, _ = full_racks(2, 4)
    workloads = list(snapshot.admitted["q0"].values())
    with simulate(snapshot) as simulation:
        for i in left:
            simulation.remove(workloads[i])
        assert VictimReach(snapshot, {"gpu": [request_]}).lacks() == expected


@pytest.mark.parametrize("rules", [RULES, BOTH], ids=["by quota and priority", "by fair shares"])
@given(data=st.data())
def test_targets_are_enough_and_each_of_them_is_needed(rules: Rules, data: st.DataObject) -> None:
    """Checked on a cluster made anew without them: the gang fits, and with any one of them back it does not."""
    shape = data.draw(st.sampled_from([(1, 2, 2), (2, 2, 2), (2, 1, 3)]))
    hosts = [f"b{b}-r{r}-h{h}" for b in range(shape[0]) for r in range(shape[1]) for h in range(shape[2])]
    running: list[Admitted] = []
    for host in hosts:
        for gpus in data.draw(st.sampled_from([(), (8,), (4, 4), (4, 2), (2,)])):
            running.append(
                runs(
                    f"w{len(running)}",
                    data.draw(st.sampled_from(["q0", "q1"])),
                    gpus,
                    priority=data.draw(st.integers(0, 3)),
                    reserved=data.draw(st.integers(0, 3)),
                    created=data.draw(st.sampled_from([99, 101])),
                    domains=on(host, gpus=gpus),
                )
            )
    level, gpus = data.draw(st.sampled_from(["block", "rack"])), data.draw(st.sampled_from([2, 4, 8]))
    pods = data.draw(st.integers(1, 6))
    request = asks(pods, within=level, gpus=gpus, rack=data.draw(st.sampled_from([None, "b0-r0"])))
    preemptor = wants("q0", pods * gpus, priority=data.draw(st.integers(0, 3)))
    protected = frozenset(w.uid for w in running if data.draw(st.integers(0, 9)) == 0)
    rules = replace(rules, spared=spared(*protected))

    def fits(left: Sequence[Admitted], *, borrowing: bool = True) -> bool:
        snapshot = cluster(left, make_view(shape), queues=2)
        node = snapshot.nodes["q0"]
        is_within = node.usage.get(GPUS, 0) + pods * gpus <= node.quota(GPUS).nominal
        enough = quota.available(node, GPUS) >= pods * gpus
        return enough and (borrowing or is_within) and room(snapshot, request)()

    snapshot = cluster(running, make_view(shape), queues=2)
    before = state(snapshot)
    places, matters = room(snapshot, request), VictimReach(snapshot, {"gpu": [request]}).matters
    targets = find_targets(snapshot, preemptor, rules, places=places, matters=matters)
    assert state(snapshot) == before
    assert set(targets) == set(find_targets(snapshot, preemptor, rules, places=places))
    places, reach = known(snapshot, request)
    lacks, disturbs = reach.lacks, reach.disturbs
    assert set(targets) == set(
        find_targets(snapshot, preemptor, rules, places=places, matters=reach.matters, lacks=lacks, disturbs=disturbs)
    )
    assert state(snapshot) == before
    going = [target.admitted for target in targets]
    assert len(set(going)) == len(going)
    assert all(may_go(w, preemptor) and w.uid not in protected for w in going)
    if going:
        assert fits([w for w in running if w not in going])
        if not fits(running):
            # by priority, who takes from others stays within what is its own
            borrowing = rules.fair is not None or all(w.queue == preemptor.queue for w in going)
            others = ([w for w in running if w is one or w not in going] for one in going)
            assert not any(fits(left, borrowing=borrowing) for left in others)


def may_go(workload: Admitted, preemptor: Preemptor) -> bool:
    """What the policies of the queues in `cluster` say."""
    if workload.queue != preemptor.queue:
        return workload.priority < preemptor.priority
    age = (workload.priority, -workload.timestamp.timestamp())
    return age < (preemptor.priority, -preemptor.timestamp.timestamp())


@pytest.mark.parametrize(
    ("flavor", "host", "flavors", "expected"),
    [
        pytest.param("gpu", "b0-r0-h0", ["gpu"], True, id="a host that the pods may use"),
        pytest.param("gpu", "b0-r1-h0", ["gpu"], False, id="a host that the pods may not use"),
        pytest.param("spot", "b0-r0-h0", ["gpu"], False, id="a host taken in another flavor"),
        pytest.param("spot", "b0-r0-h0", ["gpu", "spot"], True, id="a host taken in one of two flavors"),
        pytest.param("spot", "b0-r1-h0", ["gpu", "spot"], False, id="a host of one of two flavors not to be used"),
        pytest.param("gone", "b0-r0-h0", ["gpu"], False, id="a host of a flavor that is gone"),
        pytest.param("gpu", "b9-r9-h9", ["gpu"], False, id="a host that is gone"),
        pytest.param("racks", "b0-r0-h0", ["gpu"], False, id="a flavor that is not on hosts"),
        pytest.param("gpu", "b0-r0-h0", ["racks"], False, id="a host where the pods do not go to hosts"),
    ],
)
def test_only_hosts_that_the_pods_may_use_matter(flavor: str, host: str, flavors: list[str], expected: bool) -> None:
    """Who holds others need not be asked about when hosts are."""
    view = make_view((1, 2, 1))
    racks = make_view((1, 2, 1))
    racks_tree = Tree(
        topology="racks",
        levels=("block", "rack"),
        leaves=[replace(leaf, path=leaf.path[:2]) for leaf in racks.tree.leaves],
    )
    topologies = {
        "gpu": view,
        "spot": TopologyView("dc", view.tree, Capacity.of(view.tree)),
        "racks": TopologyView("racks", racks_tree, Capacity.of(racks_tree)),
    }
    snapshot = world([leaf("q")], [], topologies=topologies)
    request = asks(1, within="rack", rack="b0-r0")
    matters = VictimReach(snapshot, {name: [request] for name in flavors}).matters
    one, none = runs("one", "q", 8, domains=on(host, flavor=flavor)), runs("none", "q", 8)
    assert [matters(one), matters(one), matters(none)] == [expected, expected, False]


def test_hosts_of_pods_that_were_assigned_several_flavors_matter_in_each_of_them() -> None:
    """They are counted in one, and were looked for, or found again, in any."""
    view = make_view((1, 2, 1))
    snapshot = world([leaf("q")], [], topologies={"gpu": view, "spot": replace(view, capacity=view.capacity.fork())})
    request = asks(1, within="rack", rack="b0-r0")
    reach = VictimReach(snapshot, {"gpu": [request]})
    one, none = (
        replace(runs("w", "q", 8, domains=spot), further={"spot": on(host)})
        for host in ("b0-r0-h0", "b0-r1-h0")
        for spot in [on(host, flavor="spot")]
    )
    found = place(view.capacity, [request])
    assert not isinstance(found, Misfit)
    reach.note({"gpu": found})

    assert [reach.matters(one), reach.matters(none)] == [True, False]
    assert [reach.disturbs(one), reach.disturbs(none)] == [True, False]


def test_who_comes_back_in_another_flavor_disturbs_nothing() -> None:
    """What was found in the one is free there as before."""
    snapshot, _ = two_flavors()
    found = place(snapshot.topologies["spot"].capacity, [asks(1, within="rack")])
    assert not isinstance(found, Misfit)
    reach = VictimReach(snapshot, {"spot": [asks(1, within="rack")]})
    reach.note({"spot": found})

    held = [runs(flavor, "q", 8, domains=on("b0-r0-h1", flavor=flavor)) for flavor in ("spot", "gpu")]
    assert [reach.disturbs(workload) for workload in held] == [True, False]


def test_pods_of_all_pod_sets_may_use_hosts() -> None:
    """One that takes any host makes all of them matter."""
    snapshot = world([leaf("q")], [], topologies={"gpu": make_view((1, 2, 1))})
    requests = [asks(1, within="rack", rack="b0-r0"), asks(1, within="rack")]
    matters = VictimReach(snapshot, {"gpu": requests}).matters
    assert matters(runs("one", "q", 8, domains=on("b0-r1-h0")))


# --- simulation ------------------------------------------------------------------------------------------------------


def two_flavors() -> tuple[Snapshot, Admitted]:
    """Flavors that stand on the same hosts, a third one whose leaves are racks, and a workload on a host."""
    view = make_view((1, 1, 2))
    racks = Tree(
        topology="racks",
        levels=("block", "rack"),
        leaves=[replace(host, path=host.path[:2]) for host in view.tree.leaves[:1]],
    )
    running = runs("one", "q", 8, domains=on("b0-r0-h0"))
    view.capacity.charge(running.domains["gpu"])
    other = Capacity.of(view.tree, usage=running.domains["gpu"])
    topologies = {
        "gpu": view,
        "spot": TopologyView("dc", view.tree, other),
        "racks": TopologyView("racks", racks, Capacity.of(racks)),
    }
    return world([cohort("all", leaf("q", nominal=4), nominal=4)], [running], topologies=topologies), running


def free(snapshot: Snapshot, flavor: str) -> int:
    """GPUs free on the first leaf of a flavor."""
    return snapshot.topologies[flavor].capacity.free(0)[GPU]


def used(snapshot: Snapshot) -> list[int]:
    """GPUs used by the queue and by its cohort."""
    return [node.usage.get(GPUS, 0) for node in snapshot.nodes["q"].path_to_root()]


FURTHER = {"gpu": {flavor: on("b0-r0-h0")["gpu"] for flavor in ("spot", "racks", "gone")}}


@pytest.mark.parametrize(
    ("told", "further", "spot"),
    [
        pytest.param(False, {}, 0, id="who is only looked at: in the flavor of the workload"),
        pytest.param(False, FURTHER, 8, id="who is only looked at: in all flavors of the workload on these hosts"),
        pytest.param(True, {}, 8, id="who was told to leave: in all flavors on these hosts"),
        pytest.param(True, FURTHER, 8, id="who was told to leave: once in each flavor"),
    ],
)
def test_who_leaves_gives_back_quota_and_hosts(
    told: bool, further: Mapping[str, Mapping[str, tuple[DomainUsage, ...]]], spot: int
) -> None:
    """Until the block ends; flavors whose leaves are no hosts never see any of it."""
    snapshot, one = two_flavors()
    one = replace(one, further=further)
    before = state(snapshot)
    with simulate(snapshot) as simulation:
        (simulation.dismiss if told else simulation.remove)(one)
        assert (used(snapshot), free(snapshot, "gpu"), free(snapshot, "spot")) == ([0, 0], 8, spot)
        assert free(snapshot, "racks") == 8
    assert state(snapshot) == before


def test_pods_are_given_back_where_they_are_counted() -> None:
    """Flavors whose leaves are racks do not share them: pods that were assigned two are counted in one."""
    snapshot, one = two_flavors()
    racks = snapshot.topologies["racks"]
    rack = (DomainUsage(("b0", "b0-r0"), {GPU: 8}, 1),)
    racks.capacity.charge(rack)
    twin = replace(racks, capacity=Capacity.of(racks.tree, usage=rack))  # taken by another workload
    snapshot = replace(snapshot, topologies={**snapshot.topologies, "aisles": twin})
    with simulate(snapshot) as simulation:
        simulation.remove(replace(one, domains={"racks": rack}, further={"racks": {"aisles": rack}}))
        assert (free(snapshot, "racks"), free(snapshot, "aisles")) == (8, 0)


def test_what_changes_in_one_flavor_first_and_then_in_all_is_taken_back() -> None:
    """A flavor that joins in later is as before, too."""
    snapshot, one = two_flavors()
    before = state(snapshot)
    with simulate(snapshot) as simulation:
        simulation.remove(one)
        simulation.charge("q", columns(3), on("b0-r0-h0", gpus=3))
        assert (free(snapshot, "gpu"), free(snapshot, "spot")) == (5, -3)
    assert state(snapshot) == before


@pytest.mark.parametrize("further", [{}, FURTHER], ids=["in one flavor", "in several"])
def test_who_is_put_back_holds_the_same_again(further: Mapping[str, Mapping[str, tuple[DomainUsage, ...]]]) -> None:
    """Removing and putting back are inverse."""
    snapshot, one = two_flavors()
    one = replace(one, further=further)
    before = state(snapshot)
    with simulate(snapshot) as simulation:
        simulation.remove(one)
        simulation.put_back(one)
        assert state(snapshot) == before


def test_charges_end_with_their_block_also_inside_of_another_one() -> None:
    """Blocks may be nested."""
    snapshot, one = two_flavors()
    with simulate(snapshot) as outer:
        outer.remove(one)
        with simulate(snapshot) as inner:
            inner.charge("q", columns(3), on("b0-r0-h0", gpus=3))
            assert (used(snapshot), free(snapshot, "gpu")) == ([3, 3], 5)
        assert (used(snapshot), free(snapshot, "gpu")) == ([0, 0], 8)


def test_everything_is_as_before_after_an_error() -> None:
    """A search that fails on a bug must not leave a changed snapshot to the next one."""
    snapshot, one = two_flavors()
    before = state(snapshot)

    def fail() -> None:
        with simulate(snapshot) as simulation:
            simulation.remove(one)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert state(snapshot) == before


def test_hosts_can_be_left_out_of_it() -> None:
    """Questions of quota do not pay for hosts."""
    snapshot, one = two_flavors()
    with simulate(snapshot, with_domains=False) as simulation:
        simulation.remove(one)
        assert (used(snapshot), free(snapshot, "gpu")) == ([0, 0], 0)
        simulation.put_back(one)
        assert (used(snapshot), free(snapshot, "gpu")) == ([8, 8], 0)
        simulation.dismiss(one)
        assert (used(snapshot), free(snapshot, "gpu")) == ([0, 0], 0)


def test_hosts_of_a_flavor_that_is_gone_are_not_missed() -> None:
    """Its quota comes back all the same."""
    snapshot, one = two_flavors()
    gone = replace(one, domains=on("b0-r0-h0", flavor="gone"))
    with simulate(snapshot) as simulation:
        simulation.remove(gone)
        assert (used(snapshot), free(snapshot, "gpu")) == ([0, 0], 0)
