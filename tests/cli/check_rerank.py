"""`rerank` on a tiny cross-encoder, and `split-mtp` on a tiny GLM."""
import json
import struct

import models

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "panda", "bear", "china", "car", "wheel", "what", "is", "a", "the", "of", "in", "food"]


def word_tokenizer():
    """WordPiece over whole words, texts between [CLS] and [SEP]."""
    special = [{"id": i, "content": w, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
               for i, w in enumerate(WORDS[:4])]
    mark = lambda word, kind: {"SpecialToken": {"id": word, "type_id": kind}}  # noqa: E731
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}  # noqa: E731
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                           "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {
                "type": "TemplateProcessing", "single": [mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0)],
                "pair": [mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0), text("B", 1), mark("[SEP]", 1)],
                "special_tokens": {w: {"id": w, "ids": [WORDS.index(w)], "tokens": [w]} for w in ("[CLS]", "[SEP]")}},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {w: i for i, w in enumerate(WORDS)}}}


def cross_encoder(context):
    folder = context.folder / "cross-encoder"
    if folder.exists():
        return folder
    folder.mkdir()
    width, layers, words = 32, 2, len(WORDS)
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": words, "hidden_size": width,
              "intermediate_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4, "hidden_act": "gelu",
              "max_position_embeddings": 48, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0,
              "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "torch_dtype": "float32"}
    shapes = {"bert.embeddings.word_embeddings.weight": [words, width], "bert.embeddings.position_embeddings.weight": [48, width],
              "bert.embeddings.token_type_embeddings.weight": [2, width], "bert.embeddings.LayerNorm.weight": [width],
              "bert.embeddings.LayerNorm.bias": [width], "bert.pooler.dense.weight": [width, width], "bert.pooler.dense.bias": [width],
              "classifier.weight": [1, width], "classifier.bias": [1]}
    for i in range(layers):
        layer = f"bert.encoder.layer.{i}."
        for name, rows, columns in (("attention.self.query", width, width), ("attention.self.key", width, width),
                                    ("attention.self.value", width, width), ("attention.output.dense", width, width),
                                    ("intermediate.dense", 64, width), ("output.dense", width, 64)):
            shapes.update({layer + name + ".weight": [rows, columns], layer + name + ".bias": [rows]})
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes.update({layer + name + ".weight": [width], layer + name + ".bias": [width]})
    tensors = models.random_tensors(shapes, seed=5, dtype="F32")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(word_tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]",
                                                              "pad_token": "[PAD]", "model_max_length": 48}))
    models.write_safetensors(folder / "model.safetensors", tensors)
    return folder


def check_rerank(context):
    model = cross_encoder(context)
    documents = ["a bear of china", "the wheel of a car", "food", "panda food in china"]
    words = ["rerank", "-m", model, "-q", "what is a panda"]
    for document in documents:
        words += ["-d", document]
    found = context.json(*words, "--json")
    assert list(found) == ["scores", "ranking", "kind", "prompt_tokens"] and found["kind"] == "cross-encoder", found
    assert len(found["scores"]) == 4 and len(set(found["scores"])) == 4 and all(0 < s < 1 for s in found["scores"]), found
    assert [r["score"] for r in found["ranking"]] == sorted(found["scores"], reverse=True)
    assert all(r["score"] == found["scores"][r["index"]] for r in found["ranking"])
    # [CLS] query [SEP] document [SEP]
    assert found["prompt_tokens"] == sum(3 + 4 + len(d.split()) for d in documents), found
    # A score does not depend on its neighbours, the order or the batch.
    alone = context.json("rerank", "-m", model, "-q", "what is a panda", "-d", documents[1], "--json")
    assert alone["scores"] == found["scores"][1:2]
    assert context.json(*words, "--json", "--batch-size", "1")["scores"] == found["scores"]
    assert context.json(*words, "--json", "--batch-size", "0")["scores"] == found["scores"]
    two = context.json(*words, "--json", "--top-n", "2")
    assert two["ranking"] == found["ranking"][:2] and two["scores"] == found["scores"]
    text = context.ok(*words).out.splitlines()
    assert [float(line) for line in text[:4]] == [round(s, 6) for s in found["scores"]] and "ranking" in text[5], text
    assert documents[found["ranking"][0]["index"]] in text[6], text
    # Which text is the query matters.
    swapped = context.json("rerank", "-m", model, "-q", documents[0], "-d", "what is a panda", "--json")
    assert swapped["scores"][0] != found["scores"][0]


def check_rerank_mistakes(context):
    model = cross_encoder(context)
    for words in ([], ["-q", "a"], ["-d", "a"], ["-q", "a", "-d", "b", "--top-n", "-1"], ["-q", "a", "-d", "b", "--batch-size", "-1"]):
        context.fails(2, "rerank", "-m", model, *words)
    context.fails(2, "rerank", "-q", "a", "-d", "b")
    other = context.fails(1, "rerank", "-m", context.tiny(), "-q", "a", "-d", "b")
    assert "reranker" in other.err and other.out == "", other
    image = context.fails(1, "rerank", "-m", model, "-q", "a", "--image", model / "config.json")
    assert "--image" in image.err, image
    # The longer text is cut until the pair fits, as its tokenizer would.
    assert len(context.json("rerank", "-m", model, "-q", "panda", "-d", "bear " * 200, "--json")["scores"]) == 1


def glm(folder, blocks=True):
    config = {"model_type": "glm4_moe_lite", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 32,
              "num_hidden_layers": 1, "num_nextn_predict_layers": 1, "num_attention_heads": 2, "q_lora_rank": 32, "kv_lora_rank": 32,
              "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32, "n_routed_experts": 2, "n_shared_experts": 1,
              "num_experts_per_tok": 1, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
    layer = {"input_layernorm.weight": [32], "post_attention_layernorm.weight": [32], "self_attn.q_a_proj.weight": [32, 32],
             "self_attn.q_a_layernorm.weight": [32], "self_attn.q_b_proj.weight": [128, 32],
             "self_attn.kv_a_proj_with_mqa.weight": [64, 32], "self_attn.kv_a_layernorm.weight": [32],
             "self_attn.kv_b_proj.weight": [128, 32], "self_attn.o_proj.weight": [32, 64], "mlp.gate.weight": [2, 32],
             "mlp.gate.e_score_correction_bias": [2]}
    for part, shape in (("gate_proj", [32, 32]), ("up_proj", [32, 32]), ("down_proj", [32, 32])):
        layer[f"mlp.shared_experts.{part}.weight"] = shape
        for expert in range(2):
            layer[f"mlp.experts.{expert}.{part}.weight"] = shape
    shapes = {"model.embed_tokens.weight": [64, 32], "model.norm.weight": [32], "lm_head.weight": [64, 32]}
    shapes.update({"model.layers.0." + name: shape for name, shape in layer.items()})
    if blocks:
        shapes.update({"model.layers.1." + name: shape for name, shape in layer.items()})
        shapes.update({"model.layers.1.enorm.weight": [32], "model.layers.1.hnorm.weight": [32], "model.layers.1.eh_proj.weight": [32, 64],
                       "model.layers.1.embed_tokens.weight": [64, 32], "model.layers.1.shared_head.norm.weight": [32],
                       "model.layers.1.shared_head.head.weight": [64, 32]})
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensors = models.random_tensors(shapes)
    models.write_safetensors(folder / "model.safetensors", tensors)
    return tensors


def check_split_mtp(context):
    source, target = context.folder / "glm", context.folder / "glm-mtp"
    tensors = glm(source)
    out = context.ok("split-mtp", "-m", source, "-o", target)
    assert str(target) in out.out, out
    config = json.loads((target / "config.json").read_text())
    assert config["model_type"] == "glm4_moe_lite_mtp" and config["text_config"]["model_type"] == "glm4_moe_lite", config
    assert config["block_size"] == 2 and "quantization" not in config, config
    found = models.read_safetensors(target / "model.safetensors")
    block = "model.mtp_block."
    parts = ["self_attn.q_a_proj.weight", "self_attn.q_a_layernorm.weight", "self_attn.q_b_proj.weight", "self_attn.kv_a_proj_with_mqa.weight",
             "self_attn.kv_a_layernorm.weight", "self_attn.embed_q.weight", "self_attn.unembed_out.weight", "self_attn.o_proj.weight",
             "input_layernorm.weight", "post_attention_layernorm.weight", "mlp.gate.weight", "mlp.gate.e_score_correction_bias"]
    parts += [f"mlp.{kind}.{part}_proj.weight" for kind in ("switch_mlp", "shared_experts") for part in ("gate", "up", "down")]
    want = {block + part for part in parts} | {f"model.{part}.weight" for part in ("enorm", "hnorm", "eh_proj", "embed_tokens", "shared_head_norm")} | \
        {"lm_head.weight"}
    assert set(found) == want, set(found) ^ want
    layer = "model.layers.1."
    for name, of in (("model.eh_proj.weight", "eh_proj.weight"), ("model.embed_tokens.weight", "embed_tokens.weight"),
                     ("lm_head.weight", "shared_head.head.weight"), ("model.shared_head_norm.weight", "shared_head.norm.weight"),
                     (block + "self_attn.o_proj.weight", "self_attn.o_proj.weight")):
        assert found[name][2] == tensors[layer + of][2], name
    assert found[block + "mlp.switch_mlp.up_proj.weight"][1:] == \
        ([2, 32, 32], b"".join(tensors[f"{layer}mlp.experts.{e}.up_proj.weight"][2] for e in range(2)))
    # kv_b holds, head by head, 32 rows of keys and 32 of values; the keys' are turned.
    rows = [tensors[layer + "self_attn.kv_b_proj.weight"][2][64 * r:64 * (r + 1)] for r in range(128)]
    assert found[block + "self_attn.unembed_out.weight"] == ("BF16", [2, 32, 32], b"".join(rows[32:64] + rows[96:128]))
    first = [struct.unpack("<32H", row) for row in rows[:32]]
    turned = b"".join(struct.pack("<32H", *column) for column in zip(*first))
    assert found[block + "self_attn.embed_q.weight"][2][:2048] == turned

    context.fails(2, "split-mtp", "-m", source, "-o", target)
    context.ok("split-mtp", "-m", source, "-o", target, "--q-bits", "4", "--group-size", "32", "--force")
    config = json.loads((target / "config.json").read_text())
    assert config["quantization"]["bits"] == 4 and config["quantization"]["group_size"] == 32, config
    found = models.read_safetensors(target / "model.safetensors")
    assert found["model.eh_proj.weight"][0] == "U32" and "model.eh_proj.scales" in found and found["model.enorm.weight"][0] == "BF16"


def check_split_mtp_mistakes(context):
    bare = context.folder / "glm-bare"
    glm(bare, blocks=False)
    out = context.fails(1, "split-mtp", "-m", bare, "-o", context.folder / "nothing")
    assert "eh_proj" in out.err and not (context.folder / "nothing").exists(), out
    out = context.fails(1, "split-mtp", "-m", context.tiny(), "-o", context.folder / "nothing")
    assert "glm4_moe_lite" in out.err, out
    context.fails(2, "split-mtp", "-m", bare)
    context.fails(2, "split-mtp", "-m", bare, "-o", "x", "--q-bits", "7")
