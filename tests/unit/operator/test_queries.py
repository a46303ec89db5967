import re
from dataclasses import replace

import pytest

from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.pod_names import LONGEST, WHOLE, deployment_of, pods_of, told_apart
from rlscaler_operator.sensing.queries import Window, batch, load_seconds, own_name, own_queries
from rlscaler_operator.sensing.selection import MATCHED_NAMES, WHOLE_NAMES
from rlscaler_operator.sensing.subject import Subject

RECEIVED = "inference_requests_received_total"
SHORT, LONG = Window(10, 2.0), Window(60, 15.0)


def by_name(subjects):
    return {query.name: query.promql for query in batch(subjects, SHORT, LONG)}


def test_the_number_of_queries_does_not_grow_with_the_policies():
    one = [Subject("ns", "chat", ("chat-gpu", "chat-cpu"))]
    many = [Subject(f"ns-{i}", f"s-{i}", (f"g-{i}", f"c-{i}")) for i in range(1000)]
    assert len(batch(one, SHORT, SHORT)) == len(batch(many, SHORT, SHORT))
    assert max(len(query.promql) for query in batch(many, SHORT, SHORT)) < 14_000


def test_load_is_what_arrives_told_apart_by_pool():
    promql = by_name([Subject("ns", "chat", ("chat-gpu", None))])["arrival_rate"]
    selector = 'namespace=~"ns",exported_namespace="",exported_service="",service=~"(chat)"'
    assert (
        f"sum by (namespace, service, pool) (max without (prometheus_replica) (rate({RECEIVED}{{{selector}}}" in promql
    )
    assert "[10s]" in promql


def test_arrivals_are_counted_over_the_shorter_window_and_where_a_scrape_was_missed_over_the_longer():
    def arrivals(preset):
        subject = Subject("ns", "chat", ("chat-gpu", None), preset=preset)
        window = Window(60, 15.0, 30)
        (found,) = (query for query in batch([subject], window, LONG) if query.name.endswith("arrival_rate"))
        return re.sub(r"\{[^}]*\}", "", found.promql), found.window, load_seconds(subject, window)

    counted, window, seconds = arrivals("")
    total = "inference_requests_received_total"
    assert f"(rate({total}[30s]) or rate({total}[60s]))" in counted
    assert (window, seconds) == (Window(30, 15.0), 15.0)
    derived = arrivals("vllm")[0]
    assert derived.count(" / 30 or delta(") == derived.count(" / 60)") > 0
    seldom, window, seconds = arrivals("rayserve")
    assert "[30s]" not in seldom
    assert (window.seconds, seconds) == (60, 45.0)


def test_a_load_that_is_no_count_of_requests_is_measured_over_the_longer_window():
    window = Window(60, 15.0, 30)
    assert load_seconds(Subject("ns", "chat", ("chat-gpu", None), unit="tokens", preset="vllm"), window) == 45
    own = Subject("ns", "chat", ("chat-gpu", None), queries=(("arrivalRate", "sum(x)"),))
    assert load_seconds(own, window) == 45


def test_every_query_asks_for_the_time_of_the_newest_raw_sample():
    for promql in by_name([Subject("ns", "chat", ("chat-gpu", "chat-cpu"))]).values():
        assert "timestamp(" in promql
        assert '"_", "t"' in promql


def test_usage_is_a_mean_over_pods_with_data_and_says_of_how_many():
    queries = by_name([Subject("ns", "chat", ("chat-gpu", "chat-cpu"))])
    for name in ("cpu_usage", "memory_usage", "gpu_utilization"):
        assert "avg by (namespace, deployment)" in queries[name]
        assert "count by (namespace, deployment)" in queries[name]
        assert '"_", "n"' in queries[name]


def test_container_metrics_have_their_own_window():
    queries = by_name([Subject("ns", "chat", ("chat-gpu", "chat-cpu"))])
    assert "[60s]" in queries["cpu_usage"]
    assert 'pod=~"((chat-cpu|chat-gpu)-[4-9b-df]{1,10}-[a-z0-9]{5})"' in queries["cpu_usage"]


def test_pools_of_other_names_than_ours_are_one_however_many_there_are():
    promql = by_name([Subject("ns", "chat", ("chat-gpu", None))])["arrival_rate"]
    assert '"_pool", "others", "pool", ".+"), "_pool", "$1", "pool", "(gpu|cpu)")' in promql
    assert promql.count("sum by (namespace, service, _pool)") == 1


def test_namespaces_are_matched_and_labels_of_a_target_that_are_replaced_are_summed_up_before():
    subjects = [Subject(f"ns-{i}", f"s-{i}", (f"g-{i}", f"c-{i}")) for i in range(30)]
    for query in batch(subjects, SHORT, LONG):
        selectors = re.findall(r"\w\{[^}]*=", query.promql)
        assert len(selectors) == len(re.findall(r'\{(exported_)?namespace=~"ns-0\|ns-1\|', query.promql))
        assert not re.search(r"by \(namespace, exported_namespace|by \(exported_namespace, namespace", query.promql)


def test_series_of_several_clusters_are_told_apart_and_matched_by_the_labels_that_are_set():
    subject = Subject("ns", "chat", ("chat-gpu", "chat-cpu"))
    told = {query.name: '"_", "c"' in query.promql for query in batch([subject], SHORT, LONG)}
    assert {name for name, there in told.items() if not there} == {"cpu_request", "memory_request"}
    matched = Labels(told_apart_by=("cluster", "region"), labels=(("cluster", "eu"),))
    for preset in ("", "vllm", "istio", "envoy"):
        for query in batch([replace(subject, preset=preset)], SHORT, LONG, matched):
            assert len(re.findall(r"\w\{[^}]*=", query.promql)) == query.promql.count('{cluster="eu",')
            assert not re.search(r"by \([^)]*\bcluster\b", query.promql)


def test_names_are_matched_literally():
    promql = by_name([Subject("ns", "chat.v1", (None, None)), Subject("ns", "b", (None, None))])["arrival_rate"]
    assert r'service=~"(b|chat\\.v1)"' in promql


def test_many_names_are_not_matched_at_all_but_their_namespaces_are():
    subjects = [Subject("ns", f"s-{i}", (None, None)) for i in range(MATCHED_NAMES + 1)]
    promql = by_name(subjects)["arrival_rate"]
    assert not re.search(r"\bservice=", promql)
    assert 'namespace=~"ns"' in promql


def test_pods_of_many_deployments_are_matched_by_their_begins_and_then_as_a_whole():
    subjects = [Subject("ns", f"s-{i}", (f"s-{i}-gpu", f"s-{i}-cpu")) for i in range(WHOLE_NAMES)]
    promql = by_name([*subjects, Subject("ns", "alone", (None, "alone"))])["cpu_request"]
    (pattern,) = set(re.findall(r'pod=~"([^"]*)"', promql))
    assert re.fullmatch(pattern, "s-3-gpu-7d9c6b8f5d-x7kbp")
    assert not re.fullmatch(pattern, "other-7d9c6b8f5d-x7kbp")
    assert len(pattern.split("|")) == WHOLE_NAMES + 1, "both pools of a policy begin alike"
    assert "(alone|s-0-cpu|s-0-gpu|" in promql


OWN = Subject("ns", "chat", ("chat-gpu", "chat-cpu"), queries=(("arrivalRate", "sum(rate(hits[1m])) # mine"),))


def test_a_query_of_the_users_own_replaces_the_built_in_one():
    assert "arrival_rate" not in by_name([OWN])
    (own,) = own_queries(OWN)
    assert own.name == own_name(*OWN.queries[0])
    assert "(sum(rate(hits[1m])) # mine\n)" in own.promql, "a comment does not swallow what follows"


@pytest.mark.parametrize(
    ("promql", "evaluations"),
    [
        ("hits", 2),
        ("(hits)", 2),
        ('hits{path="/sum("}', 2),
        ("hits # sum(", 2),
        ("hits{a='#'} offset 5m", 2),
        ("hits offset (5m)", 2),
        ("sum(hits)", 1),
        ("sum by (a) (hits)", 1),
        ("rate (hits[1m])", 1),
        ("hits and (other)", 1),
    ],
)
def test_only_what_names_a_series_is_asked_twice(promql, evaluations):
    (own,) = own_queries(Subject("ns", "chat", ("g", None), queries=(("arrivalRate", promql),)))
    assert own.promql.count(f"({promql}\n)") == evaluations


def test_a_built_in_query_that_somebody_needs_is_asked():
    assert "arrival_rate" in by_name([OWN, Subject("ns", "search", (None, "c"))])


def test_utilization_of_the_users_own_spares_usage_and_request():
    own = Subject("ns", "chat", ("g", "c"), queries=(("cpuUtilization", "cpu"), ("memoryUtilization", "memory")))
    assert not {"cpu_usage", "cpu_request", "memory_usage", "memory_request"} & by_name([own]).keys()


def test_another_percentile_is_one_more_query_for_those_who_show_it():
    subjects = [Subject("ns", "a", (None, "c")), *(Subject("ns", f"s{i}", (None, "c"), 99.9) for i in range(5))]
    queries = by_name(subjects)
    assert "histogram_quantile(0.999" in queries["p99.9_ms"]
    assert "histogram_quantile(0.95" in queries["p95_ms"]
    assert "|a" not in queries["p99.9_ms"]
    assert '"(a|s0' in queries["p95_ms"]


def test_nobody_asks_nothing():
    assert batch([], SHORT, SHORT) == []


HASH, SUFFIX = "7d9c6b8f5d", "x7kbp"


def pod_of(deployment):
    return f"{deployment}-{HASH}-"[:58] + SUFFIX


def owner(pod, deployments):
    """What `label_replace` makes of a pod's name."""
    promql = deployment_of("v", deployments)
    pattern = re.fullmatch(r'label_replace\(v, "deployment", "([^"]*)", "pod", "([^"]*)"\)', promql)
    found = re.fullmatch(pattern[2].replace(r"\\", "\\"), pod)
    return found and "".join(group or "" for group in found.groups())


@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_pods_are_attributed_whatever_the_length_of_the_name(length):
    name = ("chat.very-long-name-" * 3)[: length - 1] + "x"
    others = [other for n in (3, WHOLE, WHOLE + 1, 50, LONGEST) if n != length and (other := "y" * n)]
    assert owner(pod_of(name), [name, *others]) == name
    pattern = pods_of([name]).replace(r"\\", "\\")
    assert re.fullmatch(pattern, pod_of(name))
    assert not any(re.fullmatch(pattern, pod_of(other)) for other in others)


@pytest.mark.parametrize(
    "pod", ["chat-job-xyz12", "chat-batch-x7kbp", "chat-29123456-x7kbp", "chat-agent-x7kbp", "chat-x7kbp", "chat-db-0"]
)
def test_pods_of_jobs_daemon_sets_and_stateful_sets_are_not_of_a_deployment(pod):
    """`chat-[a-z0-9]+-…` matched the pods of the Jobs of a CronJob `chat`: a CPU utilization of 200 % for 20 %."""
    assert not re.fullmatch(pods_of(["chat"]), pod)
    assert owner(pod, ["chat"]) is None
    assert not re.fullmatch(pods_of([], ["chat"]), "chat-agent-x7kbp")


def test_a_name_that_another_begins_with_keeps_its_own_pods():
    short = "chat-" * 9 + "a"
    names = [short, short + "-gpu", short + "-gpu-canary"]
    assert [owner(pod_of(name), names) for name in names] == names


def test_pods_of_longer_names_do_not_say_whose_they_are():
    names = ["x" * 60 + end for end in ("-gpu", "-cpu")]
    assert pod_of(names[0]) == pod_of(names[1])
    assert not any(map(told_apart, names))


def test_a_namespaces_word_about_another_is_taken_of_trusted_exporters_only():
    subject = Subject("ns", "chat", ("chat-gpu", None))
    (query, *_) = batch([subject], SHORT, SHORT, Labels(exporters=("gateways",)))
    selectors = re.findall(r"\w(\{\w[^}]*=[^}]*)", query.promql)
    assert {"exported_namespace=~" in one for one in selectors} == {True, False}
    for one in selectors:
        assert ('exported_namespace=~"ns",namespace=~"gateways"' in one) != (one.startswith('{namespace=~"ns"'))
    assert "exported_namespace" not in batch([subject], SHORT, SHORT, Labels(exporters=()))[0].promql


def test_ranks_that_work_on_one_request_count_it_once():
    subject = Subject("ns", "chat", ("chat-gpu", None), unit="concurrency", preset="sglang")
    load = by_name([subject])["sglang load concurrency"]
    assert "max without (prometheus_replica, tp_rank, pp_rank, moe_ep_rank)" in load
