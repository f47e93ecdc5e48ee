# A question answered by a real model, from nothing.
DEMO_QUESTION='What is the capital of France? Answer in one sentence.'

demo_prompt() {  # the model's chat format (ChatML), written out
  printf '<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n' \
    'You are a helpful AI assistant named SmolLM, trained by Hugging Face' "$1"
}

cmd_demo() {
  setup_build release model
  compile release spyre
  fetch_model || die "could not fetch the demo model; the lines above say why"
  local question=${1:-$DEMO_QUESTION} prompt
  prompt=$(demo_prompt "$question"; echo .)  # the dot keeps $(...) from dropping the last newline
  prompt=${prompt%.}
  say "asking SmolLM2-135M-Instruct: $question"
  build/release/bin/spyre generate "$MODEL_FILE" --prompt "$prompt" --max-tokens 40 </dev/null
  say "done. Your own question: ./run demo 'Why is the sky blue?'   More: build/release/bin/spyre --help"
  say "as a server for OpenAI clients: build/release/bin/spyre serve $MODEL_FILE"
}
