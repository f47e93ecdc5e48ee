"""Imported by vLLM, as the home of the platform class, after ``register`` has found that the plugin cannot be used."""

from spyre_inference import vllm

raise RuntimeError(f"spyre-inference cannot serve vLLM: {vllm.failure}") from vllm.failure
