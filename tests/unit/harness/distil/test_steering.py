"""What a target is steered with: kinds by their shares, openings from lists of words, articles quoted."""

import re
from collections import Counter
from importlib.resources import files

import pytest
import yaml

from harness.distil.prompt_seeds import Steering

DATA = yaml.safe_load(files("harness.distil").joinpath("steering.yaml").read_text(encoding="utf-8"))
KINDS = DATA["kinds"]
SHARES = {kind: entry["share"] for kind, entry in KINDS.items()}
QUOTING = [kind for kind, entry in KINDS.items() if "articles" in entry]


def named(templates):
    return {word for template in templates for word in re.findall(r"{(.*?)}", template)}


def test_after_any_number_of_batches_each_kind_has_had_its_share():
    steering, counts = Steering(0), Counter()
    for batch in range(200):
        counts[steering.kind(batch)] += 1
        assert all(abs(counts[kind] - share * (batch + 1) / 100) < 1 for kind, share in SHARES.items()), batch
    assert sum(SHARES.values()) == 100
    assert counts == {kind: 2 * share for kind, share in SHARES.items()}


def test_a_batchs_kind_does_not_depend_on_the_seed():
    one, other = Steering(1), Steering(2)

    assert [one.kind(batch) for batch in range(20)] == [other.kind(batch) for batch in range(20)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_word_that_a_template_names_has_a_list(kind):
    assert named(KINDS[kind].get("articles", [])) <= DATA["words"].keys()
    assert named(KINDS[kind]["openings"]) <= DATA["words"].keys() | ({"article"} if kind in QUOTING else set())


@pytest.mark.parametrize("kind", QUOTING)
def test_every_opening_of_a_quoting_kind_quotes(kind):
    assert all("{article}" in opening for opening in KINDS[kind]["openings"])


def test_every_word_is_text():
    words = [word for words in DATA["words"].values() for word in words]  # YAML reads `no` and `7` as something else

    assert [word for word in words if not isinstance(word, str)] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in QUOTING])
def test_openings_are_filled_and_say_how_many_turns_follow(kind):
    openings = Steering(0).openings(kind, None, 50)

    assert len(openings) == 50
    assert all((one.kind, one.whole) == (kind, False) for one in openings)
    assert {one.turns for one in openings} == {KINDS[kind].get("turns", 1)}
    assert named(one.text for one in openings) == set()


def drawn(seed):
    steering = Steering(seed)
    requests = steering.article_requests("article", 5)
    return requests, steering.openings("article", requests, 5), steering.openings("sum", None, 9)


def test_the_same_seed_gives_the_same_openings_and_another_gives_others():
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_each_article_is_quoted_once_in_an_opening_that_is_whole():
    articles = [f"Report {number}, with {{name}} in it." for number in range(9)]  # an article's braces are its own

    openings = Steering(0).openings("article", articles, 9)

    assert all(article in opening.text for article, opening in zip(articles, openings, strict=True))
    assert all(opening.text.count("Report") == 1 and opening.whole for opening in openings)


def test_kinds_that_quote_nothing_ask_for_no_article():
    assert {kind for kind in KINDS if Steering(0).article_requests(kind, 3)} == {*QUOTING}
    assert named(Steering(0).article_requests("article", 30)) == set()


def test_an_article_that_came_out_empty_is_quoted_as_it_is():
    (opening,) = Steering(0).openings("article", [""], 1)

    assert "{article}" not in opening.text
