"""Sampling parameters: which fields are read, which are refused by name, and which are the host's own."""

import array
from types import SimpleNamespace

import numpy as np
import pytest
from scheduler_steps import sampling_params

from spyre_inference import _native, errors

VOCAB = 320


def check(**fields):
    _native.check_sampling_params(sampling_params(**fields), VOCAB)


def refused(kind=errors.InvalidArgumentError, **fields) -> str:
    with pytest.raises(kind) as error:
        check(**fields)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_vllms_defaults_and_no_fields_at_all_are_fine():
    check()
    _native.check_sampling_params(SimpleNamespace(), VOCAB)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.5),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -2),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0.0),
        ("max_tokens", -1),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("logprobs", -2),
        ("logprobs", VOCAB + 1),
        ("prompt_logprobs", -2),
        ("prompt_logprobs", VOCAB + 1),
        ("stop_token_ids", [VOCAB]),
        ("allowed_token_ids", []),
        ("allowed_token_ids", [VOCAB]),
        ("logit_bias", {VOCAB: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {5: float("inf")}),
        ("_bad_words_token_ids", [[VOCAB]]),
        ("_bad_words_token_ids", [[]]),
    ],
)
def test_a_number_out_of_range_names_its_field(name, value):
    assert name.removeprefix("_").removesuffix("_token_ids") in refused(**{name: value})


NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
INTS = ("top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "_eos_token_id")
IDS = ("stop_token_ids", "allowed_token_ids", "eos_token_ids")


@pytest.mark.parametrize("value", ["1", True, [1], b"1"], ids=repr)
@pytest.mark.parametrize("name", NUMBERS + INTS)
def test_no_number_names_its_field(name, value):
    text = refused(**{name: value})
    assert name in text and type(value).__name__ in text


@pytest.mark.parametrize("name", INTS)
def test_a_float_is_no_int(name):
    assert name in refused(**{name: 1.5})
    assert name in refused(**{name: np.float32(1)})


@pytest.mark.parametrize("value", ["12", 5, {1: 2}, [1, "2"], [True], [1.5], [-1], [1 << 31], [1 << 70]], ids=repr)
@pytest.mark.parametrize("name", IDS)
def test_no_ids_name_their_field(name, value):
    assert name in refused(**{name: value})


@pytest.mark.parametrize("value", [[1], {"5": 1.0}, {5: "1"}, {True: 1.0}, {1 << 40: 1.0}], ids=repr)
def test_no_bias_names_its_field(value):
    assert "logit_bias" in refused(logit_bias=value)


@pytest.mark.parametrize("value", [0, 1, "no"], ids=repr)
def test_ignore_eos_is_true_or_false(value):
    assert "ignore_eos" in refused(ignore_eos=value)


def test_numbers_of_numpy_are_numbers():
    check(temperature=np.float32(0.5), top_p=np.float64(0.5), top_k=np.int64(3), logprobs=np.uint8(2))
    assert "top_k" in refused(top_k=np.int64(-3))


@pytest.mark.parametrize(
    "of", [list, tuple, set, iter, np.int32, np.int64, np.uint16, lambda ids: array.array("i", ids)]
)
def test_ids_come_in_any_container(of):
    made = (lambda ids: np.array(ids, of)) if isinstance(of, type) and issubclass(of, np.generic) else of
    check(stop_token_ids=made([3, VOCAB - 1]))
    assert f"token {VOCAB}" in refused(stop_token_ids=made([3, VOCAB]))


@pytest.mark.parametrize(
    ("dtype", "most"), [(np.uint8, 255), (np.int8, 127), (np.uint16, 65535), (np.int16, 32767), (np.uint32, 99999)]
)
def test_the_largest_ids_of_an_array_are_what_they_are(dtype, most):
    params = sampling_params(stop_token_ids=np.array([most], dtype))
    _native.check_sampling_params(params, most + 1)
    with pytest.raises(errors.InvalidArgumentError, match=f"token {most} "):
        _native.check_sampling_params(params, most)


def test_arrays_that_are_no_ids_are_named():
    assert "stop_token_ids[0]" in refused(stop_token_ids=np.array([1 << 31], np.uint32))
    assert "stop_token_ids[0]" in refused(stop_token_ids=np.array([-1], np.int8))
    assert "stop_token_ids" in refused(stop_token_ids=np.array([1.0]))
    assert "stop_token_ids" in refused(stop_token_ids=np.array([[1]]))
    assert "stop_token_ids" in refused(stop_token_ids=np.array([1 << 63], np.uint64))
    assert "stop_token_ids[1]" in refused(stop_token_ids=np.array([1, -1]))


@pytest.mark.parametrize("seed", [0, -1, -(1 << 63), 1 << 63, (1 << 64) - 1])
def test_a_seed_of_64_bits_is_taken(seed):
    check(seed=seed)


@pytest.mark.parametrize("seed", [1 << 64, -(1 << 63) - 1])
def test_a_longer_seed_is_refused(seed):
    assert "seed" in refused(seed=seed)


def test_max_tokens_none_is_no_limit_and_missing_is_16():
    check(max_tokens=None, min_tokens=1000)
    fields = vars(sampling_params(min_tokens=17))
    del fields["max_tokens"]
    with pytest.raises(errors.InvalidArgumentError, match=r"min_tokens is 17.*16"):
        _native.check_sampling_params(SimpleNamespace(**fields), VOCAB)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("watermarking", True),
        ("logprob_token_ids", [1, 2]),
        ("prompt_logprob_token_ids", np.zeros((2, 2), np.int32)),
        ("prompt_logprob_token_ids", [[1]]),
        ("prompt_logprob_start", 0),
        ("thinking_token_budget", 0),
        ("thinking_token_budget", 100),
        ("trace_decode_token_ids", [1]),
    ],
)
def test_what_is_not_built_is_refused_by_name(name, value):
    assert name in refused(errors.UnsupportedError, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("watermarking", False),
        ("logprob_token_ids", []),
        ("trace_decode_token_ids", None),
        ("_bad_words_token_ids", []),
    ],
)
def test_what_says_nothing_is_taken(name, value):
    check(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 4),
        ("stop", ["end"]),
        ("include_stop_str_in_output", True),
        ("detokenize", False),
        ("flat_logprobs", True),
        ("structured_outputs", SimpleNamespace(regex="a*")),
        ("repetition_detection", SimpleNamespace(max_pattern_size=3)),
        ("extra_args", {"a": 1}),
        ("routed_experts_prompt_start", 3),
        ("skip_reading_prefix_cache", True),
        ("bad_words", ["text that the host makes tokens of later"]),
        ("_all_stop_token_ids", {10**9}),
        ("output_kind", object()),
        ("stream_interval", 5),
    ],
)
def test_what_the_host_serves_is_left_to_it(name, value):
    check(**{name: value})


def test_an_attribute_that_raises_is_not_taken_for_a_missing_one():
    class Broken:
        @property
        def temperature(self):
            raise RuntimeError("from the property")

    with pytest.raises(RuntimeError, match="from the property"):
        _native.check_sampling_params(Broken(), VOCAB)
