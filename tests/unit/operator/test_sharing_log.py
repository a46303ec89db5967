"""How budgets were shared is in the audit log, and a replay repeats it and follows each grant to its decision."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.batch import decide_all
from rlscaler_operator.cli.replay import replay as command
from rlscaler_operator.records.record import Subject, line
from tests.harness.budgets import budget_body

DRAWN = Path(__file__).parents[2] / "data" / "sharings.jsonl"


@pytest.fixture
async def recorded(bench, policy_body, asks, tmp_path):
    """Share among three policies for some intervals as the loop does, and give the records of it all, in order."""
    audit = bench.write_to(tmp_path / "shared.jsonl")
    policies = [bench.policy(policy_body(name)) for name in "abc"]
    shadow = bench.policy(policy_body("shadow"), running=2, mode="Shadow")
    terms = {
        "lending": {"reclaimIntervals": 3},
        "members": [{"name": "all", "guaranteed": 2, "unitsPerReplica": 0.1 * 3}],
    }
    bench.budgets.put(budget_body(amount=3, **terms))
    decisions = []
    for step in range(12):
        bench.now += 5
        kinds = ["floor" if (step + i) % 3 == 0 else "action" for i in range(3)]
        decided = [
            (policy, asks(1 + (5 * i + 3 * step) % 8, kind=kind))
            for i, (policy, kind) in enumerate(zip(policies, kinds, strict=True))
        ]
        decided.append((shadow, asks(9, running=2)))
        grants = bench.binding(decided)
        for policy, outcome in decided:
            if (grant := grants.get(policy.key)) is not None:
                samples = replace(outcome.entry.samples, granted_replicas=np.array([grant.by_pool], np.int32))
                (outcome,) = decide_all([replace(outcome.entry, samples=samples)])
                outcome.granted, outcome.sharing = grant.describe(), grant.sharing_id
            subject = Subject(*policy.key, "u", 1, "Auto")
            decisions.append(line(f"{policy.key[1]}-{step}", 1e9 + step, subject, outcome, [], None, None))
    audit.close()
    sharings = [json.loads(text) for text in (tmp_path / "shared.jsonl").read_text().splitlines()]
    return sharings, json.loads(json.dumps(decisions))


@pytest.fixture
def replayed(tmp_path):
    def run(records, *options):
        path = tmp_path / "audit.jsonl"
        path.write_text("".join(json.dumps(record, allow_nan=False) + "\n" for record in records))
        done = CliRunner().invoke(command.replay, [str(path), "-o", "json", *options])
        return done, json.loads(done.stdout)

    return run


def test_everything_comes_out_again(recorded, replayed):
    sharings, decisions = recorded
    done, tally = replayed([*sharings, *decisions])
    assert done.exit_code == 0, done.output
    assert tally["sharings"] == tally["sharingsSame"] == len(sharings) > 5
    assert tally["decisions"] == tally["same"] == 48
    named = {record["sharing"] for record in decisions}
    assert named == {record["sharing_id"] for record in sharings}
    bound = [record for record in decisions if record["grant"]]
    assert 10 < len(bound) < 48
    assert {reason for record in sharings for reason in record["grants"]["reason"]} > {0}


async def test_a_line_stands_as_long_as_the_arbiter_is_told_the_same(bench, policy_body, asks, tmp_path):
    audit = bench.write_to(tmp_path / "shared.jsonl")
    a = bench.policy(policy_body("a"))
    bench.budgets.put(budget_body(amount=4))
    ids = []
    for asked in (2, 2, 2, 3, 3):
        outcome = asks(asked)
        bench.sharing.share_batch([(a, outcome)])
        ids.append(outcome.sharing)
    bench.budgets.put(budget_body(amount=5, generation=2))
    outcome = asks(3)
    bench.sharing.share_batch([(a, outcome)])
    audit.close()
    assert ids[0] == ids[1] == ids[2] != ids[3] == ids[4] != outcome.sharing
    texts = (tmp_path / "shared.jsonl").read_text().splitlines()
    assert [json.loads(text)["shared"]["amount"] for text in texts] == [[[4.0]], [[4.0]], [[5.0]]]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("grants", "granted", 1),
        ("grants", "reason", 6),
        ("grants", "because", 2),
        ("after", "waited_intervals", 90),
        ("members", "asked", None),
        ("members", "weight", 7.0),
        ("members", "units", [0.9]),
        ("grants", "resource", 3),
        ("shared", "amount", [1.2]),
        ("loans", "granted", 40),
    ],
)
def test_a_number_that_was_changed_is_found(recorded, replayed, table, column, value):
    """A wrong result is found in every line; not each number of the input matters in each of them."""
    sharings, decisions = recorded
    changed = json.loads(json.dumps(sharings))
    for record in changed:
        record[table][column][0] = value
    unchanged = sum(record == before for record, before in zip(changed, sharings, strict=True))
    done, tally = replayed([*changed, *decisions])
    assert (done.exit_code, tally["notReplayed"]) == (1, 0)
    assert tally["sharingsSame"] == unchanged or table not in ("grants", "after")


def test_a_decision_with_another_grant_than_the_arbiter_gave_is_found(recorded, replayed):
    sharings, decisions = recorded
    row = next(i for i, record in enumerate(decisions) if record["grant"])
    granted = decisions[row]["samples"]["granted_replicas"][0]
    decisions[row]["samples"]["granted_replicas"][0] = granted + 1
    again, _ = replayed([*sharings, decisions[row]])
    assert again.exit_code == 1
    assert f"decided with a grant of {granted + 1}, and {granted} was granted" in again.output


def test_a_sharing_of_an_old_file_that_is_gone_fails_nothing(recorded, replayed):
    sharings, decisions = recorded
    done, tally = replayed([*sharings[5:], *decisions])
    assert done.exit_code == 0, done.output
    assert tally["same"] == 48


def test_recorded_sharings_of_drawn_budgets_come_out_again(replayed):
    """Twelve by each of the four rules."""
    lines = [json.loads(text) for text in DRAWN.read_text().splitlines()]
    _, tally = replayed(lines)
    assert tally["sharings"] == tally["sharingsSame"] == 48
    lines[7]["grants"]["granted"][0] += 1
    done, tally = replayed(lines)
    assert (done.exit_code, tally["sharingsSame"]) == (1, 47)


def test_a_log_of_a_release_without_sharings_replays(recorded, replayed):
    _, decisions = recorded
    for record in decisions:
        del record["sharing"]
    done, tally = replayed(decisions)
    assert (done.exit_code, tally["same"], tally["sharings"]) == (0, 48, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schema": "rlscaler.io/sharing/v9"}, "replay it with the release"),
        ({"rule": "Lottery"}, "'Lottery'"),
        ({"members": {"asked": [1.0]}}, "malformed"),
        ({"policies": ["ns/a", "b"]}, "malformed"),
        ({"loans": {}}, "malformed"),
    ],
)
def test_a_sharing_that_cannot_be_read_is_said_and_no_decision_is_lost(recorded, replayed, change, text):
    sharings, decisions = recorded
    done, tally = replayed([sharings[0] | change, *decisions])
    assert (done.exit_code, tally["same"], tally["sharingsSame"]) == (3, 48, 0)
    assert text in done.output


def test_one_policy_is_replayed_with_the_sharings_that_it_is_in(recorded, replayed):
    sharings, decisions = recorded
    done, tally = replayed([*sharings, *decisions], "--policy", "ns/b")
    assert (done.exit_code, tally["decisions"], tally["sharings"]) == (0, 12, len(sharings))
    done, tally = replayed([*sharings, *decisions], "--policy", "ns/other")
    assert (done.exit_code, tally["sharings"]) == (3, 0)
