"""Write the matrix of docs/integrations.md from the marks of the tests.  `--check` only compares.

A test that carries `@pytest.mark.proves(kind, feature)` proves that cell.  Tests are read, not run: the marks of
decorators, of parameters and of modules are found in their source.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kqueue.kinds import FRAMEWORKS
from tools.marks import PLANES, ROOT, MarkedTest, MarkError, marked

PAGE = ROOT / "docs" / "integrations.md"
BEGIN = "<!-- the matrix: written by `make integrations` from the marks of the tests; do not edit -->"
END = "<!-- the end of the matrix -->"

_TRAINING = "Training job"
"""PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob and MPIJob, which have one adapter."""
_RAY = "Ray"
"""RayJob, RayCluster and RayService, whose adapters have one base."""
_OF_GROUP = {"kubeflow.org": _TRAINING, "ray.io": _RAY}
_BUILT_IN = list(dict.fromkeys(_OF_GROUP.get(row.group, row.kind) for row in FRAMEWORKS.values()))
_AFTER_PODS = _BUILT_IN.index("Pod") + 1
_SERVING = ("Deployment", "StatefulSet", "LeaderWorkerSet")
"""Kinds whose objects never finish."""
GANGS = ("gang by labels", "PodGroup", "BatchProcess", "Volcano PodGroup", "Kubernetes PodGroup")
KINDS = (*_BUILT_IN[:_AFTER_PODS], "Pod group", *_BUILT_IN[_AFTER_PODS:], "declared kind", *GANGS)
FEATURES = (
    "queueing", "start with topology", "ranks", "stop and restore", "eviction and requeue", "finished", "pods ready",
    "reclaimable pods", "partial admission", "priority class", "maximum execution time", "prebuilt workload",
    "managed by", "child jobs", "workload slices", "scale", "replacement pods", "fast admission", "excess pods",
    "pods beyond the quorum",
    "webhook defaults", "webhook validation", "switched off", "uninstall",
)  # fmt: skip

_WRAPPED = ("AppWrapper", "SparkApplication")
_FIXED = (_TRAINING, "TrainJob", *_WRAPPED)
_CUSTOM = (*_FIXED, _RAY)
WITHOUT: Mapping[str, tuple[str, ...]] = {
    "partial admission": (
        *_CUSTOM,
        "Pod",
        "Pod group",
        *_SERVING,
        "JobSet",
        "declared kind",
        *GANGS,
    ),
    "replacement pods": (*_CUSTOM, "Pod", *_SERVING, "declared kind"),
    "fast admission": (*_CUSTOM, "Job", "JobSet", "Pod", *_SERVING, "declared kind", "BatchProcess"),
    "excess pods": (*_CUSTOM, "Job", "JobSet", "Pod", *_SERVING, "declared kind", *GANGS),
    "managed by": ("SparkApplication", "Pod", "Pod group", *_SERVING, "declared kind", *GANGS),
    "child jobs": ("Pod", "Pod group", *_SERVING, *GANGS),
    "workload slices": (*_FIXED, "JobSet", "Pod", "Pod group", *_SERVING, "declared kind", *GANGS),
    "reclaimable pods": (_TRAINING, _RAY, *_WRAPPED, "Pod", *_SERVING, "declared kind"),
    "ranks": (_RAY, "SparkApplication", "Pod", "Deployment"),
    "prebuilt workload": (*_SERVING, *GANGS),
    "finished": _SERVING,
    "maximum execution time": _SERVING,
    "scale": (_TRAINING, _RAY, *_WRAPPED, "Pod", "Pod group", "Job", "declared kind", *GANGS),
    "pods beyond the quorum": tuple(kind for kind in KINDS if kind not in GANGS),
}
"""Kinds without a feature, because it does not apply to them or Kueue does not have it either."""

PLAYED = ("JobSet", "LeaderWorkerSet", *_CUSTOM, "declared kind")
"""Kinds whose controller is no part of Kubernetes: on the real control plane a double simulates it."""
_PLAYED_WORDS = "real API server with a double"


@dataclass(frozen=True, slots=True)
class Proof:
    """One test that proves one cell."""

    kind: str
    feature: str
    test: str
    """File below tests, and function."""
    planes: tuple[str, ...]


def proofs(folder: Path = ROOT / "tests") -> list[Proof]:
    """Every proof in the tests, in the order of files and lines.

    Raises:
        MarkError: a mark is wrong; names the file and the line.
    """
    return [Proof(*_cell(found), found.test, found.planes) for found in marked("proves", folder)]


def _cell(found: MarkedTest) -> tuple[str, str]:
    values = found.arguments
    if len(values) != 2 or not found.complete or values[0] not in KINDS or values[1] not in FEATURES:
        raise MarkError(
            f"{found.where}: proves{values} is no cell of the matrix; kinds are {', '.join(KINDS)}; "
            f"features are {', '.join(FEATURES)}"
        )
    return str(values[0]), str(values[1])


def matrix(found: Iterable[Proof]) -> str:
    """The generated part of the page: the table, and the tests of each cell."""
    cells: dict[tuple[str, str], list[Proof]] = defaultdict(list)
    for proof in found:
        cells[proof.feature, proof.kind].append(proof)
    lines = ["| |" + "".join(f" {kind} |" for kind in KINDS), "|---|" + "---|" * len(KINDS)]
    for feature in FEATURES:
        lines.append(f"| {feature} |" + "".join(f" {_shown(feature, kind, cells)} |" for kind in KINDS))
    lines += ["", "<details><summary>The tests behind each cell</summary>", ""]
    for kind in KINDS:
        lines += [f"**{kind}**", ""]
        for feature in FEATURES:
            for proof in cells[feature, kind]:
                planes = [_PLAYED_WORDS if p == "real" and kind in PLAYED else p for p in proof.planes]
                lines.append(f"- {feature}: `{proof.test}` ({' and '.join(planes)})")
        lines.append("")
    return "\n".join([*lines, "</details>"])


def _shown(feature: str, kind: str, cells: Mapping[tuple[str, str], list[Proof]]) -> str:
    planes = {plane for proof in cells.get((feature, kind), ()) for plane in proof.planes}
    letters = "".join(letter for plane, letter in PLANES.items() if plane in planes)
    if kind in PLAYED:
        letters = letters.replace("R", "r")
    return letters or ("n/a" if kind in WITHOUT.get(feature, ()) else "")


def page(text: str, generated: str) -> str:
    """The page with the generated part put between its two marks.

    Raises:
        MarkError: the page lacks them.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MarkError(f"{PAGE.name} lacks the line {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{generated}\n\n{END}{after}"


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 when the page differs")
    check = parser.parse_args().check
    found = proofs()
    text = PAGE.read_text(encoding="utf-8")
    wanted = page(text, matrix(found))
    if wanted == text:
        return
    if check:
        sys.exit("docs/integrations.md is not what the tests prove; run `make integrations`")
    PAGE.write_text(wanted, encoding="utf-8")
    print(f"docs/integrations.md: {len({(p.kind, p.feature) for p in found})} cells of {len(found)} proofs written")


if __name__ == "__main__":
    main()
