"""Make the samples of the recorded traces and `data/splits.json`. Done once, kept for provenance.

python -m rlscaler_rl.workloads.sample FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_loadgen.traces import Trace, read_trace, write_trace
from rlscaler_rl.workloads.library import WHOLE, SampleFile, Span, Split, Splits, data_file
from rlscaler_rl.workloads.names import HELD_OUT, TRACES, Part
from rlscaler_rl.workloads.recording import FRACTIONS, REFERENCE_PERCENTILE, Float

RULE = (
    "Parts follow one another in time. Traces of days: train the first 60 %, tune the next 15 %, test the last 25 %. "
    "azure_conv has 58 minutes: 17.5 for train, 10.5 for tune, 30 for test (three blocks of 10 minutes). azure_code "
    "has 57 minutes and is in no policy's training: five stretches of 687 s, test of fold 0 are the first, third and "
    "fifth, test of fold 1 the others; what a fold does not test it tunes on."
)
SAMPLE_RULE = (
    "The azure traces ship whole. Of the others, a contiguous window of every part ships: of all windows that begin a "
    "whole number of hours after their part, the one in which most goes on inside an episode, that is with the "
    "greatest mean over its 10-minute stretches of the standard deviation of the 1-minute mean rates. "
    "Rates with 3 significant digits."
)
HOUR = 3600
MINUTE, STRETCH_MINUTES = 60, 10
DIGITS = 3

AZURE_CONV: dict[Part, tuple[Span, ...]] = {
    Part.TRAIN: ((0, 1050),),
    Part.TUNE: ((1050, 1680),),
    Part.TEST: ((1680, 3502),),
}
STRETCH = 687
AZURE_CODE_FOLDS: tuple[tuple[Span, ...], ...] = tuple(
    tuple((i * STRETCH, (i + 1) * STRETCH) for i in stretches) for stretches in ((0, 2, 4), (1, 3))
)

WINDOW_SECONDS = {
    "servegen_small": {Part.TRAIN: 6 * HOUR, Part.TUNE: 3 * HOUR, Part.TEST: 8 * HOUR},
    "servegen_large": {Part.TRAIN: 6 * HOUR, Part.TUNE: 3 * HOUR, Part.TEST: 8 * HOUR},
    "worldcup": {Part.TRAIN: 8 * 24 * HOUR, Part.TUNE: 4 * 24 * HOUR, Part.TEST: 8 * 24 * HOUR},
}

_AZURE = "https://github.com/Azure/AzurePublicDataset"
_SERVEGEN = "https://github.com/alibaba/ServeGen"
ABOUT: dict[str, dict[str, str]] = {
    "azure_code": {
        "file": "azure-llm-2023-code-1s.csv.gz",
        "what": "LLM code completion, very bursty",
        "source": f"AzureLLMInferenceTrace_code, {_AZURE}, counted per second",
        "licence": "CC-BY-4.0",
    },
    "azure_conv": {
        "file": "azure-llm-2023-conv-1s.csv.gz",
        "what": "LLM chat",
        "source": f"AzureLLMInferenceTrace_conv, {_AZURE}, counted per second",
        "licence": "CC-BY-4.0",
    },
    "servegen_small": {
        "file": "servegen-m-small-1s.csv.gz",
        "what": "LLM serving, 43 clients",
        "source": f"data/language/m-small of {_SERVEGEN}; per-client 10-minute rates expanded to seconds with each "
        "window's own inter-arrival law, seed 2025",
        "licence": "Apache-2.0",
    },
    "servegen_large": {
        "file": "servegen-m-large-1s.csv.gz",
        "what": "LLM serving, 162 clients, by day and night",
        "source": f"data/language/m-large of {_SERVEGEN}; per-client 10-minute rates expanded to seconds with each "
        "window's own inter-arrival law, seed 2025",
        "licence": "Apache-2.0",
    },
    "worldcup": {
        "file": "worldcup98-60s.csv.gz",
        "what": "web site, flash crowds around matches",
        "source": "https://github.com/nimamahmoudi/worldcup98-dataset, from the Internet Traffic Archive; per-minute "
        "counts divided by 60",
        "licence": "MIT",
    },
}


def split(name: str, folder: Path) -> Split:
    """Cut one trace and write its samples."""
    about = ABOUT[name]
    trace = read_trace(folder / about["file"])
    rate = trace.per_second()
    parts: dict[Part, tuple[Span, ...]] = {}
    if name != HELD_OUT:
        parts = AZURE_CONV if name == "azure_conv" else by_time(trace)
        rate = rate[slice(*parts[Part.TRAIN][0])]
    return Split(
        **about,
        bins=len(trace.rate),
        width_s=trace.width_s,
        digest=trace.digest(),
        reference_rps=round(float(np.percentile(rate, REFERENCE_PERCENTILE)), 6),
        parts=parts,
        folds=AZURE_CODE_FOLDS if name == HELD_OUT else (),
        sample=_samples(name, trace, parts),
    )


def by_time(trace: Trace) -> dict[Part, tuple[Span, ...]]:
    """`FRACTIONS` of the length, rounded to whole bins."""
    ends = np.rint(np.cumsum(list(FRACTIONS.values())) * len(trace.rate)) * trace.width_s
    begins = [0, *ends[:-1]]
    return {part: ((int(a), int(b)),) for part, a, b in zip(FRACTIONS, begins, ends, strict=True)}


def busiest(trace: Trace, begin: int, end: int, window: int) -> int:
    """Begin, in seconds, of the window of the sample rule."""
    minutes = trace.per_second()[begin:end]
    minutes = minutes[: len(minutes) // MINUTE * MINUTE].reshape(-1, MINUTE).mean(1)
    stretches = minutes[: len(minutes) // STRETCH_MINUTES * STRETCH_MINUTES].reshape(-1, STRETCH_MINUTES).std(1)
    summed = np.append(0.0, np.cumsum(stretches))
    size, hour = window // MINUTE // STRETCH_MINUTES, HOUR // MINUTE // STRETCH_MINUTES
    scores = (summed[size:] - summed[:-size])[::hour]
    return begin + int(np.argmax(scores)) * HOUR


def _samples(name: str, trace: Trace, parts: dict[Part, tuple[Span, ...]]) -> dict[str, SampleFile]:
    if name not in WINDOW_SECONDS:
        return {WHOLE: _write(name, WHOLE, trace, 0, int(trace.length_s), digits=6)}
    samples = {}
    for part, window in WINDOW_SECONDS[name].items():
        begin = busiest(trace, *parts[part][0], window)
        samples[part.value] = _write(name, part.value, trace, begin, window, DIGITS)
    return samples


def _write(name: str, key: str, trace: Trace, begin: int, seconds: int, digits: int) -> SampleFile:
    about, width = ABOUT[name], trace.width_s
    whole = key == WHOLE
    rates: Float = trace.rate[round(begin / width) : round((begin + seconds) / width)]
    comments = (
        f"{about['what']}: " + ("the whole trace" if whole else f"{key} part, from second {begin} of the trace on"),
        f"Source: {about['source']}",
        f"Licence: {about['licence']}" + ("" if whole else f". Changed: cut out, {digits} significant digits"),
    )
    file = f"{name}.csv.gz" if whole else f"{name}-{key}.csv.gz"
    write_trace(data_file(file), Trace(rates, width, comments), digits)
    return SampleFile(file=file, begin_s=begin, seconds=seconds, digest=read_trace(data_file(file)).digest())


def main(arguments: list[str]) -> None:
    traces: dict[str, Any] = {name: split(name, Path(arguments[0])) for name in TRACES}
    splits = Splits(rule=RULE, sample_rule=SAMPLE_RULE, traces=traces)
    text = splits.model_dump_json(indent=1, exclude_defaults=True)
    data_file("splits.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
