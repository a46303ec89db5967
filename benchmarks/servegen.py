"""Requests of ServeGen's clients as a log for `rlscaler tokens compare --trace`.

ServeGen (https://github.com/alibaba/ServeGen, Apache-2.0) publishes, of twelve models of Alibaba's cloud, rate,
burstiness and lengths of each client's requests in windows of ten minutes and six hours. Arrivals and lengths are drawn
from these; the requests themselves are not published. Of a log that is thinned to a mean, bursts of single clients are
thinned too: with a few percent of the requests their arrivals are close to Poisson.

    python -m benchmarks.servegen ServeGen/data/reason/deepseek-r1 --mean 2 --out requests.csv
"""

from __future__ import annotations

import ast
import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

DAY, WINDOW = 86_400, 600
LAWS = ("Gamma", "Weibull")
LENGTHS = ("input_tokens", "output_tokens")

Float = NDArray[np.float64]


class Client(NamedTuple):
    """One client: its windows of ten minutes, and its lengths by the second at which they begin to hold."""

    windows: list[tuple[int, float, str, float]]
    """Begin in seconds, requests/s, law of the distances between requests, and its shape."""

    lengths: dict[int, dict[str, str]]


def read_client(trace: Path) -> Client:
    """Read chunk-N-trace.csv and chunk-N-dataset.json. Raises ClickException naming both and the remedy."""
    dataset = trace.with_name(trace.name.replace("-trace.csv", "-dataset.json"))
    try:
        with trace.open(newline="", encoding="utf-8") as file:
            rows = [(int(row[0]), float(row[1]), row[3], float(row[4] or 0)) for row in csv.reader(file)]
        lengths = {int(begin): fields for begin, fields in json.loads(dataset.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, IndexError) as error:
        raise click.ClickException(f"{trace} and {dataset.name}: {error}; copy both from ServeGen again") from error
    windows = [row for row in rows if row[1] > 0]
    if unknown := [row for row in windows if row[2] not in LAWS or row[3] <= 0]:
        raise click.ClickException(f"{trace}: {unknown[0]}: {' or '.join(LAWS)} with a shape above 0 is needed")
    return Client(windows, lengths)


def arrivals(rate: float, law: str, shape: float, rng: np.random.Generator) -> Float:
    """Return the seconds of a window's requests: distances by the client's law, scaled to its rate."""
    count = rng.poisson(rate * WINDOW)
    distances = rng.weibull(shape, count + 1) if law == "Weibull" else rng.gamma(shape, 1.0, count + 1)
    return np.asarray(np.cumsum(distances)[:count] / max(distances.sum(), 1e-300) * WINDOW)


def drawn_lengths(fields: dict[str, str], count: int, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Return tokens (count, 2) of prompts and answers; None where a window has no requests to learn from."""
    parts = []
    for name in LENGTHS:
        shares: dict[int, float] = ast.literal_eval(fields.get(name, "{}"))
        if not shares:
            return None
        weights = np.array(list(shares.values()))
        parts.append(rng.choice(np.array(list(shares)), count, p=weights / weights.sum()))
    return np.stack(parts, axis=1).astype(np.int64)


def requests_of(client: Client, begin: int, end: int, keep: float, rng: np.random.Generator) -> NDArray[Any]:
    """Return rows (M, 3) of second, prompt and answer of a client's requests; each stays with probability `keep`."""
    rows = [np.zeros((0, 3))]
    known = sorted(client.lengths)
    for start, rate, law, shape in client.windows:
        if not begin <= start < end:
            continue
        seconds = start - begin + arrivals(rate, law, shape, rng)
        seconds = seconds[rng.random(len(seconds)) < keep]
        since = [moment for moment in known if moment <= start]
        lengths = drawn_lengths(client.lengths[since[-1]], len(seconds), rng) if since and len(seconds) else None
        if lengths is not None:
            rows.append(np.column_stack([seconds, lengths]))
    return np.concatenate(rows)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--first-day", type=click.IntRange(0, 13), default=0, show_default=True)
@click.option("--days", type=click.IntRange(1, 14), default=1, show_default=True)
@click.option(
    "--mean",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Requests/s; more of the log are left out by chance.",
)
@click.option("--longest", type=click.IntRange(2), default=20_000, show_default=True, help="Most tokens of a request.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True)
def main(folder: Path, first_day: int, days: int, mean: float, longest: int, seed: int, out: Path) -> None:
    """Write the requests of all clients in FOLDER on some days."""
    begin, end = DAY * first_day, DAY * (first_day + days)
    clients = [read_client(path) for path in sorted(folder.glob("chunk-*-trace.csv"))]
    if not clients:
        raise click.ClickException(f"{folder}: no chunk-N-trace.csv is in it; name the folder of one model")
    volume = sum(WINDOW * window[1] for client in clients for window in client.windows if begin <= window[0] < end)
    keep = min(mean * (end - begin) / max(volume, 1e-9), 1.0)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([requests_of(client, begin, end, keep, rng) for client in clients])
    if not len(rows):
        raise click.ClickException(f"{folder}: no client has requests on these days; name others by --first-day")
    whole = rows[(rows[:, 1:] >= 1).all(axis=1)]
    requests = whole[whole[:, 1] + whole[:, 2] <= longest]
    if not len(requests):
        raise click.ClickException(f"--longest {longest:,}: every request has more tokens; name a larger number")
    requests = requests[np.argsort(requests[:, 0], kind="stable")]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        writer.writerows(
            [datetime.fromtimestamp(second, UTC).isoformat(sep=" ", timespec="milliseconds")[:23], int(a), int(b)]
            for second, a, b in requests
        )
    prompt, answer = requests[:, 1:].mean(axis=0)
    left_out = 100 * (1 - len(requests) / len(rows))
    click.echo(
        f"{len(requests):,} requests of {len(clients)} clients, {100 * keep:.3g} % of those published, of "
        f"{prompt:.0f} + {answer:.0f} tokens; {left_out:.2g} % had no tokens or more than {longest:,}"
    )


if __name__ == "__main__":
    main()
