"""The driver's logic without an engine: parsing, rates, samples that do not count, medians, tables, the docs section.

    python3 -m unittest discover benchmarks/peers
"""

import copy
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "workers"))

import cases
import channel
import docs_section
import environments
import figures
import machine
import models
import page
import run
import table

WORK = {"weight_bytes_per_step": 200_000_000, "table_bytes_per_token": 1000, "kv_bytes_per_token": 20_000,
        "body_flops_per_token": 2e8, "head_flops_per_row": 5e7, "attention_flops_per_pair": 70_000}  # fmt: skip


def sample(engine, case, prefill=None, decode=None, before=30.0, after=30.0, model="135m-f16"):
    found = {"prefill": prefill, "decode": decode, "first_token_seconds": 1, "seconds": 2}
    limits = [{"gflops": 200.0, "gbps": b, "instruction": "fma"} for b in (before, after)]
    return {"engine": engine, "case": case, "model": model, "turn": 0, "limits_before": limits[0], "limits_after": limits[1],
            "figures": found, "thrown_away": figures.complaint(*limits)}  # fmt: skip


def result(*samples):
    return {
        "date": "2026-12-01", "threads": 2, "command": "./run bench peers", "samples": list(samples),
        "machine": {"cpu": "A <CPU>", "family": "25/17", "kind": "AVX2", "cores": 2, "memory_bytes": 8e9},
        "models": {"135m-f16": {"work": WORK, "engines": {
            "spyre": {"version": "s 1", "note": "n", "load_seconds": 0.3},
            "llama.cpp": {"version": "l 1", "note": "n", "load_seconds": 0.3},
            "openvino": {"unavailable": "pip: no network"}}}}}  # fmt: skip


class Cases(unittest.TestCase):
    def test_models_are_parsed(self):
        self.assertEqual([m.name for m in cases.parse_model("135M")], ["135m-f16", "135m-bf16"])
        self.assertEqual([m.name for m in cases.parse_model("1b-bf16")], ["1b-bf16"])
        for bad in ("2b", "1b-q4", "", "1b-"):
            self.assertRaises(ValueError, cases.parse_model, bad)

    def test_the_large_model_is_measured_in_one_type(self):
        self.assertEqual([m.name for m in run.chosen_models("8b")], ["8b-bf16"])
        self.assertEqual([m.name for m in run.chosen_models("8b-f16")], ["8b-f16"])

    def test_prompts_are_the_same_each_time_and_within_the_vocabulary(self):
        case = cases.ALL["batch16"]
        prompts = case.prompts(49152)
        self.assertEqual(prompts, case.prompts(49152))
        self.assertEqual([len(p) for p in prompts], [32] * 16)
        self.assertTrue(all(300 <= t < 49152 for p in prompts for t in p))
        self.assertEqual(len({tuple(p) for p in prompts}), 16)

    def test_every_shape_has_known_cases(self):
        for names in cases.OF_SHAPE.values():
            self.assertTrue(set(names) <= set(cases.ALL))
        self.assertEqual(cases.needed_length([cases.ALL["8192"], cases.ALL["short"]]), 8257)
        self.assertLess(cases.needed_length(cases.ALL.values()), models.MAX_POSITION)

    def test_the_command_is_shown_without_paths(self):
        words = ["135m", "--out", "/a/b.json", "--cases", "512", "--spyre=/c", "--write-docs"]
        self.assertEqual(run.command_of(words), "./run bench peers 135m --cases 512 --write-docs")

    def test_unknown_names_are_refused(self):
        self.assertRaises(ValueError, run.chosen, "512,513", cases.ALL, "case")


class Rates(unittest.TestCase):
    def test_one_request(self):
        self.assertEqual(figures.steady_rate([[(1.0, 1), (1.5, 2), (2.0, 3)]]), 2.0)

    def test_only_the_time_in_which_all_decode_counts(self):
        early = [(1.0, 1), (2.0, 2), (3.0, 3), (4.0, 4)]
        late = [(2.0, 1), (3.0, 2), (4.0, 3), (9.0, 4)]
        self.assertEqual(figures.steady_rate([early, late]), 2.0)  # from 2 s to 4 s: two tokens each

    def test_several_tokens_at_once(self):
        self.assertEqual(figures.steady_rate([[(1.0, 2), (2.0, 5), (3.0, 8)]]), 3.0)

    def test_no_common_time(self):
        self.assertIsNone(figures.steady_rate([[(1.0, 1), (2.0, 2)], [(2.0, 1), (3.0, 2)]]))
        self.assertIsNone(figures.steady_rate([[(1.0, 1)]]))

    def test_figures_of_a_run(self):
        found = figures.figures_of_run(cases.ALL["512"], [[(0.5, 1), (1.0, 2)]])
        self.assertEqual(found["prefill"], 1024)
        self.assertEqual(found["decode"], 2)
        self.assertNotIn("prefill", figures.figures_of_run(cases.ALL["batch16"], [[(0.5, 1), (1.0, 2)]] * 16))

    def test_steps_become_series(self):
        series = channel.stepped(0, iter([{0: 1}, {0: 0}, {0: 2, 1: 1}]))
        self.assertEqual([[n for _, n in s] for s in series], [[1, 3], [1]])


class Samples(unittest.TestCase):
    def test_streams_that_differ_throw_a_sample_away(self):
        self.assertIsNone(figures.complaint({"gbps": 30.0}, {"gbps": 32.9}))
        self.assertIn("30.0 GB/s before, 33.1 after", figures.complaint({"gbps": 30.0}, {"gbps": 33.1}))
        self.assertIn("33.1 GB/s before", figures.complaint({"gbps": 33.1}, {"gbps": 30.0}))
        self.assertIsNone(figures.complaint({"gbps": None}, {"gbps": None}))

    def test_rows_leave_them_out(self):
        rows = figures.rows_of(result(sample("spyre", "short", decode=100), sample("spyre", "short", decode=1, after=40.0),
                                      sample("spyre", "short", decode=110), sample("llama.cpp", "short", decode=50)))  # fmt: skip
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0]["engines"]["spyre"]["median"], 105)
        self.assertEqual(rows[0]["engines"]["spyre"]["count"], 2)
        self.assertEqual((rows[0]["best_peer"], rows[0]["ratio"]), ("llama.cpp", 2.1))

    def test_limits(self):
        case = cases.ALL["short"]  # 32 + 128/2 = 96 tokens of context; bytes are what limits
        seconds = (200e6 + 1000 + 20_000 * 96) / 30e9
        self.assertAlmostEqual(figures.limit_rate(WORK, case, "decode", {"gflops": 200.0, "gbps": 30.0}), 1 / seconds)
        flops = 512 * 2e8 + 5e7 + 70_000 * 512 * 513 / 2
        self.assertAlmostEqual(
            figures.limit_rate(WORK, cases.ALL["512"], "prefill", {"gflops": 200.0, "gbps": 30.0}), 512 / (flops / 200e9))
        self.assertIsNone(figures.limit_rate(WORK, case, "decode", {"gflops": None, "gbps": None}))

    def test_without_ours_there_is_no_ratio(self):
        rows = figures.rows_of(result(sample("llama.cpp", "short", decode=50)))
        self.assertIsNone(rows[0]["ratio"])

    def test_the_middle_of_several_looks(self):
        looks = iter([{"gbps": 30.0, "gflops": 1.0, "instruction": "x"}, {"gbps": 60.0, "gflops": 3.0, "instruction": "x"},
                      {"gbps": 31.0, "gflops": 2.0, "instruction": "x"}])  # fmt: skip
        self.assertEqual(figures.median_limits(lambda: next(looks)), {"gbps": 31.0, "gflops": 2.0, "instruction": "x"})


class Output(unittest.TestCase):
    def setUp(self):
        self.result = result(sample("spyre", "512", 1000, 100), sample("llama.cpp", "512", 500, 80),
                             sample("spyre", "512", 2000, 100, after=60.0))  # fmt: skip

    def test_text_has_ratios_reasons_and_what_was_thrown_away(self):
        text = table.text(self.result)
        self.assertRegex(text, r"prefill 512 +1000 \(1000-1000\) +500 \(500-500\) +- .* 2\.00 \(llama\.cpp\)")
        self.assertIn("not measured: pip: no network", text)
        self.assertIn("2 samples count, 1 were thrown away", text)
        self.assertIn("30.0 GB/s (30.0-30.0)", text)

    def test_few_samples_are_told(self):
        self.result["models"]["135m-f16"]["samples_wanted"] = 5
        self.assertIn("1000 (1000-1000, n 1)", table.text(self.result))

    def test_html_is_escaped_and_whole(self):
        out = page.as_html(self.result, {"135m-f16": b"png"})
        self.assertIn("A &lt;CPU&gt;", out)
        self.assertIn("data:image/png;base64,cG5n", out)
        self.assertNotIn("<link", out)

    def test_docs_section_is_replaced_by_kind(self):
        page_text = "before\n<!-- peers: end of the sections -->\nafter\n"
        once = docs_section.with_section(page_text, "peers", "AVX2", "first \\1")
        twice = docs_section.with_section(docs_section.with_section(once, "peers", "AMX", "other"), "peers", "AVX2", "second")
        self.assertIn("first \\1", once)
        self.assertNotIn("first", twice)
        self.assertIn("second", twice)
        self.assertIn("other", twice)
        self.assertTrue(twice.startswith("before") and twice.endswith("after\n"))
        self.assertRaises(environments.Unavailable, docs_section.with_section, "no anchor", "peers", "AVX2", "x")

    def test_runs_are_joined(self):
        later = copy.deepcopy(result(sample("spyre", "512", 3000, 300)))
        joined = run.joined([self.result, later])
        row = figures.rows_of(joined)[0]
        self.assertEqual({n: e["median"] for n, e in row["engines"].items()}, {"spyre": 3000, "llama.cpp": 500})
        later["machine"]["kind"] = "AMX"
        self.assertRaises(SystemExit, run.joined, [self.result, later])


class Machine(unittest.TestCase):
    def test_kinds(self):
        self.assertEqual(machine.kind_of({"avx2", "avx512f", "avx512_bf16", "amx_bf16"}), "AMX")
        self.assertEqual(machine.kind_of({"avx2", "avx512f", "avx512_bf16"}), "AVX-512 with BF16")
        self.assertEqual(machine.kind_of(set()), "portable")

    def test_cpuinfo(self):
        text = "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2\n"
        self.assertEqual(machine.read_cpuinfo(text), {"cpu": "AMD EPYC", "family": "25/17", "kind": "AVX2"})


class Models(unittest.TestCase):
    def test_vocabulary(self):
        tokens, kinds, merges = models.vocabulary(1000)
        self.assertEqual((len(tokens), len(set(tokens)), len(kinds)), (1000, 1000, 1000))
        self.assertTrue(all(part in tokens for merge in merges for part in merge.split()))
        self.assertTrue(all(t.isascii() and t.isalnum() for t in tokens[300:]))

    def test_names(self):
        self.assertEqual(models.gguf_name("model.layers.12.mlp.gate_proj.weight"), "blk.12.ffn_gate.weight")
        self.assertEqual(models.gguf_name("lm_head.weight"), "output.weight")


if __name__ == "__main__":
    unittest.main()
