"""What people get wrong in their first calls: every command says object, field and remedy, and writes nothing.

`tests/cluster/operator/test_wrong_inputs.py` has what needs an API server.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.refusals import Wrong, everything, make_files, refused

EST = "estimate --out out --history "
SIM = "simulate --out out --history {load_csv} "
FOR = "train --out out --for {good_yaml} --history "
TRACE = [
    Wrong("trace import {none} out.csv", 2, ("none: No such file", "name a readable CSV file")),
    Wrong("trace import {columns_csv} out.csv", 2, ("columns.csv:1: 2 series ('rate', 'errors')", "--series")),
    Wrong("trace import {load_csv} {gap_csv}", 2, ("gap.csv: exists", "name another place or add --force")),
    Wrong("trace import {load_csv} {blocked}", 2, ("good.yaml/out", "name a file that can be written")),
    Wrong("trace import {load_csv} out.csv --query up", 2, ("--query: only with --prometheus",)),
    Wrong("trace import out.csv --prometheus http://127.0.0.1:9", 2, ("--query: is needed, such as",)),
    Wrong("trace import out.csv --prometheus http://127.0.0.1:9 --query up --step 5y", 2, ("'5y'", "15s, 1m")),
    Wrong("trace import out.csv --prometheus http://127.0.0.1:9 --query up --from soon", 2, ("'soon'", "ISO 8601")),
    Wrong(
        "trace import out.csv --prometheus http://127.0.0.1:9 --query up --from now --to now-1h",
        2,
        ("--from", "--to", "the earlier moment first"),
    ),
    Wrong("trace list {binary}", 2, ("binary: neither gzip nor UTF-8", "copy the file again")),
    Wrong("trace days nope", 2, ("nope: no load of the library of days", "there are")),
    Wrong("trace make nope {rows_csv} --days out", 2, ("nope: no load of the library of days", "there are")),
    Wrong("trace make balancer {none} --days out", 2, ("none", "name a file that can be read")),
    Wrong("trace split {zeros_csv} --out out", 2, ("zeros.csv", "every rate is 0", "choose a time with traffic")),
    Wrong("trace plot --out {blocked}", 2, ("--out", "good.yaml is a file, no folder", "name another place")),
    Wrong("trace count --reader access-log {binary} out.csv", 2, ("binary", "is it an access log?")),
    Wrong(
        "trace count --reader events --time nope {rows_csv} out.csv", 2, ("rows.csv:2: 'nope' is no time", "ISO 8601")
    ),
    Wrong("trace count --reader bins --width -60 {rows_csv} out.csv", 2, ("--width: Input should be greater than 0",)),
    Wrong("trace count --reader bins --silence -5 {rows_csv} out.csv", 2, ("--silence: Input should be greater",)),
    Wrong(
        "trace count --reader bins --delimiter :: {rows_csv} out.csv", 2, ("--delimiter: String should have at most",)
    ),
    Wrong("trace count --reader bins --begin soon {rows_csv} out.csv", 2, ("--begin", "'soon'")),
    Wrong("trace count --reader bins {never_csv} out.csv", 2, ("never.csv:2: 'nan' is no time", "ISO 8601")),
    Wrong("trace count --reader counts {more_txt} {most_txt} out.csv", 2, ("more.txt", "3, 4 numbers", "same bins")),
    Wrong("trace count --reader logs {rows_csv} out.csv", 2, ("--reader", "'logs' is not one of", "'access-log'")),
]
HISTORY = [
    Wrong(EST + "{none}", 2, ("--history", "none' does not exist")),
    Wrong(EST + "{folder}", 2, ("--history", "folder' is a directory")),
    Wrong(EST + "{empty}", 2, ("empty: the file is empty", "the first line must be `time_s,requests_per_s`")),
    Wrong(EST + "{binary}", 2, ("binary: neither gzip nor UTF-8 text", "copy the file again")),
    Wrong(EST + "{bare_csv}", 2, ("bare.csv:1: the header is missing", "put `time_s,requests_per_s` above")),
    Wrong(EST + "{header_csv}", 2, ("header.csv: no bins below the header", "over a longer time")),
    Wrong(EST + "{letters_csv}", 2, ("letters.csv:3: column 'requests_per_s': 'five' is no number", "export plain")),
    Wrong(EST + "{gap_csv}", 2, ("gap.csv:4: gap: 120 s", "fill it or cut there")),
    Wrong(EST + "{twice_csv}", 2, ("twice.csv:4: this time is there twice", "keep one rate")),
    Wrong(EST + "{backwards_csv}", 2, ("backwards.csv:4", "before that of the line above", "sort the lines")),
    Wrong(EST + "{nan_csv}", 2, ("nan.csv:3: the rate is not a finite number", "fill the bin or cut")),
    Wrong(EST + "{below_csv}", 2, ("below.csv:3: the rate is negative", "export `rate(...)`")),
    Wrong(EST + "{zeros_csv}", 2, ("zeros.csv", "every rate is 0", "choose a time with traffic")),
    Wrong(EST + "{short_csv}", 2, ("short: 14 min of history", "at least 2 h are needed", "export a longer time")),
    Wrong(EST + "{counter_csv}", 2, ("counter.csv: almost never falls", "give rate(...) of it")),
    Wrong(EST + "{huge_csv} --policy {good_yaml}", 2, ("huge.csv", "another unit?", "divide counts per minute by 60")),
    Wrong(EST + "{load_csv} --policy {prose_yaml}", 2, ("prose.yaml: holds 0 objects of kind RLScalingPolicy",)),
    Wrong(EST + "{load_csv} --scrape-seconds -15", 2, ("--scrape-seconds -15", "2 to 15 are simulated", "more often")),
    Wrong("estimate --history {load_csv} --out {blocked}", 2, ("--out", "good.yaml is a file", "name another place")),
    Wrong("estimate --history {load_csv} --out {good_yaml}", 2, ("--out", "good.yaml' is a file")),
    Wrong(SIM + "{none}", 2, ("POLICY", "none' does not exist")),
    Wrong(SIM + "{broken_yaml}", 2, ("broken.yaml: not YAML", "line 1")),
    Wrong(SIM + "{binary}", 2, ("binary: not YAML",)),
    Wrong(SIM + "{deployment_yaml}", 2, ("deployment.yaml: holds 0 objects of kind RLScalingPolicy", "exactly one")),
    Wrong(SIM + "{two_yaml}", 2, ("two.yaml: holds 2 objects of kind RLScalingPolicy", "exactly one")),
    Wrong(SIM + "{unknown_yaml}", 2, ("spec.targets.gpu.maxReplica = 8", "did you mean maxReplicas?")),
    Wrong(SIM + "{high_yaml}", 2, ("spec.targets.gpu.minReplicas", "lower minReplicas or raise")),
    Wrong(SIM + "{negative_yaml}", 2, ("spec.intervalSeconds = -30", "greater than or equal to")),
    Wrong(SIM + "{unit_yaml}", 2, ("spec.capacity.unit = 'words'", "'requests'")),
    Wrong(SIM + "{preset_yaml}", 2, ("spec.metrics.preset = 'vlllm'", "vllm")),
    Wrong(SIM + "{odd_yaml}", 2, ("spec.intervalSeconds = 17", "multiples of 5 are simulated; set 15")),
    Wrong(SIM + "{tokens_yaml}", 2, ("spec.capacity.unit = tokens", "set unit requests")),
    Wrong(SIM + "{kafka_yaml}", 2, ("chat: spec.signal.kafka", "with `rlscaler streams simulate`")),
    Wrong(SIM + "{good_yaml} --hpa {hpa_yaml}", 2, ("--hpa", "hpa.yaml", "maxReplicas", "kubectl get hpa -o yaml")),
    Wrong(SIM + "{good_yaml} --hpa {hpa_list_yaml}", 2, ("--hpa", "hpa-list.yaml", "kubectl get hpa -o yaml")),
    Wrong(SIM + "{good_yaml} --hpa {binary}", 2, ("--hpa", "binary: not YAML that can be read")),
    Wrong(SIM + "{good_yaml} --model {bare_onnx}", 2, ("--model", "its manifest is missing; expected")),
    Wrong(FOR + "{none}", 2, ("none: No such file", "name a readable CSV file")),
    Wrong(FOR + "{short_csv}", 2, ("short.csv: 14 min of history", "to train, tune and test on", "a longer time")),
    Wrong(FOR + "{load_csv} --replicas 2", 2, ("--replicas 2", "like 2,4")),
    Wrong(FOR + "{load_csv} --model {none}", 2, ("--model", "no such file or folder", "use `bundled`")),
    Wrong(FOR + "{load_csv} --query up", 2, ("--query: only with --prometheus",)),
    Wrong("train --out out --for {good_yaml}", 2, ("--for", "--history FILE.csv or --prometheus URL")),
    Wrong("train --out out --for {unknown_yaml} --history {load_csv}", 2, ("maxReplica = 8", "did you mean")),
]

STREAM = "streams simulate "
STREAMS = [
    Wrong(STREAM + "--history {none}", 2, ("--history", "none' does not exist")),
    Wrong(STREAM + "--history {binary}", 2, ("binary: neither gzip nor UTF-8 text", "copy the file again")),
    Wrong(STREAM + "--history {zeros_csv}", 2, ("zeros.csv", "every rate is 0", "choose a time with traffic")),
    Wrong(STREAM + "--history {counter_csv}", 2, ("counter.csv: almost never falls", "give rate(...) of it")),
    Wrong(STREAM + "--history {seconds_csv}", 2, ("seconds.csv: 30 s of history", "at least 60 s", "export more")),
    Wrong(STREAM + "--history {load_csv} --peak 9", 2, ("--history: is the load itself", "leave out --peak")),
    Wrong(STREAM + "--pattern sawtooth", 2, ("--pattern", "'sawtooth' is not one of 'ramp'")),
    Wrong(STREAM + "--pattern trace", 2, ("--pattern", "'trace' is not one of 'ramp'")),
    Wrong(STREAM + "--protocol eager", 2, ("--protocol", "'eager' is not one of 'range'")),
    Wrong(STREAM + "--low 700", 2, ("--low 700, --peak 600", "--low at most --peak")),
    Wrong(STREAM + "--low nan", 2, ("--low nan, --peak 600", "--low at most --peak")),
    Wrong(STREAM + "--low 0 --peak 0", 2, ("--low 0, --peak 0", "above 0 are needed")),
    Wrong(STREAM + "--duration 59", 2, ("--duration", "59 is not in the range 60<=x<=21600")),
    Wrong(STREAM + "--partitions 0", 2, ("--partitions", "0 is not in the range 1<=x<=1000")),
    Wrong(STREAM + "--messages-per-second 0", 2, ("--messages-per-second", "0.0 is not in the range 0<x")),
    Wrong(STREAM + "--messages-per-second nan", 2, ("--messages-per-second nan", "a number above 0")),
    Wrong(STREAM + "--objective 0", 2, ("--objective", "0.0 is not in the range 0<x")),
    Wrong(STREAM + "--objective nan", 2, ("--objective nan", "a number above 0")),
    Wrong(STREAM + "--min 5 --max 3", 2, ("--min 5: more than the 3 of --max", "lower it, or raise --max")),
    Wrong(STREAM + "--min 5 --partitions 3", 2, ("--min 5: more than the 3 of --max", "raise --max")),
    Wrong(STREAM + "--max 256", 2, ("--max", "256 is not in the range 1<=x<=255")),
    Wrong(STREAM + "--seeds 0", 2, ("--seeds", "0 is not in the range 1<=x<=100")),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_files(tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("wrong", [*TRACE, *HISTORY, *STREAMS], ids=lambda wrong: wrong.words.replace(" --out out", ""))
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_written(
    wrong: Wrong, places: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = everything(tmp_path, Path(places["none"]).parent)
    refused(wrong, places)
    assert everything(tmp_path, Path(places["none"]).parent) == before
