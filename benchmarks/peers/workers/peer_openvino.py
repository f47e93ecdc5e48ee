"""OpenVINO GenAI: its continuous batching pipeline, step by step, on the GGUF file."""

import time

import channel


class Pipeline:
    def __init__(self, options):
        import openvino_genai

        self.genai = openvino_genai
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False
        scheduler.max_num_seqs = options["sequences"]
        scheduler.max_num_batched_tokens = max(4096, options["sequences"])
        scheduler.num_kv_blocks = -(-options["cache_tokens"] // 32) + options["sequences"]  # of 32 tokens
        self.pipeline = openvino_genai.ContinuousBatchingPipeline(
            options["gguf"], scheduler, "CPU",
            {"INFERENCE_NUM_THREADS": options["threads"], "KV_CACHE_PRECISION": "f16", "ENABLE_CPU_PINNING": True},
        )  # fmt: skip
        self.next_id = 0

    def steps(self, prompts, output_tokens):
        import numpy as np
        import openvino

        config = self.genai.GenerationConfig()
        config.max_new_tokens = output_tokens
        config.ignore_eos = True
        config.do_sample = False
        handles = []
        for prompt in prompts:
            ids = openvino.Tensor(np.array([prompt], dtype=np.int64))
            handles.append(self.pipeline.add_request(self.next_id, ids, config))
            self.next_id += 1
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            came = {}
            for i, handle in enumerate(handles):
                while handle.can_read():
                    came[i] = came.get(i, 0) + sum(len(out.generated_ids) for out in handle.read().values())
            yield came

    def run(self, prompts, output_tokens):
        begin = time.perf_counter()
        return channel.stepped(begin, self.steps(prompts, output_tokens))


def open_engine(options):
    import importlib.metadata

    engine = Pipeline(options)
    return engine, {
        "version": f"openvino-genai {importlib.metadata.version('openvino-genai')}",
        "note": "f16 KV; reads f16 files only, and computes in bf16 where the CPU has it",
    }


if __name__ == "__main__":
    channel.serve(open_engine, Pipeline.run)
