"""`rlscaler train --for`: from a policy and a history to a result folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rlscaler_core.decision.actor import Actor
from rlscaler_rl.evaluation import schema
from rlscaler_rl.evaluation.models import Start
from rlscaler_rl.evaluation.service_tuning import networks, report, spec, verdict
from rlscaler_rl.evaluation.service_tuning.episodes import DRAWS, Score, part_episodes, score_of
from rlscaler_rl.evaluation.service_tuning.history import History
from rlscaler_rl.evaluation.service_tuning.networks import FOUND_SPEC, GENERAL, OWN_SPEC, Alternative, Bench, Choice
from rlscaler_rl.evaluation.service_tuning.rivals import TUNED, rivals, tune
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.evaluation.tuning.tune import Best
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.training.export import write
from rlscaler_rl.training.files import write_atomically
from rlscaler_rl.training.finetune import FineTuned, FineTuning
from rlscaler_rl.workloads import Part

TUNE_SECONDS, TUNE_EPISODES = 16 * 3600, 32
TEST_SECONDS, TEST_EPISODES = 48 * 3600, 96
"""About so many are played at most: of a long history a random choice of its stretches, of a short one each several
times."""

JUDGED_SEED = DRAWS
"""Networks, specs and the rivals' settings are chosen on other draws from the tune part than those that made them
finalists: run r has the draws of `seed + r`, so that a smaller step would share most of them."""

REPORT = "report.txt"


@dataclass(frozen=True, slots=True)
class Options:
    """Length of training and searches, and the level that judges."""

    training: FineTuning = field(default_factory=FineTuning)
    level: LevelName = "request"
    budget: int = 150
    """Settings of HPA and of the rule that are tried on the tune part, each, and of the policy's spec around all its
    networks together."""

    finalists: int = 10
    spec_finalists: int = 4
    """Finalists of the spec search around every network."""


def tune_for_service(
    service: Service, history: History, start: Start, options: Options, folder: Path, progress: Callable[[str], None]
) -> schema.ServiceVerdict:
    """Search, train, choose, tune the rivals, play the held-back part, write the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    score = score_of(service, history.recording.reference)
    seed = options.training.agent.seed
    wanted = min(TUNE_EPISODES, TUNE_SECONDS // service.episode_seconds)
    on_tune, _ = part_episodes(service, history, Part.TUNE, wanted, seed)
    judged, runs = part_episodes(service, history, Part.TUNE, wanted, seed + JUDGED_SEED)
    bench = Bench(
        service=service,
        kind=spec.tunable(service, history),
        screening=on_tune,
        judged=judged,
        runs=runs,
        score=score,
        level=options.level,
        # The start and each network get an equal share of the trials.
        budget=max(options.budget // (1 + networks.NETWORKS), 1),
        finalists=options.spec_finalists,
        seed=seed,
    )
    choice = _chosen(bench, history, start, options, progress, folder)
    policy = networks.artefact(service, start, choice.network, options.training)
    write(folder, "policy", "manifest.json", policy.content, policy.manifest)
    tuned, searched = {}, {"budget": options.budget, "finalists": options.finalists, "seed": seed}
    for name in TUNED:
        progress(f"tuning the contender {name} on the tune part")
        tuned[name] = tune(name, (on_tune, judged), score, options.level, **searched)
    progress("playing the held-back part")
    judgement = _judged(service, history, start, choice, tuned, policy.actor(), score, options)
    assert judgement.recommendation is not None
    verdict.write_patch(judgement.recommendation, service, folder)
    write_atomically(folder / schema.VERDICT_FILE, judgement.model_dump_json(indent=1, by_alias=True) + "\n")
    write_atomically(folder / REPORT, report.text_report(judgement))
    return judgement


def _chosen(
    bench: Bench, history: History, start: Start, options: Options, progress: Callable[[str], None], folder: Path
) -> Choice:
    """The spec is searched around the general network, two are fine-tuned, and it is searched around each of them."""
    progress("searching the spec around the general policy on the tune part")
    alternatives = [Alternative(GENERAL, start.loaded.actor)]
    points = {GENERAL: bench.search(start.loaded.actor)}
    best = spec.changes(bench.service, points[GENERAL][0])
    for index, (name, under) in enumerate(((OWN_SPEC, spec.OWN), (FOUND_SPEC, best))):
        progress(f"fine-tuning under {'your own spec' if not under else 'the best spec so far'}")
        training = networks.share(options.training, bench.seed + index)
        known = bench.service, history, start, under, bench.screening, bench.score
        alternatives.append(networks.train(name, *known, training, bench.level, progress, folder))
        progress("searching the spec around it")
        points[name] = bench.search(alternatives[-1].actor, [points[GENERAL][0]])
    return bench.choose(alternatives, points)


def _judged(
    service: Service,
    history: History,
    start: Start,
    choice: Choice,
    tuned: Mapping[str, Best],
    actor: Actor,
    score: Score,
    options: Options,
) -> schema.ServiceVerdict:
    name, fine_tuned = service.name, choice.network.tuned
    assert fine_tuned is not None
    played = rivals(service, actor, start.loaded.actor, tuned, history.recording.reference, choice.found)
    wanted = min(TEST_EPISODES, TEST_SECONDS // service.episode_seconds)
    episodes, runs = part_episodes(service, history, Part.TEST, wanted, options.training.agent.seed)
    board, audit = verdict.play(name, played, episodes, runs, score, options.level)
    rows = verdict.rows(board, name, played, service, service.episode_seconds)
    publish, reasons = verdict.decide(rows, history, fine_tuned, service, audit.reasons())
    return schema.ServiceVerdict(
        publish=publish,
        reasons=reasons,
        caveats=(*_assumed(service), *history.caveats),
        name=name,
        namespace=service.namespace,
        policy_digest=actor.manifest.digest,
        general_digest=start.loaded.digest,
        level=options.level,
        episode_seconds=service.episode_seconds,
        episodes=len(episodes),
        history=_recorded(history, service),
        training=_training(start, choice, fine_tuned, tuned),
        rows=rows,
        recommendation=verdict.recommendation(board, name, choice, service, history, publish=publish),
    )


def _training(start: Start, choice: Choice, fine_tuned: FineTuned, tuned: Mapping[str, Best]) -> schema.ServiceTraining:
    return schema.ServiceTraining(
        start=start.loaded.name,
        steps=fine_tuned.steps,
        seconds=round(fine_tuned.seconds, 1),
        cut_short=fine_tuned.cut_short,
        best_steps=fine_tuned.best.steps,
        tune_j={candidate.steps: round(candidate.j, 4) for candidate in fine_tuned.candidates},
        tuned={name: {"default": candidate.default_j, "tuned": candidate.j} for name, candidate in tuned.items()},
        chosen=choice.network.name,
        networks={name: {"own": round(own, 4), "found": round(best, 4)} for name, (own, best) in choice.j.items()},
    )


def _assumed(service: Service) -> list[str]:
    """Caveats about constants that the policy leaves open and training assumed."""
    caveats = [f"spec.{field} is assumed, as it was neither set nor learned: measure it" for field in service.assumed]
    if (service.params.present[0] & (service.params.min_replicas[0] == 0)).any():
        caveats.append("minReplicas 0: training kept at least one replica in every pool; the trial did not")
    return caveats


def _recorded(history: History, service: Service) -> schema.RecordedHistory:
    return schema.RecordedHistory(
        source=history.source,
        seconds=history.seconds,
        digest=history.digest,
        peak_rps={str(part): round(peak, 4) for part, peak in history.peaks.items()},
        blocks={str(part): history.blocks(part, service) for part in Part},
        rise=round(history.rise, 4),
        smooth=history.smooth,
    )
