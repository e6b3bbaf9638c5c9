#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/file.h"
#include "checkpoint/formats/safetensors_writer.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

struct OpenCheckpoint : testing::Test {
  Folder folder;
  void weights(const std::string& name = "model.safetensors") {
    write_safetensors(folder / name, {{"a.weight", numbers({2, 2})}});
  }
  void refuse(const fs::path& path, ErrorKind kind, const std::vector<std::string>& parts) {
    expect_error([&] { open_checkpoint(path); }, kind, parts);
  }
};

TEST_F(OpenCheckpoint, Folder) {
  weights();
  folder.put("config.json",
             R"({"model_type": "llama", "eos_token_id": 2, "text_config": {"eos_token_id": [5, 2]}})");
  folder.put("generation_config.json", R"({"eos_token_id": [1, 106], "temperature": 0.6})");
  const Checkpoint c = open_checkpoint(folder.path());
  EXPECT_EQ(c.format, Checkpoint::Format::safetensors);
  EXPECT_EQ(c.eos_ids, (std::vector<int>{1, 2, 5, 106}));
  EXPECT_EQ(c.generation_config.get<float>("temperature"), 0.6f);
  EXPECT_EQ(c.source->load("a.weight").data.data<float>()[3], 3);
  EXPECT_TRUE(c.warnings.empty());
  EXPECT_FALSE(c.gguf);
  EXPECT_EQ(c.file_bytes, fs::file_size(folder / "model.safetensors"));
}

TEST_F(OpenCheckpoint, EosMayBeAbsentOrMinusOneButNotNonsense) {
  weights();
  folder.put("config.json", R"({"eos_token_id": null})");
  EXPECT_TRUE(open_checkpoint(folder.path()).eos_ids.empty());
  folder.put("config.json", R"({"eos_token_id": -1})");
  EXPECT_TRUE(open_checkpoint(folder.path()).eos_ids.empty());
  folder.put("config.json", R"({"eos_token_id": "2"})");
  refuse(folder.path(), ErrorKind::bad_checkpoint, {"eos_token_id"});
  folder.put("config.json", R"({"eos_token_id": [1, -4]})");
  refuse(folder.path(), ErrorKind::bad_checkpoint, {"eos_token_id"});
}

TEST_F(OpenCheckpoint, WhatIsMissingIsNamed) {
  refuse(folder / "nothing", ErrorKind::not_found, {"nothing"});
  refuse(folder.path(), ErrorKind::not_found, {"neither"});
  folder.put("config.json", "{}");
  refuse(folder.path(), ErrorKind::bad_checkpoint, {"safetensors", "download incomplete?"});
  for (const char* name : {"pytorch_model.bin", "weights.npz", "model.pt"}) {
    folder.put(name, "x");
    refuse(folder.path(), ErrorKind::unsupported, {"safetensors export"});
    fs::remove(folder / name);
  }
  weights();
  fs::remove(folder / "config.json");
  refuse(folder.path(), ErrorKind::bad_checkpoint, {"config.json", "missing"});
  refuse(folder / "model.safetensors", ErrorKind::invalid_request, {"folder"});
  refuse(folder.put("notes.txt", "x"), ErrorKind::unsupported, {"notes.txt"});
  refuse(folder / "model-00001-of-00002.gguf", ErrorKind::bad_checkpoint,
         {"model-00001-of-00002.gguf", "model-00002-of-00002.gguf", "missing"});
}

TEST_F(OpenCheckpoint, BrokenConfigIsNamed) {
  weights();
  folder.put("config.json", "{");
  refuse(folder.path(), ErrorKind::bad_checkpoint, {"config.json", "JSON"});
  folder.put("config.json", R"({"quantization_config": {"quant_method": "awq"}})");
  refuse(folder.path(), ErrorKind::bad_checkpoint, {"awq", "qweight"});
  folder.put("config.json", R"({"quantization_config": {"quant_method": "bitsandbytes"}})");
  refuse(folder.path(), ErrorKind::unsupported, {"quantization_config.quant_method", "bitsandbytes"});
}

// ---- GGUF architectures

/// A tiny model of the llama kind with F32 tensors whose values tell rows apart.
Gguf llama(const std::string& arch = "llama") {
  Gguf f;
  f.string("general.architecture", arch)
      .integer(arch + ".block_count", 1)
      .integer(arch + ".context_length", 64)
      .integer(arch + ".embedding_length", 8)
      .integer(arch + ".feed_forward_length", 4)
      .integer(arch + ".attention.head_count", 2)
      .integer(arch + ".attention.head_count_kv", 1)
      .number(arch + ".attention.layer_norm_rms_epsilon", 1e-6f)
      .number(arch + ".rope.freq_base", 5e5f)
      .integer("tokenizer.ggml.bos_token_id", 1)
      .integer("tokenizer.ggml.eos_token_id", 2)
      .integer("tokenizer.ggml.eot_token_id", 4);
  return f;
}
std::string floats(int count, float first = 0) {
  std::string out;
  for (int i = 0; i < count; ++i) out += raw(first + static_cast<float>(i));
  return out;
}
Gguf& with_tensors(Gguf& f) {
  return f.tensor("token_embd.weight", 0, {8, 16}, floats(128))
      .tensor("output_norm.weight", 0, {8}, floats(8))
      .tensor("blk.0.attn_norm.weight", 0, {8}, floats(8))
      .tensor("blk.0.attn_q.weight", 0, {8, 8}, floats(64))
      .tensor("blk.0.attn_k.weight", 0, {8, 4}, floats(32))
      .tensor("blk.0.attn_v.weight", 0, {8, 4}, floats(32))
      .tensor("blk.0.attn_output.weight", 0, {8, 8}, floats(64));
}

TEST_F(OpenCheckpoint, GgufLlama) {
  Gguf f = llama();
  with_tensors(f)
      .tensor("blk.0.attn_q.bias", 0, {8}, floats(8))
      .tensor("output.weight", 0, {8, 16}, floats(128));
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", f.bytes()));
  EXPECT_EQ(c.format, Checkpoint::Format::gguf);
  EXPECT_EQ(c.config.get<std::string>("model_type"), "llama");
  EXPECT_EQ(c.config.get<int>("hidden_size"), 8);
  EXPECT_EQ(c.config.get<int>("head_dim"), 4);
  EXPECT_EQ(c.config.get<int>("vocab_size"), 16);
  EXPECT_EQ(c.config.get<int>("num_key_value_heads"), 1);
  EXPECT_EQ(c.config.get<float>("rope_theta"), 5e5f);
  EXPECT_EQ(c.config.get<float>("rms_norm_eps"), 1e-6f);
  EXPECT_TRUE(c.config.get<bool>("attention_bias"));
  EXPECT_FALSE(c.config.get<bool>("tie_word_embeddings"));
  EXPECT_EQ(c.eos_ids, (std::vector<int>{2, 4}));
  EXPECT_TRUE(c.gguf->contains("tokenizer.ggml.eot_token_id"));
  // Rows of a head come as pairs 0 2 | 1 3 and go back to halves.
  const Weight q = c.source->load("model.layers.0.self_attn.q_proj.weight");
  const int order[8] = {0, 2, 1, 3, 4, 6, 5, 7};
  for (int row = 0; row < 8; ++row)
    EXPECT_EQ(q.data.data<float>()[8 * row], static_cast<float>(8 * order[row])) << row;
  const Weight bias = c.source->load("model.layers.0.self_attn.q_proj.bias");
  for (int row = 0; row < 8; ++row) EXPECT_EQ(bias.data.data<float>()[row], static_cast<float>(order[row]));
  EXPECT_EQ(c.source->load("model.layers.0.self_attn.k_proj.weight").data.data<float>()[8], 16);
  EXPECT_EQ(c.source->load("model.layers.0.self_attn.v_proj.weight").data.data<float>()[8], 8);
  EXPECT_EQ(c.source->load("lm_head.weight").shape, Shape({16, 8}));
  // The folder that holds it alone is the same model.
  EXPECT_EQ(open_checkpoint(folder.path()).source->names(), c.source->names());
  folder.put("mmproj-m.gguf", "x");
  EXPECT_EQ(open_checkpoint(folder.path()).source->names(), c.source->names());
  folder.put("n.gguf", f.bytes());
  refuse(folder.path(), ErrorKind::invalid_request, {"2 GGUF models", "m.gguf"});
}

TEST_F(OpenCheckpoint, GgufHeadsOfSixRowsAreNotTheirOwnInverse) {
  Gguf f;
  f.string("general.architecture", "llama")
      .integer("llama.block_count", 1)
      .integer("llama.context_length", 64)
      .integer("llama.embedding_length", 6)
      .integer("llama.attention.head_count", 1)
      .number("llama.attention.layer_norm_rms_epsilon", 1e-6f)
      .tensor("token_embd.weight", 0, {6, 4}, floats(24))
      .tensor("blk.0.attn_q.weight", 0, {1, 6}, floats(6));
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", f.bytes()));
  const Weight q = c.source->load("model.layers.0.self_attn.q_proj.weight");
  const float expected[6] = {0, 2, 4, 1, 3, 5};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(q.data.data<float>()[i], expected[i]);
}

TEST_F(OpenCheckpoint, GgufRopeScaling) {
  const auto config = [&](Gguf f) {
    return open_checkpoint(folder.put("m.gguf", with_tensors(f).bytes())).config;
  };
  EXPECT_FALSE(config(llama()).has("rope_scaling"));
  EXPECT_FALSE(config(llama().string("llama.rope.scaling.type", "none")).has("rope_scaling"));
  const Config linear =
      config(llama().string("llama.rope.scaling.type", "linear").number("llama.rope.scaling.factor", 4))
          .child("rope_scaling");
  EXPECT_EQ(linear.get<std::string>("rope_type"), "linear");
  EXPECT_EQ(linear.get<float>("factor"), 4);
  const Config yarn = config(llama()
                                 .string("llama.rope.scaling.type", "yarn")
                                 .number("llama.rope.scaling.factor", 4)
                                 .integer("llama.rope.scaling.original_context_length", 32))
                          .child("rope_scaling");
  EXPECT_EQ(yarn.get<std::string>("rope_type"), "yarn");
  EXPECT_EQ(yarn.get<int>("original_max_position_embeddings"), 32);
  const Config llama3 =
      config(llama().tensor("rope_freqs.weight", 0, {2}, raw(1.0f) + raw(8.0f))).child("rope_scaling");
  EXPECT_EQ(llama3.get<std::string>("rope_type"), "longrope");
  EXPECT_EQ(llama3.get<std::vector<float>>("long_factor"), (std::vector<float>{1, 8}));
  EXPECT_EQ(llama3.get<std::vector<float>>("short_factor"), (std::vector<float>{1, 8}));
  EXPECT_EQ(llama3.get<float>("attention_factor"), 1);
  expect_error([&] { config(llama().tensor("rope_freqs.weight", 0, {3}, floats(3))); },
               ErrorKind::bad_checkpoint, {"rope_freqs.weight", "[2]", "[3]"});
  expect_error([&] { config(llama().tensor("rope_freqs.weight", 0, {2}, floats(2))); },
               ErrorKind::bad_checkpoint, {"positive"});
  expect_error([&] { config(llama().string("llama.rope.scaling.type", "spiral")); }, ErrorKind::unsupported,
               {"spiral"});
  expect_error([&] { config(llama().string("llama.rope.scaling.type", "linear")); },
               ErrorKind::bad_checkpoint, {"factor"});
  EXPECT_EQ(config(llama().integer("llama.rope.dimension_count", 2)).get<float>("partial_rotary_factor"),
            0.5f);
  expect_error([&] { config(llama().integer("llama.rope.dimension_count", 6)); }, ErrorKind::bad_checkpoint,
               {"dimension_count"});
}

TEST_F(OpenCheckpoint, GgufRefusals) {
  const auto no = [&](Gguf f, ErrorKind kind, const std::vector<std::string>& parts) {
    refuse(folder.put("m.gguf", f.bytes()), kind, parts);
  };
  Gguf nameless;
  no(with_tensors(nameless), ErrorKind::bad_checkpoint, {"general.architecture"});
  Gguf clip = llama("clip"), falcon = llama("falcon"), odd = llama("oddity"), experts = llama();
  no(with_tensors(clip), ErrorKind::unsupported, {"mmproj"});
  no(with_tensors(falcon), ErrorKind::unsupported, {"falcon", "not mapped yet"});
  no(with_tensors(odd), ErrorKind::unsupported, {"oddity", "unknown architecture"});
  no(with_tensors(experts.integer("llama.expert_count", 8)), ErrorKind::unsupported, {"mixtral"});
  Gguf stranger = llama();
  no(with_tensors(stranger).tensor("blk.0.surprise.weight", 0, {1}, floats(1)), ErrorKind::bad_checkpoint,
     {"blk.0.surprise.weight", "llama"});
  no(llama(), ErrorKind::bad_checkpoint, {"token_embd.weight"});
  Gguf partial;
  no(partial.string("general.architecture", "llama").tensor("token_embd.weight", 0, {8, 16}, floats(128)),
     ErrorKind::bad_checkpoint, {"llama.block_count", "missing"});
  Gguf heads;
  heads.string("general.architecture", "llama")
      .integer("llama.block_count", 1)
      .integer("llama.context_length", 64)
      .integer("llama.embedding_length", 8)
      .integer("llama.attention.head_count", 3)
      .number("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  no(with_tensors(heads), ErrorKind::bad_checkpoint, {"blk.0.attn_k.weight", "3 heads"});
  Gguf zero;
  zero.string("general.architecture", "llama")
      .integer("llama.block_count", 1)
      .integer("llama.context_length", 64)
      .integer("llama.embedding_length", 8)
      .integer("llama.attention.head_count", 0)
      .number("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  no(with_tensors(zero), ErrorKind::bad_checkpoint, {"0 heads"});
}

TEST_F(OpenCheckpoint, GgufQwen3Moe) {
  Gguf f = llama("qwen3moe");
  f.integer("qwen3moe.attention.key_length", 4)
      .integer("qwen3moe.expert_count", 3)
      .integer("qwen3moe.expert_used_count", 2)
      .integer("qwen3moe.expert_feed_forward_length", 5);
  with_tensors(f)
      .tensor("blk.0.ffn_gate_exps.weight", 0, {8, 5, 3}, floats(120))
      .tensor("blk.0.ffn_gate_inp.weight", 0, {8, 3}, floats(24))
      .tensor("blk.0.attn_q_norm.weight", 0, {4}, floats(4));
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", f.bytes()));
  EXPECT_EQ(c.config.get<std::string>("model_type"), "qwen3_moe");
  EXPECT_EQ(c.config.get<int>("num_experts"), 3);
  EXPECT_EQ(c.config.get<int>("moe_intermediate_size"), 5);
  EXPECT_TRUE(c.config.get<bool>("norm_topk_prob"));
  EXPECT_EQ(c.source->find("model.layers.0.mlp.switch_mlp.gate_proj.weight")->shape, Shape({3, 5, 8}));
  EXPECT_EQ(c.source->load("model.layers.0.self_attn.q_proj.weight").data.data<float>()[8],
            8);  // not permuted
  EXPECT_TRUE(c.source->find("model.layers.0.mlp.gate.weight") &&
              c.source->find("model.layers.0.self_attn.q_norm.weight"));
}

TEST_F(OpenCheckpoint, GgufGemma3NormsLoseTheOne) {
  Gguf f = llama("gemma3");
  f.integer("gemma3.attention.sliding_window", 512).integer("gemma3.attention.key_length", 4);
  with_tensors(f).tensor("blk.0.ffn_norm.weight", 0, {8}, floats(8, 1.5f));
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", f.bytes()));
  EXPECT_EQ(c.config.get<std::string>("model_type"), "gemma3_text");
  EXPECT_EQ(c.config.get<int>("sliding_window"), 512);
  EXPECT_EQ(c.config.get<int>("sliding_window_pattern"), 6);
  EXPECT_EQ(c.config.get<int>("query_pre_attn_scalar"), 4);
  EXPECT_EQ(c.config.get<float>("rope_local_base_freq"), 10000);
  EXPECT_TRUE(c.config.get<bool>("tie_word_embeddings"));
  EXPECT_EQ(c.source->load("model.layers.0.pre_feedforward_layernorm.weight").data.data<float>()[0], 0.5f);
  EXPECT_EQ(c.source->load("model.layers.0.self_attn.q_proj.weight").data.data<float>()[8], 8);
}

TEST_F(OpenCheckpoint, GgufGranitesMultipliersAndRows) {
  Gguf f = llama("granite");
  f.number("granite.attention.scale", 0.25f)
      .number("granite.embedding_scale", 12)
      .number("granite.logit_scale", 8);
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", with_tensors(f).bytes()));
  EXPECT_EQ(c.config.get<float>("attention_multiplier"), 0.25f);
  EXPECT_EQ(c.config.get<float>("embedding_multiplier"), 12);
  EXPECT_EQ(c.config.get<float>("residual_multiplier"), 1);
  EXPECT_EQ(c.config.get<float>("logits_scaling"), 8);
  // Heads of four rows: the second published row lies third in the file.
  EXPECT_EQ(c.source->load("model.layers.0.self_attn.q_proj.weight").data.data<float>()[8], 16);
}

TEST_F(OpenCheckpoint, GgufGemma2NormsLoseTheOne) {
  Gguf f = llama("gemma2");
  f.number("gemma2.final_logit_softcapping", 20).integer("gemma2.attention.sliding_window", 99);
  with_tensors(f)
      .tensor("blk.0.post_attention_norm.weight", 0, {8}, floats(8, 1.5f))
      .tensor("blk.0.ffn_norm.weight", 0, {8}, floats(8, 2.5f));
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", f.bytes()));
  EXPECT_EQ(c.config.get<float>("attn_logit_softcapping"), 50);
  EXPECT_EQ(c.config.get<float>("final_logit_softcapping"), 20);
  EXPECT_EQ(c.config.get<int>("sliding_window"), 99);
  EXPECT_EQ(c.source->load("model.layers.0.post_attention_layernorm.weight").data.data<float>()[0], 0.5f);
  EXPECT_EQ(c.source->load("model.layers.0.pre_feedforward_layernorm.weight").data.data<float>()[0], 1.5f);
}

TEST_F(OpenCheckpoint, GgufPhi3HasTwoListsOfFactors) {
  Gguf f = llama("phi3");
  f.integer("phi3.rope.scaling.original_context_length", 32)
      .number("phi3.rope.scaling.attn_factor", 1.5f)
      .tensor("rope_factors_long.weight", 0, {2}, floats(2, 3))
      .tensor("blk.0.attn_qkv.weight", 0, {8, 16}, floats(128));
  Gguf half = f;
  half.tensor("token_embd.weight", 0, {8, 16}, floats(128));
  refuse(folder.put("m.gguf", half.bytes()), ErrorKind::bad_checkpoint, {"rope_factors_short.weight"});
  f.tensor("token_embd.weight", 0, {8, 16}, floats(128))
      .tensor("rope_factors_short.weight", 0, {2}, floats(2, 1));
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", f.bytes()));
  EXPECT_EQ(c.config.get<int>("original_max_position_embeddings"), 32);
  EXPECT_EQ(c.config.child("rope_scaling").get<std::vector<float>>("long_factor"),
            (std::vector<float>{3, 4}));
  EXPECT_EQ(c.config.child("rope_scaling").get<std::vector<float>>("short_factor"),
            (std::vector<float>{1, 2}));
  EXPECT_EQ(c.config.child("rope_scaling").get<float>("attention_factor"), 1.5f);
  EXPECT_EQ(c.source->find("model.layers.0.self_attn.qkv_proj.weight")->shape, Shape({16, 8}));
}

TEST_F(OpenCheckpoint, GgufLayerNormFamiliesNeedTheirEpsilon) {
  Gguf f = llama("command-r");
  f.number("command-r.logit_scale", 0.0625f);
  with_tensors(f);
  Gguf whole = f;
  refuse(folder.put("m.gguf", f.bytes()), ErrorKind::bad_checkpoint,
         {"command-r.attention.layer_norm_epsilon"});
  whole.number("command-r.attention.layer_norm_epsilon", 1e-5f);
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", whole.bytes()));
  EXPECT_EQ(c.config.get<std::string>("model_type"), "cohere");
  EXPECT_EQ(c.config.get<float>("layer_norm_eps"), 1e-5f);
  EXPECT_FALSE(c.config.get<bool>("use_qk_norm"));
  EXPECT_EQ(c.source->load("model.layers.0.self_attn.q_proj.weight").data.data<float>()[8],
            8);  // as published
}

TEST_F(OpenCheckpoint, GgufOlmo2WithAWindowIsOlmo3) {
  Gguf plain = llama("olmo2");
  EXPECT_EQ(open_checkpoint(folder.put("m.gguf", with_tensors(plain).bytes()))
                .config.get<std::string>("model_type"),
            "olmo2");
  Gguf f = llama("olmo2");
  f.integer("olmo2.attention.sliding_window", 16);
  const Checkpoint c = open_checkpoint(folder.put("m.gguf", with_tensors(f).bytes()));
  EXPECT_EQ(c.config.get<std::string>("model_type"), "olmo3");
  EXPECT_EQ(c.config.get<std::vector<std::string>>("layer_types"),
            (std::vector<std::string>{"sliding_attention"}));
}

TEST_F(OpenCheckpoint, GgufGpt2AndBertAndMamba2) {
  Gguf gpt;
  gpt.string("general.architecture", "gpt2")
      .integer("gpt2.block_count", 1)
      .integer("gpt2.context_length", 16)
      .integer("gpt2.embedding_length", 8)
      .integer("gpt2.attention.head_count", 2)
      .number("gpt2.attention.layer_norm_epsilon", 1e-5f)
      .tensor("token_embd.weight", 0, {8, 16}, floats(128))
      .tensor("position_embd.weight", 0, {8, 16}, floats(128))
      .tensor("blk.0.attn_qkv.weight", 0, {8, 24}, floats(192))
      .tensor("blk.0.attn_qkv.bias", 0, {24}, floats(24));
  const Checkpoint g = open_checkpoint(folder.put("g.gguf", gpt.bytes()));
  EXPECT_EQ(g.config.get<int>("n_embd"), 8);
  EXPECT_EQ(g.config.get<int>("n_positions"), 16);
  EXPECT_EQ(g.config.get<float>("layer_norm_epsilon"), 1e-5f);
  EXPECT_EQ(g.source->find("model.h.0.attn.c_attn.weight")->shape, Shape({24, 8}));
  EXPECT_TRUE(g.source->find("model.h.0.attn.c_attn.bias") && g.source->find("model.wpe.weight"));

  Gguf bert;
  bert.string("general.architecture", "bert")
      .integer("bert.block_count", 1)
      .integer("bert.context_length", 16)
      .integer("bert.embedding_length", 8)
      .integer("bert.feed_forward_length", 4)
      .integer("bert.attention.head_count", 2)
      .number("bert.attention.layer_norm_epsilon", 1e-12f)
      .tensor("token_embd.weight", 0, {8, 16}, floats(128))
      .tensor("token_types.weight", 0, {8, 2}, floats(16))
      .tensor("token_embd_norm.bias", 0, {8}, floats(8))
      .tensor("blk.0.attn_output_norm.weight", 0, {8}, floats(8))
      .tensor("blk.0.attn_output.weight", 0, {8, 8}, floats(64));
  const Checkpoint b = open_checkpoint(folder.put("b.gguf", bert.bytes()));
  EXPECT_EQ(b.config.get<int>("type_vocab_size"), 2);
  EXPECT_TRUE(b.source->find("encoder.layer.0.attention.output.LayerNorm.weight"));
  EXPECT_TRUE(b.source->find("encoder.layer.0.attention.output.dense.weight"));
  EXPECT_TRUE(b.source->find("embeddings.LayerNorm.bias"));

  Gguf mamba;
  mamba.string("general.architecture", "mamba2")
      .integer("mamba2.block_count", 1)
      .integer("mamba2.embedding_length", 8)
      .integer("mamba2.ssm.conv_kernel", 4)
      .integer("mamba2.ssm.state_size", 2)
      .integer("mamba2.ssm.group_count", 1)
      .integer("mamba2.ssm.time_step_rank", 4)
      .integer("mamba2.ssm.inner_size", 16)
      .number("mamba2.attention.layer_norm_rms_epsilon", 1e-5f)
      .tensor("token_embd.weight", 0, {8, 16}, floats(128))
      .tensor("blk.0.ssm_a", 0, {1, 4}, raw(-1.0f) + raw(-2.0f) + raw(-3.0f) + raw(-4.0f))
      .tensor("blk.0.ssm_d", 0, {1, 4}, floats(4))
      .tensor("blk.0.ssm_conv1d.weight", 0, {4, 20}, floats(80))
      .tensor("blk.0.ssm_norm.weight", 0, {16, 1}, floats(16))
      .tensor("blk.0.ssm_dt.bias", 0, {4}, floats(4));
  const Checkpoint m = open_checkpoint(folder.put("m.gguf", mamba.bytes()));
  EXPECT_EQ(m.config.get<int>("head_dim"), 4);
  EXPECT_EQ(m.config.get<int>("expand"), 2);
  EXPECT_EQ(m.config.get<int>("num_heads"), 4);
  const Weight a = m.source->load("backbone.layers.0.mixer.A_log");
  EXPECT_EQ(a.shape, Shape({4}));
  EXPECT_EQ(m.source->find("backbone.layers.0.mixer.A_log")->shape, Shape({4}));
  EXPECT_NEAR(a.data.data<float>()[1], 0.693147f, 1e-6f);
  EXPECT_EQ(m.source->load("backbone.layers.0.mixer.conv1d.weight").data.shape(), Shape({20, 1, 4}));
  EXPECT_EQ(m.source->load("backbone.layers.0.mixer.conv1d.weight").data.data<float>()[79], 79);
  EXPECT_EQ(m.source->load("backbone.layers.0.mixer.D").shape, Shape({4}));
  EXPECT_EQ(m.source->find("backbone.layers.0.mixer.norm.weight")->shape, Shape({16}));
  EXPECT_TRUE(m.source->find("backbone.layers.0.mixer.dt_bias"));
}

TEST_F(OpenCheckpoint, GgufLfm2ListsItsLayers) {
  const auto file = [&](const std::string& kv) {
    Gguf f;
    f.string("general.architecture", "lfm2")
        .integer("lfm2.block_count", 2)
        .integer("lfm2.context_length", 64)
        .integer("lfm2.embedding_length", 8)
        .integer("lfm2.feed_forward_length", 16)
        .integer("lfm2.attention.head_count", 2)
        .pair("lfm2.attention.head_count_kv", 9, kv)
        .number("lfm2.attention.layer_norm_rms_epsilon", 1e-5f)
        .integer("lfm2.shortconv.l_cache", 3)
        .tensor("token_embd.weight", 0, {8, 16}, floats(128))
        .tensor("token_embd_norm.weight", 0, {8}, floats(8))
        .tensor("blk.0.shortconv.conv.weight", 0, {3, 8}, floats(24))
        .tensor("blk.1.attn_output.weight", 0, {8, 8}, floats(64))
        .tensor("blk.1.attn_q_norm.weight", 0, {4}, floats(4))
        .tensor("blk.1.ffn_up.weight", 0, {8, 16}, floats(128));
    return folder.put("l.gguf", f.bytes());
  };
  const auto list = [](uint32_t a, uint32_t b, uint64_t count = 2) {
    return raw<uint32_t>(4) + raw<uint64_t>(count) + raw(a) + raw(b);
  };
  const Checkpoint c = open_checkpoint(file(list(0, 2)));
  EXPECT_EQ(c.config.get<std::vector<std::string>>("layer_types"),
            (std::vector<std::string>{"conv", "full_attention"}));
  EXPECT_EQ(c.config.get<int>("num_key_value_heads"), 2);
  EXPECT_EQ(c.config.get<int>("conv_L_cache"), 3);
  EXPECT_FALSE(c.config.get<bool>("block_auto_adjust_ff_dim"));
  EXPECT_TRUE(c.source->find("model.embedding_norm.weight"));
  EXPECT_EQ(c.source->find("model.layers.0.conv.conv.weight")->shape, Shape({8, 3}));
  EXPECT_TRUE(c.source->find("model.layers.1.self_attn.out_proj.weight"));
  EXPECT_TRUE(c.source->find("model.layers.1.self_attn.q_layernorm.weight"));
  EXPECT_TRUE(c.source->find("model.layers.1.feed_forward.w3.weight"));
  refuse(file(list(1, 2)), ErrorKind::unsupported, {"lfm2.attention.head_count_kv", "differs"});
}

TEST_F(OpenCheckpoint, GgufPerLayerListsMustAgree) {
  const auto list = [](uint32_t a, uint32_t b) {
    return raw<uint32_t>(4) + raw<uint64_t>(2) + raw(a) + raw(b);
  };
  const auto file = [&](const std::string& value) {
    Gguf f;
    f.string("general.architecture", "qwen2")
        .integer("qwen2.block_count", 2)
        .integer("qwen2.context_length", 64)
        .integer("qwen2.embedding_length", 8)
        .pair("qwen2.attention.head_count", 9, value)
        .number("qwen2.attention.layer_norm_rms_epsilon", 1e-6f);
    return folder.put("m.gguf", with_tensors(f).bytes());
  };
  EXPECT_EQ(open_checkpoint(file(list(2, 2))).config.get<int>("num_attention_heads"), 2);
  refuse(file(list(2, 4)), ErrorKind::unsupported, {"qwen2.attention.head_count", "differs between layers"});
}

}  // namespace
}  // namespace mlxcel
