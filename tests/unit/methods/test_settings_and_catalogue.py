import pytest
from pydantic import ValidationError

from foundation.errors import UserError
from methods import catalog
from methods.catalog import BASELINE, Entry, catalogue, load_family, resolve
from methods.settings import Settings

EMPTY = {"definitions": {}, "pair": {}, "config": {}, "flags": {}}


def test_the_cap_is_what_the_draft_can_grow_to_and_never_less_than_the_budget():
    assert Settings(steps=5, width=10, budget=63).cap == 511
    assert Settings(steps=1, width=1, budget=1024).cap == 1025


def test_a_schedule_has_one_bit_a_step():
    assert Settings(steps=3, schedule=(1, 0, 1)).schedule == (1, 0, 1)
    with pytest.raises(ValidationError, match="2 entries for 3 steps"):
        Settings(steps=3, schedule=(1, 0))
    with pytest.raises(ValidationError):
        Settings(steps=2, schedule=(1, 2))


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"width": 65}, {"budget": 0}, {"longest_match": 0}, {"widht": 3}])
def test_values_out_of_range_and_unknown_keys_are_refused(wrong):
    with pytest.raises(ValidationError):
        Settings(**wrong)


@pytest.fixture
def pinned(monkeypatch):
    """A catalogue of one method that pins a budget."""
    entries = {"pinned": Entry(family="treegraft", settings={"budget": 3})}
    monkeypatch.setattr(catalog, "catalogue", lambda: entries)


@pytest.mark.usefixtures("pinned")
@pytest.mark.parametrize(
    ("sources", "budget"),
    [
        ((), 3),
        (("pair",), 3),
        (("pair", "config"), 4),
        (("pair", "config", "definitions"), 5),
        (("pair", "config", "definitions", "flags"), 6),
        (("pair", "flags"), 6),
        (("definitions",), 5),
    ],
)
def test_a_parameter_comes_from_the_nearest_of_its_sources(sources, budget):
    given = {
        "pair": {"budget": 2},
        "config": {"budget": 4},
        "definitions": {"mine": {"base": "pinned", "budget": 5}},
        "flags": {"budget": 6},
    }
    chosen = {**EMPTY, "definitions": {"mine": {"base": "pinned"}}, **{name: given[name] for name in sources}}

    spec = resolve("mine", **chosen)

    assert (spec.name, spec.family, spec.settings.budget) == ("mine", "treegraft", budget)


@pytest.mark.usefixtures("pinned")
def test_pair_defaults_come_before_global_ones_and_sources_mix_key_by_key():
    spec = resolve("pinned", **{**EMPTY, "pair": {"width": 4, "budget": 9}, "flags": {"steps": 2}})

    assert (spec.settings.width, spec.settings.budget, spec.settings.steps) == (4, 3, 2)
    assert spec.settings.longest_match == Settings().longest_match


def test_a_definition_without_a_base_changes_the_method_of_that_name():
    spec = resolve("all-small", **{**EMPTY, "definitions": {"all-small": {"exhaustion": "release"}}})

    assert (spec.family, spec.settings.exhaustion) == ("treegraft", "release")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("all-smal", {}, "unknown method 'all-smal'; did you mean all-small"),
        ("mine", {"definitions": {"mine": {"base": "promt-lookup"}}}, "'promt-lookup'; did you mean prompt-lookup"),
        ("all-small", {"config": {"widht": 3}}, "unknown key of method 'all-small' 'widht'; did you mean width"),
        ("all-small", {"flags": {"budget": 0}}, "method 'all-small': budget: "),
        ("all-small", {"flags": {"steps": 3}, "config": {"schedule": [1, 0]}}, "2 entries for 3 steps"),
        ("xyzzy", {}, "unknown method 'xyzzy'; known: all-mid, all-small, always-early, assisted"),
    ],
)
def test_a_mistake_is_answered_with_what_is_near_or_allowed(name, changes, message):
    with pytest.raises(UserError) as caught:
        resolve(name, **{**EMPTY, **changes})

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_catalogue_holds_the_baseline_and_every_entry_resolves_and_loads():
    assert BASELINE in catalogue()
    for name, entry in catalogue().items():
        spec = resolve(name, **EMPTY)
        assert spec.family == entry.family
        assert entry.about
        assert load_family(spec.family).generate


def test_a_fixed_schedule_is_the_pairs_or_every_other_step():
    def schedule(pair, **flags):
        return resolve("treegraft-fixed", definitions={}, pair=pair, config={}, flags=flags).settings.schedule

    assert schedule({}) == (1, 0, 1, 0, 1)
    assert schedule({}, steps=3) == (1, 0, 1)
    assert schedule({"schedule": [1, 0, 0, 0, 0]}) == (1, 0, 0, 0, 0)
    assert schedule({"schedule": [1, 0, 0, 0, 0]}, steps=2) == (1, 0)  # fewer steps were asked for
    assert schedule({"schedule": [1, 0, 0, 0, 0]}, steps=7) == (1, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("base", ["all-small", "always-early", "treegraft-calibrated", "autoregressive"])
def test_a_pair_s_schedule_is_in_nobody_s_way(base):
    pair = {"schedule": [1, 0, 0, 0, 0]}
    assert resolve(base, definitions={}, pair=pair, config={}, flags={"steps": 7}).settings.steps == 7
    with pytest.raises(UserError, match="5 entries for 7 steps"):
        resolve("treegraft-no-nd", definitions={}, pair=pair, config={}, flags={"steps": 7})  # its own, which is pinned


@pytest.mark.parametrize(
    ("base", "key", "value", "reader"),
    [
        ("all-small", "schedule", [1, 0, 1, 0, 1], "scheduler never"),
        ("all-mid", "max_calls", 2, "scheduler always"),
        ("treegraft-fixed", "artifact", "somewhere", "scheduler fixed"),
        ("treegraft-fixed", "options", {"a": 1}, "scheduler fixed"),
        ("always-early", "threshold", 0.5, "scheduler early"),
        ("always-early", "threshold", 0.0, "scheduler early"),
        ("all-mid", "max_calls", 0, "scheduler always"),
        ("csd", "scheduler", "learned", "csd"),
        ("entropy-confidence", "call_gain", 0.5, "scheduler entropy-confidence"),
        ("value-planner", "signals", "no-tree", "scheduler planner"),
        ("csd", "artifact", "somewhere", "csd"),
        ("autoregressive", "options", {"a": 1}, "autoregressive"),
        ("prompt-lookup", "threshold", 0.5, "hf-generate"),
        ("calibrated-gate", "max_calls", 2, "calibrated"),
        ("treegraft-calibrated", "look_back", 2, "calibrated"),
        ("treegraft-calibrated", "budget", 30, "calibrated of size machine"),
        ("treegraft-calibrated", "longest_match", 2, "calibrated"),
        ("csd", "budget", 30, "csd"),
        ("csd", "estimate", "prefill", "csd"),
        ("prompt-lookup", "width", 3, "hf-generate"),
        ("assisted", "steps", 3, "hf-assisted"),
        ("autoregressive", "raise_scores", True, "autoregressive"),
    ],
)
def test_a_parameter_that_nobody_reads_is_refused(base, key, value, reader):
    own = {"x": {"base": base, key: value}}
    with pytest.raises(UserError, match=f"'x': {key}: {reader} does not read it; leave it out"):
        resolve("x", definitions=own, pair={}, config={}, flags={})
    assert resolve(base, definitions={}, pair={"schedule": [1, 0, 0, 0, 0], "max_calls": 2}, config={}, flags={})


@pytest.mark.parametrize(
    ("base", "given", "options"),
    [
        ("calibrated-gate", {"most": 20}, {"fusion": False, "size": "budget", "most": 20}),
        ("csd", {"leniency": 4}, {"k": [[5, 10], [0, 10]], "leniency": 4}),
        ("prompt-lookup", {}, {"prompt_lookup_num_tokens": 10, "max_matching_ngram_size": 2}),
        ("assisted", {"num_assistant_tokens": 4}, {"num_assistant_tokens": 4}),
    ],
)
def test_options_of_a_definition_leave_those_of_the_catalogue(base, given, options):
    own = {"x": {"base": base, "options": given}}
    assert resolve("x", definitions=own, pair={}, config={}, flags={}).settings.options == options


def test_a_budget_is_read_where_it_sizes_the_tree():
    own = {"x": {"base": "calibrated-gate", "budget": 30}}
    assert resolve("x", definitions=own, pair={}, config={}, flags={}).settings.budget == 30


def test_what_a_plug_in_s_scheduler_reads_nobody_knows():
    own = {"x": {"base": "treegraft", "scheduler": "mine", "threshold": 0.5, "options": {"a": 1}}}
    assert resolve("x", definitions=own, pair={}, config={}, flags={}).settings.threshold == 0.5


@pytest.mark.parametrize("key", ["steps", "width", "max_calls", "threshold", "call_gain", "look_back"])
def test_a_switch_is_no_number(key):
    own = {"x": {"base": "latency-normalized", key: True}}
    with pytest.raises(UserError, match=rf"'x': {key}: Input should be a valid (integer|number) \(given: True\)"):
        resolve("x", definitions=own, pair={}, config={}, flags={})


def test_yamls_off_is_the_word():
    own = {"x": {"base": "treegraft-fixed", "reselect": False}}

    assert resolve("x", definitions=own, pair={}, config={}, flags={}).settings.reselect == "off"


def test_a_bad_default_is_the_pairs():
    with pytest.raises(UserError, match="budget, of the pair's defaults"):
        resolve("all-small", definitions={}, pair={"budget": 0}, config={}, flags={})


def test_ablations_keep_their_schedule_whatever_the_pairs_is():
    def schedule(**flags):
        pair = {"schedule": [1, 0, 0, 0, 0]}
        return resolve("treegraft-no-nd", definitions={}, pair=pair, config={}, flags=flags).settings.schedule

    assert schedule() == (1, 0, 1, 0, 1)
    assert schedule(steps=3) == (1, 0, 1)
