"""Which pods go first, for any pods on any nodes: work before nodes, and no choice that empties more of them."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from rlscaler_operator.actuation.idle import first_to_go
from rlscaler_operator.cluster.holders import Places


@st.composite
def situations(draw):
    """Up to seven pods with requests in flight, on up to four nodes and their GPUs, some with a pod of others."""
    names = [("ns", f"p{index}") for index in range(draw(st.integers(1, 7)))]
    amounts = st.sampled_from([0.0, 0.3, 2.0, 3.0, 40.0])
    work = {name: (draw(amounts), 0.0, draw(st.floats(0, 8))) for name in names}
    strangers = st.frozensets(st.just(("theirs", "web")))

    def places(number):
        where = {name: draw(st.integers(0, number - 1)) for name in names}
        held = [frozenset(n for n in names if where[n] == place) | draw(strangers) for place in range(number)]
        return tuple(holders for holders in held if holders & set(names))

    return work, draw(st.integers(0, 8)), Places(places(4), places(3))


def grade(work, pod):
    """Idle, a few requests, many requests: the amounts above are a doubling apart or not."""
    return {0.0: 0, 0.3: 0, 2.0: 1, 3.0: 1, 40.0: 2}[work[pod][0]]


def emptied(places, gone):
    return sum(holders <= gone for holders in places)


def alternatives(work, gone):
    """Every other choice of as many pods that takes as many of each grade."""
    grades = sorted(grade(work, pod) for pod in gone)
    some = combinations(work, len(gone))
    return [set(pods) for pods in some if sorted(grade(work, pod) for pod in pods) == grades]


@given(situations())
def test_so_many_go_as_are_asked_for_and_no_idler_pod_stays(situation):
    work, number, places = situation
    gone = first_to_go(work, number, places)
    assert len(gone) == min(number, len(work))
    stay = work.keys() - gone
    assert all(grade(work, one) <= grade(work, other) for one in gone for other in stay)


@given(situations())
def test_no_choice_that_takes_idle_pods_first_empties_more_nodes(situation):
    work, number, places = situation
    gone = first_to_go(work, number, places)
    assert emptied(places.nodes, gone) == max(emptied(places.nodes, some) for some in alternatives(work, gone))


@given(situations())
def test_where_no_node_can_be_emptied_gpus_are(situation):
    work, number, places = situation
    held = tuple(holders | {("theirs", "db")} for holders in places.nodes)
    gone = first_to_go(work, number, Places(held, places.gpus))
    assert emptied(held, gone) == 0
    assert emptied(places.gpus, gone) == max(emptied(places.gpus, some) for some in alternatives(work, gone))


@given(situations(), st.randoms())
def test_neither_the_order_of_pods_nor_that_of_places_matters(situation, chance):
    work, number, places = situation
    turned = [list(kind) for kind in (work.items(), places.nodes, places.gpus)]
    for kind in turned:
        chance.shuffle(kind)
    again = first_to_go(dict(turned[0]), number, Places(tuple(turned[1]), tuple(turned[2])))
    assert again == first_to_go(work, number, places)


@given(situations())
def test_one_after_the_other_they_empty_a_node_before_they_begin_the_next(situation):
    work, _, places = situation
    work = dict.fromkeys(work, (0.0, 0.0, 0.0))
    ours = Places(tuple(holders & work.keys() for holders in places.nodes))
    left, begun = dict(work), []
    while left:
        (going,) = first_to_go(left, 1, Places(tuple(h & left.keys() for h in ours.nodes)))
        del left[going]
        begun.append(sum(0 < len(holders & left.keys()) < len(holders) for holders in ours.nodes))
    assert max(begun, default=0) <= 1
