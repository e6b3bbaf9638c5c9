"""Writes tests/golden/assistant/*.json: what Gemma 4's assistants guess beside a tiny target, by transformers'
Gemma4AssistantForCausalLM, asked as its SinglePositionMultiTokenCandidateGenerator asks it.

    python tools/golden/assistant.py
"""

import pathlib
import tempfile

import numpy as np
import torch
import transformers

import generate
from synthetic import values

ROPES = {"full_attention": {"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
         "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}
TEXT = {"model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh", "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "global_head_dim": 24, "sliding_window": 32, "rms_norm_eps": 1e-6, "rope_parameters": ROPES,
        "hidden_size_per_layer_input": 0, "use_double_wide_mlp": False, "enable_moe_block": False, "vocab_size": 96,
        "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}
TARGET = {**TEXT, "architectures": ["Gemma4ForCausalLM"], "hidden_size": 56, "intermediate_size": 44, "num_hidden_layers": 4,
          "layer_types": ["sliding_attention", "full_attention"] * 2, "attention_k_eq_v": False, "num_kv_shared_layers": 0,
          "vocab_size_per_layer_input": 96, "attention_bias": False, "final_logit_softcapping": None}
OWN = {**TEXT, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3, "num_kv_shared_layers": 3,
       "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "vocab_size_per_layer_input": 0}
ASSISTANT = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": 56,
             "tie_word_embeddings": True, "text_config": OWN}
# Full layers whose values are their keys, one head of them; late layers of the target that read earlier ones' keys.
ONE_HEAD = {"attention_k_eq_v": True, "num_global_key_value_heads": 1}
CASES = {
    "plain": (TARGET, ASSISTANT),
    "ordered": ({**TARGET, **ONE_HEAD}, {**ASSISTANT, "use_ordered_embeddings": True, "num_centroids": 8,
                                         "centroid_intermediate_top_k": 3, "text_config": {**OWN, **ONE_HEAD}}),
    "shared": ({**TARGET, "num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention"] * 3,
                "num_kv_shared_layers": 2}, {**ASSISTANT, "model_type": "gemma4_unified_assistant",
                                             "architectures": ["Gemma4UnifiedAssistantForCausalLM"]}),
}
ORDER = "masked_embedding.token_ordering"
GUESSES = 4


def own_values(name, shape):
    return np.argsort(values(name, shape), kind="stable") if name == ORDER else values(name, shape)


def loaded(config):
    """A model of these sizes, its values those of their names; and the names."""
    case = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        kind = generate.model_class(case, config)
        kind(generate.config_of(case, config)).save_pretrained(folder)
        tensors, fill = generate.published_names(case, config, folder)
        state = {}
        for name, shape in tensors.items():
            for part, array in fill[name](own_values(name, shape)).items():
                state[part] = torch.from_numpy(np.ascontiguousarray(array).reshape(np.shape(array)))
        generate.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval(), tensors


def main():
    out = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "assistant"
    out.mkdir(exist_ok=True)
    for name, (target_config, config) in CASES.items():
        target, target_tensors = loaded(target_config)
        assistant, tensors = loaded(config)
        tokens = np.random.default_rng(5).integers(0, 96, 21).tolist()
        guesses, drafted = [], []
        with torch.no_grad():
            seen = target(input_ids=torch.tensor([tokens[:-1]]), use_cache=True, output_hidden_states=True,
                          return_shared_kv_states=True)
            state, last = seen.hidden_states[-1][:, -1:], torch.tensor([tokens[-1:]])
            for _ in range(GUESSES):
                embedded = target.get_input_embeddings()(last)
                made = assistant(inputs_embeds=torch.cat([embedded, state], -1), position_ids=torch.tensor([[len(tokens) - 1]]),
                                 shared_kv_states=seen.shared_kv_states)
                state, last = made.last_hidden_state, made.logits.argmax(-1)
                guesses.append(made.logits[0, 0].numpy())
                drafted.append(int(last))
        body = {"name": name, "reference": f"transformers {transformers.__version__} {config['architectures'][0]}",
                "target": target_config, "target_tensors": target_tensors, "config": config, "tensors": tensors,
                "tokens": tokens, "draft": drafted, "logits": generate.rounded(guesses)}
        (out / f"{name}.json").write_text(generate.lines(body))
        gap = min(float(np.sort(g)[-1] - np.sort(g)[-2]) for g in guesses)
        print(f"{name}: drafts {drafted}, logits up to {np.abs(guesses).max():.2f}, least gap {gap:.3f}")


if __name__ == "__main__":
    main()
