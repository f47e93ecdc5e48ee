"""The model of a step, with figures that can be worked out by hand."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ladders
import model
import scale


class Ladders(unittest.TestCase):
    def test_steps_of_an_octave(self):
        self.assertEqual(ladders.octave_ladder(2, 16), [1, 2, 3, 4, 6, 8, 12, 16])
        self.assertEqual(ladders.octave_ladder(4, 16), [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16])
        self.assertEqual(ladders.octave_ladder(1, 12), [1, 2, 4, 8, 12])


class Model(unittest.TestCase):
    def test_line(self):
        self.assertEqual(model.line([(1, 5), (2, 7), (3, 9)]), (3, 2))
        self.assertEqual(model.line([(4, 5)]), (5, 0))

    def test_fixed_costs(self):
        costs = model.fixed_costs([(10, 30e-6), (20, 50e-6)], [(10, 40e-6), (20, 70e-6)])
        self.assertAlmostEqual(costs["h"], 10e-6)
        self.assertAlmostEqual(costs["d"], 2e-6)
        self.assertAlmostEqual(costs["s2"], 1e-6 / model.BARRIERS_PER_LAYER)

    def test_step(self):
        costs = {"h": 1e-3, "d": 0.0, "s2": 1e-6}
        step = lambda n, flops, bytes_: model.step_seconds(n, flops, bytes_, 10, costs, 100, 0.5, 20, 60)
        self.assertAlmostEqual(step(1, 50e9, 0), 1 + 1e-3)  # 50 GFLOP at half of 100 GFLOP/s
        self.assertAlmostEqual(step(1, 0, 20e9), 1 + 1e-3)
        self.assertAlmostEqual(step(8, 0, 60e9), 1 + 1e-3 + 10 * 5 * 4e-6)  # the whole memory; a meeting costs 4 us
        self.assertAlmostEqual(step(2, 50e9, 20e9), 0.5 + 1e-3 + 10 * 5 * 1e-6)


class Steps(unittest.TestCase):
    def test_only_steps_of_all_count(self):
        early = [1.0, 2.0, 3.0, 4.0]
        late = [2.5, 3.01, 4.02, 5.03]  # its first token came later; each step's callbacks are a little apart
        found = scale.steps_of_all([early, late])
        self.assertEqual(len(found), 1)
        self.assertAlmostEqual(found[0], 0.51)
        self.assertEqual(len(scale.steps_of_all([early])), 3)


class Page(unittest.TestCase):
    def test_markdown_has_every_table(self):
        of_threads = {"tokens": [[1, 1e-3], [512, 0.4]], "sequences": [[1, 1e-3]], "context": [[64, 1e-3]],
                      "depth": [[5, 1e-3], [30, 5e-3]], "tiny": [[4, 1e-5], [64, 7e-5]],
                      "limits": {"gflops": 200.0, "gbps": 30.0}}  # fmt: skip
        result = {
            "date": "2026-12-01", "layers": 30, "threads": {"1": of_threads, "2": of_threads},
            "machine": {"cpu": "c", "family": "1/2", "kind": "AVX2", "cores": 2},
            "work": {"body_flops_per_token": 2e8, "head_flops_per_row": 5e7, "weight_bytes_per_step": 2.7e8},
            "ladders": [{"name": "default", "tokens": [1, 2], "artifacts": 3, "variants": 4, "compile_seconds": 0.1,
                         "ready_seconds": 0.2, "step_of_33": 0.01}]}  # fmt: skip
        page = scale.markdown(result)
        for part in ("tokens of a prompt", "sequences that decode", "context of one", "layers, one", "tiny model", "ladder",
                     "64 cores", "grows with the cores", "| 1 thread, ms |", "| 2 threads, ms |"):  # fmt: skip
            self.assertIn(part, page)


if __name__ == "__main__":
    unittest.main()
