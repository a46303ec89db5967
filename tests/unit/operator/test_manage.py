"""What people see of policies, and the commands around it. With a cluster: tests/cluster/operator/test_cli.py."""

import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner
from rich.console import Console

from rlscaler_core.decision.types import Flag
from rlscaler_live import plugin
from rlscaler_live.cli import main
from rlscaler_operator.cli.explain.status_page import status_page
from rlscaler_operator.cli.pages import age, detail, evidence, table
from rlscaler_operator.state.status import flag_names


def ago(**what):
    return (datetime.now(UTC) - timedelta(**what)).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(type_, status, reason, message=""):
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(minutes=5),
    }


@pytest.fixture
def body():
    decision = {
        "id": "0199",
        "time": ago(seconds=12),
        "action": {"gpu": 1, "cpu": -1, "placement": "PreferGPU"},
        "base": {"gpu": 2, "cpu": 3},
        "desired": {"gpu": 3, "cpu": 3},
        "applied": True,
        "reasons": ["Floor"],
    }
    guards = [{"name": "proposal", "after": {"gpu": 3, "cpu": 2}}, {"name": "unknown", "after": {"gpu": 3, "cpu": 2}}]
    guards.append({"name": "floor", "after": {"gpu": 3, "cpu": 3}})
    return {
        "metadata": {"namespace": "ns", "name": "chat", "creationTimestamp": ago(days=3)},
        "spec": {"mode": "Auto", "slo": {"latencyMilliseconds": 500}},
        "status": {
            "conditions": [
                condition("Ready", "True", "Ready"),
                condition("Active", "True", "Acting"),
                condition("Fallback", "False", "NotNeeded"),
            ],
            "targets": {"gpu": {"deployment": "chat-gpu", "ready": 2, "desired": 3, "summary": "2/3"}},
            "placement": {"preference": "PreferGPU", "weights": {"gpu": 800, "cpu": 200}, "httpRoute": "chat"},
            "latency": {"percentile": 95.0, "milliseconds": 321.4},
            "costPerHour": 1.5,
            "lastDecision": decision | {"guards": guards, "result": "chat-gpu: 2 -> 3"},
            "history": [decision],
            "observation": {"p95Latency": {"value": 321.0, "state": "Known", "ageSeconds": 2.0}},
        },
    }


def shown(page, width=200):
    console = Console(width=width, highlight=False, no_color=True)
    with console.capture() as capture:
        console.print(page)
    return capture.get()


def test_a_row_of_the_table(body):
    lines = shown(table([body], False)).splitlines()
    assert lines[1].split() == [
        "chat",
        "Auto",
        "Acting",
        "2/3",
        "-",
        "PreferGPU",
        "p95",
        "321/500",
        "ms",
        "1.50",
        "True",
        "3d",
    ]
    assert len(lines) == 2, "nothing is wrong, so nothing is said"


def test_what_is_wrong_is_said_below_the_table(body):
    body["status"]["conditions"][0] |= {"status": "False", "reason": "SeriesAbsent", "message": "no arrivals"}
    body["status"]["conditions"][2] |= {"status": "True", "reason": "SeriesAbsent", "message": "see Ready"}
    said = shown(table([body], True))
    assert "chat: Ready (SeriesAbsent): no arrivals" in said
    assert "chat: Fallback (SeriesAbsent): see Ready" in said


def test_a_policy_that_no_operator_has_seen_and_one_with_a_wrong_spec_are_shown_too(body):
    new = {"metadata": {"namespace": "ns", "name": "new", "creationTimestamp": ago(seconds=3)}, "spec": {}}
    said = shown(table([new], False))
    assert "NotSeenYet" in said
    assert "no operator has said anything about it" in said
    assert "Shadow" in shown(detail(new))
    assert status_page(new) is None
    assert "chat-gpu: 2 ready, 3 desired" in shown(detail(body))


def test_the_newest_decision_as_the_status_tells_it(body):
    said = shown(status_page(body))
    assert "asked for  gpu +1, cpu -1, PreferGPU" in said
    assert "replicas   gpu 2, cpu 3 → gpu 3, cpu 3" in said
    assert "written    chat-gpu: 2 -> 3" in said
    guards = said.partition("Changes by guards")[2].partition("Last changes")[0]
    assert "floor" in guards
    assert "unknown" not in guards, "a guard that changed nothing is left out"


def test_names_stay_whole_on_a_narrow_terminal(body):
    reasons = sorted(flag_names(-1 & sum(Flag)), key=len)[-3:]
    body["status"]["history"] = [
        {
            "time": ago(days=3),
            "base": {"gpu": 10, "cpu": 100},
            "desired": {"gpu": 12, "cpu": 120},
            "action": {"gpu": 2, "cpu": 2, "placement": "PreferGPU"},
            "applied": True,
            "reasons": reasons,
        }
    ]
    said = shown(status_page(body), 80)
    for name in (*reasons, "PreferGPU"):
        assert re.search(rf"\b{name}\b", said.partition("Last changes")[2]), name
    assert max(map(len, said.splitlines())) <= 80


def test_a_sensing_tick_asked_for_nothing(body):
    del body["status"]["lastDecision"]["action"]
    body["status"]["lastDecision"] |= {"applied": False, "result": ""}
    said = shown(status_page(body))
    assert "the actor was not asked" in said
    assert "see the conditions Active and Conflicted" in said


def test_evidence_in_a_line():
    promotion = {
        "state": "Collecting",
        "days": 3,
        "regret": {"costPercent": {"mean": -12.0, "low": -20.0, "high": -4.0}},
    }
    assert evidence(promotion) == "Collecting, 3 days of evidence, -12.0 % cost (-20.0 to -4.0)"
    assert evidence({"state": "NotRequired", "message": "acts"}) == "NotRequired, acts"


@pytest.mark.parametrize(
    ("time", "said"),
    [
        ("2026-01-09T23:59:55Z", "5s"),
        ("2026-01-09T23:58:20Z", "100s"),
        ("2026-01-09T23:57:00Z", "3m"),
        ("2026-01-09T19:00:00Z", "5h"),
        ("2026-01-01T00:00:00Z", "9d"),
        ("2026-01-10T00:00:07Z", "0s"),
        (None, "-"),
    ],
)
def test_ages_as_kubectl_says_them(time, said):
    assert age(time, datetime(2026, 1, 10, tzinfo=UTC)) == said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell):
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0, done.output
    assert "_RLSCALER_COMPLETE" in done.output


def test_the_plugin_has_what_concerns_a_cluster_and_nothing_else():
    said = CliRunner().invoke(plugin.plugin, ["--help"], prog_name="kubectl rlscale").output
    assert "Usage: kubectl rlscale" in said
    assert [line.split()[0] for line in said.partition("Commands:")[2].splitlines() if line.strip()] == [
        *plugin.COMMANDS
    ]
    assert CliRunner().invoke(plugin.plugin, ["train"]).exit_code == 2


def test_kubectl_is_told_that_there_are_no_files_to_complete(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-rlscale", "re"])
    plugin.complete()
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("resume\t")
    assert said[-1] == ":4"
