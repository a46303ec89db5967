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
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field, FiniteFloat, TypeAdapter, ValidationError

from rlscaler_core.options import FILE, writable

DAY, WINDOW = 86_400, 600
PUBLISHED_DAYS = 14
LAWS = ("Gamma", "Weibull")

Float = NDArray[np.float64]
Shares = Annotated[dict[FiniteFloat, Annotated[FiniteFloat, Field(ge=0, le=1e9)]], BeforeValidator(ast.literal_eval)]
"""Shares of requests by tokens, in the file as the text of a Python literal."""


class Lengths(BaseModel):
    """Lengths of a client's requests; empty in a window without requests."""

    input_tokens: Shares = {}
    output_tokens: Shares = {}


class Client(NamedTuple):
    """One client: its windows of ten minutes, and its lengths by the second at which they begin to hold."""

    windows: list[tuple[int, float, str, float]]
    """Begin in seconds, requests/s, law of the distances between requests, and its shape."""

    lengths: dict[int, Lengths]


def read_client(trace: Path) -> Client:
    """Read chunk-N-trace.csv and chunk-N-dataset.json. Raises ClickException naming both and the remedy."""
    dataset = trace.with_name(trace.name.replace("-trace.csv", "-dataset.json"))
    try:
        with trace.open(newline="", encoding="utf-8") as file:
            rows = [(int(row[0]), float(row[1]), row[3], float(row[4] or 0)) for row in csv.reader(file)]
        lengths = TypeAdapter(dict[int, Lengths]).validate_json(dataset.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ": ".join(map(str, (dataset, *first["loc"])))
        raise click.ClickException(f"{where}: {first['msg']}; copy it from ServeGen again") from error
    # The last three are of texts that are no literal.
    except (OSError, ValueError, IndexError, csv.Error, SyntaxError, TypeError, RecursionError) as error:
        raise click.ClickException(f"{trace} and {dataset.name}: {error}; copy both from ServeGen again") from error
    windows = [row for row in rows if row[1] > 0]
    if unknown := [row for row in windows if row[2] not in LAWS or not 0 < row[3] < np.inf or row[1] == np.inf]:
        raise click.ClickException(
            f"{trace}: {unknown[0]}: a finite rate and {' or '.join(LAWS)} with a finite shape above 0 are needed"
        )
    return Client(windows, lengths)


def arrivals(rate: float, law: str, shape: float, rng: np.random.Generator) -> Float:
    """Return the seconds of a window's requests: distances by the client's law, scaled to its rate."""
    count = rng.poisson(rate * WINDOW)
    distances = rng.weibull(shape, count + 1) if law == "Weibull" else rng.gamma(shape, 1.0, count + 1)
    return np.asarray(np.cumsum(distances)[:count] / max(distances.sum(), 1e-300) * WINDOW)


def drawn_lengths(lengths: Lengths, count: int, rng: np.random.Generator) -> NDArray[np.int64] | None:
    """Return tokens (count, 2) of prompts and answers; None where a window has no requests to learn from."""
    parts = []
    for shares in (lengths.input_tokens, lengths.output_tokens):
        weights = np.array(list(shares.values()))
        if not weights.sum():
            return None
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
@click.option("--first-day", type=click.IntRange(0, PUBLISHED_DAYS - 1), default=0, show_default=True)
@click.option("--days", type=click.IntRange(1, PUBLISHED_DAYS), default=1, show_default=True)
@click.option(
    "--mean",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Requests/s; more of the log are left out by chance.",
)
@click.option("--longest", type=click.IntRange(2), default=20_000, show_default=True, help="Most tokens of a request.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=FILE, callback=writable, required=True)
def main(folder: Path, first_day: int, days: int, mean: float, longest: int, seed: int, out: Path) -> None:
    """Write the requests of all clients in FOLDER on some days."""
    if first_day + days > PUBLISHED_DAYS:
        raise click.UsageError(
            f"--first-day {first_day} and --days {days}: ServeGen has {PUBLISHED_DAYS} days; name at most "
            f"--days {PUBLISHED_DAYS - first_day}"
        )
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
    out.parent.mkdir(parents=True, exist_ok=True)
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
