"""Topology annotations: read, aliased, checked."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs import topology_request
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.topology_request import IndexLabels
from tests.unit.jobs.builders import make_job, make_template, prefixed

ON = JobFeatures()
LAYERS = '[{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]'
PARSED = [{"topology": "rack", "size": 4}, {"topology": "host", "size": 2}]


def request(
    template: dict[str, str], job: dict[str, str] | None = None, *, switches: JobFeatures = ON, index: str = ""
) -> dict[str, Any] | None:
    owner = make_job(annotations=prefixed(**(job or {})))
    return topology_request.topology_request(
        make_template(annotations=prefixed(**template)), owner, index=IndexLabels(pod=index), switches=switches
    )


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        pytest.param({}, None, id="nothing-asked-is-no-request"),
        pytest.param({"podset_required_topology": "rack"}, {"required": "rack"}, id="required"),
        pytest.param({"podset_preferred_topology": "rack"}, {"preferred": "rack"}, id="preferred"),
        pytest.param({"podset_preferred_topology": "auto"}, {"preferred": "auto"}, id="auto-stays-as-written"),
        pytest.param({"podset_unconstrained_topology": "T"}, {"unconstrained": True}, id="unconstrained"),
        pytest.param({"podset_unconstrained_topology": "0"}, {"unconstrained": False}, id="explicitly-not"),
        pytest.param(
            {"podset_required_topology": "rack", "podset_unconstrained_topology": "true"},
            {"required": "rack"},
            id="required-comes-before-unconstrained",
        ),
        pytest.param(
            {"podset_slice_required_topology": "rack", "podset_slice_size": "4"},
            {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 4},
            id="slices",
        ),
        pytest.param({"podset_slice_size": "4"}, None, id="half-a-slice-is-none"),
        pytest.param(
            {"podset_slice_required_topology_constraints": LAYERS},
            {"podsetSliceRequiredTopologyConstraints": PARSED},
            id="slice-layers",
        ),
        pytest.param(
            {"podset_required_topology": "rack", "podset_group_name": "g"},
            {"required": "rack", "podSetGroupName": "g"},
            id="a-group-with-a-level",
        ),
        pytest.param({"podset_group_name": "g"}, None, id="a-group-without-level-is-nothing"),
    ],
)
def test_annotations_become_a_request(template: dict[str, str], wanted: dict[str, Any] | None) -> None:
    """Without an index label the request is exactly what is asked for."""
    assert request(template) == wanted


def test_switches_decide_what_is_read() -> None:
    """No request at all without topology; no layers without the multi-layer switch."""
    both = {"podset_slice_required_topology_constraints": LAYERS}

    assert request({"podset_required_topology": "rack"}, switches=JobFeatures(topology=False), index="i") is None
    assert request(both, switches=JobFeatures(multi_layer=False)) is None


def test_kinds_say_how_pods_are_numbered() -> None:
    """Index and sub-group labels are copied even where nothing else is asked for."""
    index = IndexLabels(pod="index", sub_group="job-index", sub_groups=2)
    found = topology_request.topology_request(make_template(), make_job(), index=index, switches=ON)

    assert found == {"podIndexLabel": "index", "subGroupIndexLabel": "job-index", "subGroupCount": 2}


@pytest.mark.parametrize(
    ("template", "job", "wanted", "warned"),
    [
        pytest.param({"require_topology": "rack"}, {}, {"required": "rack"}, 0, id="on-the-template"),
        pytest.param({}, {"prefer_topology": "auto"}, {"preferred": "auto"}, 0, id="on-the-job"),
        pytest.param(
            {"prefer_topology": "rack"}, {"require_topology": "block"}, {"preferred": "rack"}, 1, id="template-wins"
        ),
        pytest.param(
            {"podset_preferred_topology": "host"},
            {"require_topology": "rack"},
            {"preferred": "host"},
            1,
            id="modern-wins",
        ),
        pytest.param(
            {"podset_unconstrained_topology": "true", "require_topology": "rack"},
            {},
            {"unconstrained": True},
            1,
            id="unconstrained-wins",
        ),
        pytest.param(
            {"podset_slice_required_topology": "host", "podset_slice_size": "2"},
            {"require_topology": "rack"},
            {"podSetSliceRequiredTopology": "host", "podSetSliceSize": 2},
            1,
            id="a-slice-level-wins",
        ),
        pytest.param(
            {"podset_group_name": "g"},
            {"require_topology": "rack"},
            {"required": "rack", "podSetGroupName": "g"},
            0,
            id="a-group-name-states-no-level",
        ),
    ],
)
def test_names_of_the_first_design_are_aliases(
    template: dict[str, str], job: dict[str, str], wanted: dict[str, Any], warned: int
) -> None:
    """They count where the template says nothing closer or newer, and the user is told where they do not."""
    warnings = topology_request.warnings(
        make_template(annotations=prefixed(**template)), make_job(annotations=prefixed(**job)), path="spec.template"
    )

    assert request(template, job) == wanted
    assert len([w for w in warnings if "is ignored" in w]) == warned


def test_a_topology_that_is_none_is_warned_about() -> None:
    """`unconstrained: false` asks for a topology and names none."""
    template = make_template(annotations=prefixed(podset_unconstrained_topology="false"))

    (warning,) = topology_request.warnings(template, make_job(), path="spec.template")
    assert "podset-unconstrained-topology] is false" in warning


AT = "spec.template.metadata.annotations"


def path(short: str) -> str:
    return f"{AT}[kueue.x-k8s.io/{short}]"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param({"podset_required_topology": "example.com/rack"}, [], id="a-sound-level"),
        pytest.param({"podset_required_topology": "a b"}, [path("podset-required-topology")], id="level-is-no-label"),
        pytest.param({"podset_preferred_topology": ""}, [path("podset-preferred-topology")], id="level-is-empty"),
        pytest.param(
            {"podset_required_topology": "x." * 31 + "example.com/r"},
            [path("podset-required-topology")],
            id="level-is-longer-than-a-request-can-hold",
        ),
        pytest.param(
            {
                "podset_required_topology": "a",
                "podset_preferred_topology": "a",
                "podset_unconstrained_topology": "true",
            },
            [AT],
            id="three-at-once",
        ),
        pytest.param(
            {"podset_unconstrained_topology": "yes"}, [path("podset-unconstrained-topology")], id="not-a-truth-value"
        ),
        pytest.param({"require_topology": "a", "prefer_topology": "a"}, [AT], id="both-aliases"),
        pytest.param({"require_topology": "a b"}, [path("require-topology")], id="alias-is-no-label"),
        pytest.param(
            {"podset_group_name": "7", "podset_required_topology": "a"}, [path("podset-group-name")], id="numeric-group"
        ),
        pytest.param({"podset_group_name": "g"}, [path("podset-group-name")], id="group-without-level"),
        pytest.param(
            {
                "podset_group_name": "g",
                "podset_required_topology": "a",
                "podset_slice_required_topology": "b",
                "podset_slice_size": "4",
            },
            [path("podset-group-name")],
            id="group-with-slices",
        ),
        pytest.param({"podset_slice_size": "4"}, [path("podset-slice-size")], id="size-without-level"),
        pytest.param(
            {"podset_slice_required_topology": "a"}, [path("podset-slice-required-topology")], id="level-without-size"
        ),
        pytest.param(
            {"podset_slice_required_topology": "a", "podset_slice_size": "two"},
            [path("podset-slice-size")],
            id="size-is-no-number",
        ),
        pytest.param(
            {"podset_slice_required_topology": "a", "podset_slice_size": "0"},
            [path("podset-slice-size")],
            id="size-zero",
        ),
        pytest.param(
            {"podset_slice_required_topology": "a", "podset_slice_size": str(1 << 31)},
            [path("podset-slice-size")],
            id="size-beyond-32-bits",
        ),
        pytest.param(
            {"podset_slice_required_topology": "a", "podset_slice_size": "16"},
            [path("podset-slice-size")],
            id="slice-larger-than-the-pod-set",
        ),
        pytest.param(
            {"podset_slice_required_topology": "a", "podset_slice_size": "3"},
            [path("podset-slice-size")],
            id="pods-would-be-left-over",
        ),
        pytest.param({"podset_slice_required_topology_constraints": LAYERS}, [], id="sound-layers"),
        pytest.param(
            {"podset_slice_required_topology_constraints": LAYERS, "podset_slice_size": "4"},
            [path("podset-slice-required-topology-constraints")],
            id="layers-and-size",
        ),
        *(
            pytest.param(
                {"podset_slice_required_topology_constraints": written},
                [path("podset-slice-required-topology-constraints")],
                id=name,
            )
            for name, written in {
                "layers-are-no-json": "{",
                "layers-are-no-list": "{}",
                "no-layer-at-all": "[]",
                "four-layers": '[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]',
                "a-layer-without-level": '[{"size": 4}]',
                "a-size-as-text": '[{"topology": "a", "size": "4"}]',
                "a-size-as-truth-value": '[{"topology": "a", "size": true}]',
                "a-level-that-is-no-label": '[{"topology": "a b", "size": 4}]',
                "a-level-twice": '[{"topology": "a", "size": 4}, {"topology": "a", "size": 2}]',
                "a-size-that-is-no-multiple": '[{"topology": "a", "size": 4}, {"topology": "b", "size": 3}]',
                "outer-layer-larger-than-the-pod-set": '[{"topology": "a", "size": 16}]',
                "a-very-deep-text": "[" * 100_000,
            }.items()
        ),
    ],
)
def test_mistakes_are_found_where_they_are(template: dict[str, str], expected: list[str]) -> None:
    """One complaint per mistake, at its annotation, for a pod set of eight."""
    found = topology_request.problems(
        make_template(annotations=prefixed(**template)), make_job(), path="spec.template", count=8, switches=ON
    )

    assert [problem.path for problem in found] == expected


def test_several_mistakes_are_all_reported() -> None:
    """Nobody has to submit twice to learn the second one."""
    template = make_template(
        annotations=prefixed(
            podset_required_topology="a b", podset_unconstrained_topology="maybe", podset_slice_size="x"
        )
    )
    found = list(topology_request.problems(template, make_job(), path="spec.template", count=8, switches=ON))

    assert len(found) == 5
    assert all(problem.problem for problem in found)


def test_an_elastic_job_has_no_level() -> None:
    """Its pods come and go, so only counting is offered; an alias on the job is a level too."""
    by_alias = make_job(annotations=prefixed(prefer_topology="rack"))
    found = topology_request.problems(
        make_template(), by_alias, path="spec.template", count=8, switches=ON, elastic=True
    )

    assert [problem.path for problem in found] == [AT]


@pytest.mark.parametrize("on", [True, False])
def test_an_elastic_job_asks_for_topology_where_the_gate_says_so(on: bool) -> None:
    """Anywhere with room, and no more than that; without a request there is nothing to say."""
    switches = JobFeatures(elastic_topology=on)
    for marks, fine in (({"podset_unconstrained_topology": "true"}, on), ({}, True)):
        template = make_template(annotations=prefixed(**marks))
        found = topology_request.problems(
            template, make_job(), path="spec.template", count=8, switches=switches, elastic=True
        )
        assert [problem.path for problem in found] == ([] if fine else [AT])
        started = topology_request.problems(
            template, make_job(), path="spec.template", count=None, switches=switches, elastic=True
        )
        assert list(started) == [], "the start of a job writes such an annotation itself"


def test_layers_need_their_switch() -> None:
    """The remedy names the older pair of annotations."""
    template = make_template(annotations=prefixed(podset_slice_required_topology_constraints=LAYERS))
    (found,) = topology_request.problems(
        template, make_job(), path="spec.template", count=8, switches=JobFeatures(multi_layer=False)
    )

    assert "TASMultiLayerTopology" in found.problem


@pytest.mark.parametrize(
    ("pods", "size", "switch", "refused"),
    [
        pytest.param(8, "4", True, False, id="whole slices"),
        pytest.param(8, "3", True, True, id="two pods left over"),
        pytest.param(8, "3", False, False, id="two pods left over, and nobody minds"),
        pytest.param(8, "9", False, True, id="a slice larger than the pod set is one too many, switch or not"),
    ],
)
def test_pods_left_over_by_slices_are_refused_unless_switched_off(
    pods: int, size: str, switch: bool, refused: bool
) -> None:
    """They would never start."""
    template = make_template(annotations=prefixed(podset_slice_required_topology="rack", podset_slice_size=size))
    switches = JobFeatures(slice_divisibility=switch)
    found = topology_request.problems(template, make_job(), path="spec.template", count=pods, switches=switches)

    assert any(found) is refused
