"""A recorded day is lived again as it was, and another policy changes what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kqueue.api.backfill_names import BACKFILL_ANNOTATION
from kqueue.cli.app import run
from kqueue.core.backfill.plans import LineRule
from kqueue.core.future.day import Day, lived
from kqueue.errors import ConfigError
from kqueue.operations.day_comparison import compare, recorded_waits
from kqueue.operations.day_policy import DayPolicy, question_of, read_policy
from kqueue.record.day import RecordedDay, read_day
from kqueue.record.queries import Filter
from kqueue.record.records import Record
from tests.builders import START
from tests.recorded_days import make_question, record_day

HOUR = 3_600
QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team-0}
spec:
  cohortName: %s
  queueingStrategy: %s
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
    - coveredResources: [nvidia.com/gpu]
      flavors: [{name: gpu, resources: [{name: nvidia.com/gpu, nominalQuota: %s}]}]
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Day]:
    """Four hours with more work than 64 hosts have room for."""
    folder = tmp_path_factory.mktemp("day") / "record"
    return folder, record_day(make_question(7, 90, size=(1, 4, 16), seconds=4 * HOUR, preempts=False), folder)


@pytest.fixture(scope="module")
def day(recorded: tuple[Path, Day]) -> RecordedDay:
    return read_day(Record(recorded[0]), Filter())


def _policy(tmp_path: Path, cohort: str, strategy: str, nominal: object) -> DayPolicy:
    path = tmp_path / "policy.yaml"
    path.write_text(QUEUE % (cohort, strategy, nominal))
    return read_policy(path, None)


def test_a_day_is_lived_again_as_it_was(recorded: tuple[Path, Day], day: RecordedDay) -> None:
    """Run times come from the record alone, and every workload starts in the second in which it started."""
    begun = (day.begin - START).total_seconds()
    before = {uid: second - begun for uid, second in recorded[1].first_starts().items()}
    again = lived(question_of(day, DayPolicy()))
    assert again.first_starts() == before
    assert len(before) > 60
    waits = [second - (day.arrivals[uid].at - day.begin).total_seconds() for uid, second in before.items()]
    assert max(waits) > HOUR / 4, "the load is too small to show anything"
    assert recorded_waits(day).started == len(before)


def test_less_quota_makes_its_queue_wait(day: RecordedDay, tmp_path: Path) -> None:
    before, after = compare(day, _policy(tmp_path, "elsewhere", "BestEffortFIFO", 64))
    assert after.waits["team-0"].mean > before.waits["team-0"].mean
    assert after.waits["team-0"].started <= before.waits["team-0"].started
    assert before.all_waits.arrived == after.all_waits.arrived == len(day.arrivals)
    assert all(0 <= percent <= 100 for found in (before, after) for percent in found.used_percent.values())


def test_a_queue_without_quota_starts_nothing(day: RecordedDay, tmp_path: Path) -> None:
    _, after = compare(day, _policy(tmp_path, "elsewhere", "BestEffortFIFO", 0))
    assert after.waits["team-0"].started == 0
    assert all(after.waits[name].started for name in ("team-1", "team-2", "team-3"))


def test_a_strict_queue_lets_nothing_pass(day: RecordedDay, tmp_path: Path) -> None:
    strict = lived(question_of(day, _policy(tmp_path, "elsewhere", "StrictFIFO", 128))).first_starts()
    of_queue = [one for one in day.arrivals.values() if one.head.queue == "team-0" and one.head.priority == 0]
    starts = [strict[one.head.uid] for one in sorted(of_queue, key=lambda one: one.at) if one.head.uid in strict]
    assert starts == sorted(starts)


def test_a_policy_may_turn_backfill_on(day: RecordedDay, tmp_path: Path) -> None:
    """All ClusterQueues below the Cohort form one line, but for the one that says no itself; the day differs."""
    path = tmp_path / "policy.yaml"
    cohort = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: all, annotations: {%s: time}}\n"
    out = QUEUE.replace("{name: team-0}", "{name: team-0, annotations: {kqueue.dev/backfill: none}}")
    path.write_text(cohort % BACKFILL_ANNOTATION + "---" + out % ("all", "BestEffortFIFO", 128))

    question = question_of(day, read_policy(path, None))

    rule = LineRule(name="Cohort/all", guesses=False)
    assert question.line_of == {"team-1": rule, "team-2": rule, "team-3": rule}
    with_plans, without = lived(question), lived(replace(question, line_of={}))
    assert with_plans.first_starts() != without.first_starts()
    assert len(with_plans.first_starts()) > 60


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("kind: Deployment", "document 1 is of kind 'Deployment'", id="another-kind"),
        pytest.param("[1, 2]", "document 1 is of kind None", id="no-object"),
        pytest.param("kind: ClusterQueue\nmetadata: 7", "metadata", id="a-wrong-field"),
        pytest.param("{", "expected", id="no-yaml"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_policy(path, None)


def test_mistakes_of_a_policy_are_named(day: RecordedDay, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "kind: Cohort\nmetadata: {name: a}\nspec: {parentName: b}\n---\n"
        "kind: Cohort\nmetadata: {name: b}\nspec: {parentName: a}\n" + "---" + QUEUE % ("a", "BestEffortFIFO", 8)
    )
    with pytest.raises(ConfigError, match=r"Cohort \w is its own ancestor"):
        question_of(day, read_policy(path, None))
    with pytest.raises(ConfigError, match=r"ClusterQueue team-0: .*nominalQuota"):
        question_of(day, _policy(tmp_path, "all", "BestEffortFIFO", "many"))


def test_a_time_without_cycles_is_refused(recorded: tuple[Path, Day]) -> None:
    with pytest.raises(ConfigError, match="no cycle in this time"):
        read_day(Record(recorded[0]), Filter(until=START))


def test_the_command_compares(recorded: tuple[Path, Day], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, config = tmp_path / "policy.yaml", tmp_path / "config.yaml"
    policy.write_text(QUEUE % ("all", "BestEffortFIFO", 32))
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "fairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"
    )
    arguments = ["replay", str(recorded[0]), "--policy", str(policy), "--config", str(config)]
    assert run([*arguments, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["recorded"]["waits"]["started"] == answer["recordedPolicy"]["all_waits"]["started"]
    assert answer["otherPolicy"]["waits"].keys() == answer["recordedPolicy"]["waits"].keys()

    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert f"{answer['recorded']['waits']['arrived']} workloads arrived" in shown
    assert "domains for each start" in shown
