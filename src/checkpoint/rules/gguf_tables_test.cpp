// What the tables of sparse, latent, recurrent and late Gemma families make of a file's keys and names. The
// values themselves are compared through llama.cpp's converter (tests/golden/gguf_test.cpp).
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/checkpoint.h"
#include "checkpoint/formats/test_files.h"

namespace mlxcel {
namespace {

using namespace testing_files;

std::string floats(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += raw(static_cast<float>(i + 1));
  return out;
}

Gguf file_of(const std::string& arch, uint32_t blocks) {
  Gguf f;
  f.string("general.architecture", arch)
      .integer(arch + ".block_count", blocks)
      .integer(arch + ".context_length", 64)
      .integer(arch + ".embedding_length", 8)
      .integer(arch + ".attention.head_count", 2)
      .number(arch + ".attention.layer_norm_rms_epsilon", 1e-6f)
      .tensor("token_embd.weight", 0, {8, 16}, floats(128));
  return f;
}

std::string list(const std::vector<uint32_t>& values) {
  std::string out = raw<uint32_t>(4) + raw<uint64_t>(values.size());
  for (const uint32_t value : values) out += raw(value);
  return out;
}

std::string flags(const std::vector<bool>& values) {
  std::string out = raw<uint32_t>(7) + raw<uint64_t>(values.size());
  for (const bool value : values) out += raw<uint8_t>(value);
  return out;
}

struct GgufTables : testing::Test {
  Folder folder;
  Checkpoint open(const Gguf& f) { return open_checkpoint(folder.put("m.gguf", f.bytes())); }
  void refuse(const Gguf& f, ErrorKind kind, const std::vector<std::string>& parts) {
    expect_error([&] { open(f); }, kind, parts);
  }
};

TEST_F(GgufTables, MixtralIsLlamaWithExperts) {
  Gguf f = file_of("llama", 1);
  f.integer("llama.feed_forward_length", 4)
      .integer("llama.expert_count", 8)
      .integer("llama.expert_used_count", 2);
  f.tensor("blk.0.ffn_gate.3.weight", 0, {8, 4}, floats(32))
      .tensor("blk.0.ffn_gate_inp.weight", 0, {8, 8}, floats(64));
  const Checkpoint c = open(f);
  EXPECT_EQ(c.config.get<std::string>("model_type"), "mixtral");
  EXPECT_EQ(c.config.get<int>("num_local_experts"), 8);
  EXPECT_TRUE(c.source->find("model.layers.0.block_sparse_moe.experts.3.w1.weight"));
  EXPECT_TRUE(c.source->find("model.layers.0.block_sparse_moe.gate.weight"));
}

TEST_F(GgufTables, BitnetNamesItsActivationOrIsOfTheFirst) {
  Gguf f = file_of("bitnet", 1);
  f.integer("bitnet.feed_forward_length", 12).tensor("blk.0.ffn_sub_norm.weight", 0, {12}, floats(12));
  EXPECT_EQ(open(f).config.get<std::string>("hidden_act"), "silu");
  f.string("bitnet.hidden_activation", "relu2");
  const Checkpoint c = open(f);
  EXPECT_EQ(c.config.get<std::string>("hidden_act"), "relu2");
  EXPECT_TRUE(c.source->find("model.layers.0.mlp.ffn_sub_norm.weight"));
  // A scale beside a matrix is no part of the family as it is read here: nobody may take it for a bias.
  f.tensor("blk.0.attn_q.scale", 0, {1}, floats(1));
  EXPECT_TRUE(open(f).source->find("model.layers.0.self_attn.q_proj.scale"));
}

TEST_F(GgufTables, PlamosHeadsStandSideBySide) {
  const auto file = [](uint32_t keys) {
    Gguf f = file_of("plamo", 1);
    f.integer("plamo.feed_forward_length", 12)
        .integer("plamo.attention.head_count_kv", keys)
        .tensor("output.weight", 0, {8, 16}, floats(128))
        .tensor("blk.0.attn_norm.weight", 0, {8}, floats(8));
    return f;
  };
  const Checkpoint c = open(file(1));
  EXPECT_EQ(c.config.get<int>("n_shared_head"), 2);
  EXPECT_FALSE(c.config.get<bool>("shared_heads_in_turn"));
  EXPECT_TRUE(c.source->find("model.layers.0.norm.weight"));
  refuse(file(3), ErrorKind::bad_checkpoint, {"2 heads over 3 key heads"});
}

TEST_F(GgufTables, KnownNamesWithoutATableAreToldFromUnknownOnes) {
  for (const char* name : {"llada-moe", "bitnet-b1.58"})
    refuse(file_of(name, 1), ErrorKind::unsupported, {name, "not mapped yet; use a safetensors folder"});
  refuse(file_of("no-such-model", 1), ErrorKind::unsupported, {"no-such-model", "unknown architecture"});
}

TEST_F(GgufTables, GptOss) {
  Gguf f = file_of("gpt-oss", 1);
  f.integer("gpt-oss.expert_count", 4)
      .integer("gpt-oss.expert_used_count", 2)
      .integer("gpt-oss.expert_feed_forward_length", 12)
      .integer("gpt-oss.attention.sliding_window", 128)
      .string("gpt-oss.rope.scaling.type", "yarn")
      .number("gpt-oss.rope.scaling.factor", 32.0f)
      .tensor("blk.0.attn_sinks.weight", 0, {2}, floats(2))
      .tensor("blk.0.ffn_up_exps.bias", 0, {12, 4}, floats(48));
  const Checkpoint c = open(f);
  EXPECT_EQ(c.config.get<int>("intermediate_size"), 12);
  EXPECT_FALSE(c.config.child("rope_scaling").get<bool>("truncate"));
  EXPECT_TRUE(c.source->find("model.layers.0.self_attn.sinks"));
  EXPECT_TRUE(c.source->find("model.layers.0.mlp.experts.up_proj.bias"));
}

Gguf deepseek2() {
  Gguf f = file_of("deepseek2", 2);
  f.integer("deepseek2.feed_forward_length", 24)
      .integer("deepseek2.attention.kv_lora_rank", 6)
      .integer("deepseek2.rope.dimension_count", 4)
      .integer("deepseek2.attention.key_length", 10)
      .integer("deepseek2.attention.value_length", 5);
  return f;
}

TEST_F(GgufTables, LatentKindsFollowFromTheExperts) {
  // An older file: plain key widths, kv_b whole.
  Gguf dense = deepseek2();
  dense.tensor("blk.0.attn_kv_b.weight", 0, {6, 22}, floats(132));
  const Checkpoint youtu = open(dense);
  EXPECT_EQ(youtu.config.get<std::string>("model_type"), "youtu_llm");
  EXPECT_EQ(youtu.config.get<int>("qk_nope_head_dim"), 6);
  EXPECT_EQ(youtu.config.get<int>("v_head_dim"), 5);
  EXPECT_TRUE(youtu.source->find("model.layers.0.self_attn.kv_b_proj.weight"));

  const auto sparse = [](bool corrected) {
    Gguf f = deepseek2();
    f.integer("deepseek2.expert_count", 256)
        .integer("deepseek2.expert_used_count", 8)
        .integer("deepseek2.expert_feed_forward_length", 3)
        .integer("deepseek2.attention.key_length_mla", 9)
        .integer("deepseek2.attention.value_length_mla", 7)
        .tensor("blk.0.attn_k_b.weight", 0, {5, 6, 2}, floats(60));
    if (corrected) f.tensor("blk.1.exp_probs_b.bias", 0, {256}, floats(256));
    return f;
  };
  const Checkpoint v2 = open(sparse(false));
  EXPECT_EQ(v2.config.get<std::string>("model_type"), "deepseek_v2");
  EXPECT_EQ(v2.config.get<std::string>("topk_method"), "greedy");
  const Checkpoint v3 = open(sparse(true));
  EXPECT_EQ(v3.config.get<std::string>("model_type"), "deepseek_v3");
  EXPECT_EQ(v3.config.get<int>("n_group"), 8);
  EXPECT_EQ(v3.config.get<int>("qk_nope_head_dim"), 5);
  EXPECT_EQ(v3.source->find("model.layers.0.self_attn.embed_q.weight")->shape, Shape({2, 6, 5}));

  Gguf narrow = deepseek2();
  refuse(narrow.integer("deepseek2.attention.key_length_mla", 4), ErrorKind::bad_checkpoint,
         {"width 4", "rotated 4"});
}

TEST_F(GgufTables, LayersOfNextTokenPredictionAreNotLayers) {
  const auto glm = [](uint32_t extra) {
    Gguf f = file_of("glm4moe", 3);
    f.integer("glm4moe.expert_count", 4)
        .integer("glm4moe.expert_used_count", 2)
        .integer("glm4moe.expert_feed_forward_length", 3)
        .integer("glm4moe.nextn_predict_layers", extra)
        .boolean("glm4moe.expert_weights_norm", true)
        .tensor("blk.2.nextn.eh_proj.weight", 0, {8, 8}, floats(64));
    return f;
  };
  const Checkpoint c = open(glm(1));
  EXPECT_EQ(c.config.get<int>("num_hidden_layers"), 2);
  EXPECT_TRUE(c.config.get<bool>("norm_topk_prob"));
  EXPECT_TRUE(c.source->find("model.layers.2.nextn.eh_proj.weight"));
  refuse(glm(3), ErrorKind::bad_checkpoint, {"nextn_predict_layers", "less than 3"});
}

TEST_F(GgufTables, NemotronsLayersAreWhatTheirTensorsSay) {
  const auto file = [](const std::vector<uint32_t>& widths) {
    Gguf f = file_of("nemotron_h", 3);
    f.integer("nemotron_h.attention.key_length", 4)
        .integer("nemotron_h.ssm.conv_kernel", 4)
        .integer("nemotron_h.ssm.state_size", 6)
        .integer("nemotron_h.ssm.group_count", 1)
        .integer("nemotron_h.ssm.time_step_rank", 2)
        .integer("nemotron_h.ssm.inner_size", 12)
        .pair("nemotron_h.attention.head_count_kv", 9, list({0, 1, 0}))
        .pair("nemotron_h.feed_forward_length", 9, list(widths))
        .tensor("blk.0.ssm_in.weight", 0, {8, 4}, floats(32))
        .tensor("blk.0.ssm_d", 0, {1, 2}, floats(2))
        .tensor("blk.1.attn_q.weight", 0, {8, 8}, floats(64))
        .tensor("blk.2.ffn_up.weight", 0, {8, 4}, floats(32));
    return f;
  };
  const Checkpoint c = open(file({0, 0, 40}));
  EXPECT_EQ(c.config.get<std::vector<std::string>>("layers_block_type"),
            (std::vector<std::string>{"mamba", "attention", "mlp"}));
  EXPECT_EQ(c.config.get<int>("mamba_head_dim"), 6);
  EXPECT_EQ(c.config.get<int>("intermediate_size"), 40);
  EXPECT_EQ(c.source->find("backbone.layers.0.mixer.D")->shape, Shape({2}));
  EXPECT_EQ(open(file({0, 0, 0})).config.get<int>("intermediate_size"), 4);  // from the matrix
  refuse(file({0, 40}), ErrorKind::bad_checkpoint, {"nemotron_h.feed_forward_length", "expected 3 integers"});
}

TEST_F(GgufTables, Qwen35TilesItsValueHeads) {
  Gguf f = file_of("qwen35", 2);
  f.integer("qwen35.feed_forward_length", 16)
      .integer("qwen35.ssm.conv_kernel", 4)
      .integer("qwen35.ssm.state_size", 6)
      .integer("qwen35.ssm.group_count", 1)
      .integer("qwen35.ssm.time_step_rank", 2)
      .integer("qwen35.ssm.inner_size", 8)
      .tensor("blk.0.ssm_out.weight", 0, {8, 8}, floats(64))
      .tensor("blk.0.ssm_conv1d.weight", 0, {4, 20}, floats(80));
  const Checkpoint c = open(f);
  EXPECT_TRUE(c.config.get<bool>("linear_value_heads_tiled"));
  EXPECT_EQ(c.config.get<int>("linear_value_head_dim"), 4);
  EXPECT_EQ(c.config.get<std::vector<std::string>>("layer_types"),
            (std::vector<std::string>{"linear_attention", "full_attention"}));
  // Two axes tell the rules that the norms hold their +1.
  EXPECT_EQ(c.source->find("model.layers.0.linear_attn.conv1d.weight")->shape, Shape({20, 4}));
  const Checkpoint predicts = open(f.integer("qwen35.nextn_predict_layers", 1));
  EXPECT_EQ(predicts.config.get<int>("num_hidden_layers"), 1);
  EXPECT_EQ(predicts.config.get<std::vector<std::string>>("layer_types").size(), 1u);
}

TEST_F(GgufTables, Gemma4RotatesPartOfItsFullLayers) {
  const auto file = [](float stop) {
    Gguf f = file_of("gemma4", 2);
    f.integer("gemma4.feed_forward_length", 16)
        .integer("gemma4.attention.sliding_window", 9)
        .integer("gemma4.attention.shared_kv_layers", 0)
        .integer("gemma4.embedding_length_per_layer_input", 0)
        .integer("gemma4.attention.key_length", 8)
        .integer("gemma4.attention.key_length_swa", 4)
        .pair("gemma4.attention.head_count_kv", 9, list({2, 1}))
        .pair("gemma4.attention.sliding_window_pattern", 9, flags({true, false}))
        .number("gemma4.rope.freq_base", 1e6f)
        .number("gemma4.rope.freq_base_swa", 1e4f)
        .tensor("rope_freqs.weight", 0, {4}, raw(1.0f) + raw(stop) + raw(stop) + raw(stop))
        .tensor("blk.0.attn_v.weight", 0, {8, 8}, floats(64));
    return f;
  };
  const Checkpoint c = open(file(1e30f));
  EXPECT_EQ(c.config.child("rope_parameters").child("full_attention").get<float>("partial_rotary_factor"),
            0.25f);
  EXPECT_EQ(c.config.get<int>("head_dim"), 4);
  EXPECT_EQ(c.config.get<int>("global_head_dim"), 8);
  EXPECT_EQ(c.config.child("per_layer_config").child("1").get<int>("num_key_value_heads"), 1);
  EXPECT_TRUE(c.config.get<bool>("attention_k_eq_v"));  // layer 1 holds no values
  refuse(file(2.0f), ErrorKind::unsupported, {"rope_freqs.weight"});
}

TEST_F(GgufTables, JambasLayersStandAtAPeriod) {
  const auto file = [](const std::vector<int>& attends) {
    Gguf f = file_of("jamba", 6);
    f.integer("jamba.feed_forward_length", 16)
        .integer("jamba.ssm.conv_kernel", 4)
        .integer("jamba.ssm.state_size", 6)
        .integer("jamba.ssm.time_step_rank", 2)
        .integer("jamba.ssm.inner_size", 16);
    for (const int i : attends)
      f.tensor("blk." + std::to_string(i) + ".attn_q.weight", 0, {8, 8}, floats(64));
    return f;
  };
  const Checkpoint c = open(file({1, 4}));
  EXPECT_EQ(c.config.get<int>("attn_layer_offset"), 1);
  EXPECT_EQ(c.config.get<int>("attn_layer_period"), 3);
  EXPECT_EQ(c.config.get<int>("mamba_expand"), 2);
  refuse(file({1, 2, 5}), ErrorKind::unsupported, {"attn_layer_period", "fixed period"});
}

TEST_F(GgufTables, Llama4WithoutWindowsRotatesEveryLayer) {
  const auto file = [](uint32_t experts, bool windows) {
    Gguf f = file_of("llama4", 2);
    f.integer("llama4.feed_forward_length", 24)
        .integer("llama4.expert_feed_forward_length", 12)
        .integer("llama4.expert_count", experts)
        .integer("llama4.expert_used_count", 1)
        .tensor("blk.1.ffn_gate_inp.weight", 0, {8, 16}, floats(128))
        .tensor("blk.1.ffn_up_shexp.weight", 0, {8, 12}, floats(96));
    if (!windows) f.integer("llama4.attention.sliding_window", 0);
    return f;
  };
  const Checkpoint c = open(file(16, true));
  EXPECT_EQ(c.config.get<int>("intermediate_size_mlp"), 24);
  EXPECT_EQ(c.config.get<int>("intermediate_size"), 12);
  EXPECT_EQ(c.config.get<std::vector<int>>("moe_layers"), std::vector<int>({1}));
  EXPECT_TRUE(c.config.get<bool>("use_qk_norm"));
  EXPECT_FALSE(c.config.has("no_rope_layers"));
  EXPECT_TRUE(c.source->find("model.layers.1.feed_forward.shared_expert.up_proj.weight"));
  EXPECT_TRUE(c.source->find("model.layers.1.feed_forward.router.weight"));
  const Checkpoint all = open(file(128, false));
  EXPECT_FALSE(all.config.get<bool>("use_qk_norm"));
  EXPECT_TRUE(all.config.is_null("attention_chunk_size"));
  EXPECT_EQ(all.config.get<std::vector<int>>("no_rope_layers"), std::vector<int>({1, 1}));
}

TEST_F(GgufTables, CommandsDensePrefixHasAWidthOfItsOwn) {
  const auto file = [](bool scaled) {
    Gguf f = file_of("cohere2moe", 3);
    f.integer("cohere2moe.feed_forward_length", 24)
        .integer("cohere2moe.expert_feed_forward_length", 12)
        .integer("cohere2moe.expert_count", 4)
        .integer("cohere2moe.expert_used_count", 2)
        .integer("cohere2moe.expert_gating_func", 1)
        .integer("cohere2moe.leading_dense_block_count", 1)
        .integer("cohere2moe.nextn_predict_layers", 1)
        .integer("cohere2moe.attention.sliding_window", 7)
        .pair("cohere2moe.attention.sliding_window_pattern", 9, flags({false, true, false}))
        .tensor("blk.2.nextn.eh_proj.weight", 0, {8, 8}, floats(64));
    if (scaled) f.number("cohere2moe.logit_scale", 0.25f);
    return f;
  };
  const Checkpoint c = open(file(true));
  EXPECT_EQ(c.config.get<int>("num_hidden_layers"), 2);
  EXPECT_EQ(c.config.get<int>("prefix_dense_intermediate_size"), 24);
  EXPECT_EQ(c.config.get<int>("intermediate_size"), 12);
  EXPECT_EQ(c.config.get<std::string>("expert_selection_fn"), "softmax");
  EXPECT_EQ(c.config.get<std::vector<std::string>>("layer_types"),
            (std::vector<std::string>{"full_attention", "sliding_attention"}));
  refuse(file(false), ErrorKind::bad_checkpoint, {"cohere2moe.logit_scale"});
}

TEST_F(GgufTables, ListsOfTheMetadataAreTensors) {
  const auto file = [](int count) {
    Gguf f = file_of("apertus", 2);
    std::string numbers = raw<uint32_t>(6) + raw<uint64_t>(static_cast<uint64_t>(count));
    for (int i = 0; i < count; ++i) numbers += raw(0.5f + static_cast<float>(i));
    f.integer("apertus.feed_forward_length", 16).pair("xielu.alpha_p", 9, numbers);
    return f;
  };
  const Checkpoint c = open(file(2));
  const std::string name = "model.layers.1.mlp.act_fn.alpha_p";
  ASSERT_TRUE(c.source->find(name));
  EXPECT_EQ(c.source->find(name)->shape, Shape({1}));
  EXPECT_EQ(c.source->load(name).data.data<float>()[0], 1.5f);
  EXPECT_FALSE(c.source->find("model.layers.2.mlp.act_fn.alpha_p"));
  refuse(file(3), ErrorKind::bad_checkpoint, {"xielu.alpha_p", "each of 2 layers"});
}

TEST_F(GgufTables, HeadsMayDifferBetweenLayers) {
  const auto file = [](const std::vector<uint32_t>& heads) {
    Gguf f;
    f.string("general.architecture", "openelm")
        .integer("openelm.block_count", 2)
        .integer("openelm.context_length", 64)
        .integer("openelm.embedding_length", 8)
        .integer("openelm.attention.key_length", 4)
        .number("openelm.attention.layer_norm_rms_epsilon", 1e-6f)
        .pair("openelm.attention.head_count", 9, list(heads))
        .pair("openelm.attention.head_count_kv", 9, list({1, 2}))
        .pair("openelm.feed_forward_length", 9, list({12, 20}))
        .tensor("token_embd.weight", 0, {8, 16}, floats(128));
    return f;
  };
  const Checkpoint c = open(file({2, 6}));
  EXPECT_EQ(c.config.get<std::vector<int>>("num_query_heads"), std::vector<int>({2, 6}));
  EXPECT_EQ(c.config.get<std::vector<float>>("ffn_multipliers"), std::vector<float>({1.5f, 2.5f}));
  EXPECT_TRUE(c.config.get<bool>("share_input_output_layers"));
  refuse(file({2}), ErrorKind::bad_checkpoint, {"openelm.attention.head_count", "expected 2 integers"});
}

TEST_F(GgufTables, StepsFullLayersHaveHeadsOfTheirOwn) {
  const auto file = [](const std::vector<bool>& sliding) {
    Gguf f;
    f.string("general.architecture", "step35")
        .integer("step35.block_count", 2)
        .integer("step35.context_length", 64)
        .integer("step35.embedding_length", 8)
        .integer("step35.attention.key_length", 4)
        .integer("step35.attention.sliding_window", 7)
        .integer("step35.expert_count", 4)
        .integer("step35.expert_used_count", 2)
        .integer("step35.expert_feed_forward_length", 3)
        .integer("step35.expert_shared_feed_forward_length", 3)
        .number("step35.attention.layer_norm_rms_epsilon", 1e-6f)
        .number("step35.rope.freq_base", 5e6f)
        .number("step35.rope.freq_base_swa", 1e4f)
        .pair("step35.attention.head_count", 9, list({6, 4}))
        .pair("step35.attention.head_count_kv", 9, list({2, 1}))
        .pair("step35.attention.sliding_window_pattern", 9, flags(sliding))
        .tensor("token_embd.weight", 0, {8, 16}, floats(128))
        .tensor("blk.1.ffn_gate_inp.weight", 0, {8, 4}, floats(32));
    return f;
  };
  const Checkpoint c = open(file({false, true}));
  EXPECT_EQ(c.config.get<int>("num_attention_heads"), 6);
  EXPECT_EQ(c.config.child("attention_other_setting").get<int>("num_attention_groups"), 1);
  EXPECT_EQ(c.config.get<std::string>("moe_layers_enum"), "1");
  EXPECT_EQ(c.config.get<std::vector<float>>("rope_theta"), std::vector<float>({5e6f, 1e4f}));
  EXPECT_TRUE(c.source->find("model.layers.1.mlp.gate.gate.weight"));
  refuse(file({true, true}), ErrorKind::bad_checkpoint, {"no layer has full attention"});
  refuse(file({true}), ErrorKind::bad_checkpoint, {"sliding_window_pattern", "each of 2 layers"});
}

TEST_F(GgufTables, LayersHaveALimit) {
  refuse(file_of("llama4", 2'000'000'000), ErrorKind::bad_checkpoint, {"llama4.block_count", "2000000000"});
}

TEST_F(GgufTables, KimisDeltaLayersKeepNoKeys) {
  const auto file = [](bool taps) {
    Gguf f = file_of("kimi-linear", 3);
    f.integer("kimi-linear.feed_forward_length", 24)
        .integer("kimi-linear.attention.kv_lora_rank", 6)
        .integer("kimi-linear.rope.dimension_count", 4)
        .integer("kimi-linear.attention.key_length_mla", 10)
        .integer("kimi-linear.attention.value_length_mla", 5)
        .integer("kimi-linear.expert_count", 4)
        .integer("kimi-linear.expert_used_count", 2)
        .integer("kimi-linear.expert_feed_forward_length", 3)
        .integer("kimi-linear.kda.head_dim", 4)
        .pair("kimi-linear.attention.head_count_kv", 9, list({0, 1, 0}))
        .tensor("blk.0.ssm_beta.weight", 0, {8, 5}, floats(40))
        .tensor("blk.0.ssm_a", 0, {1, 5}, raw(-1.0f) + raw(-2.0f) + raw(-1.0f) + raw(-1.0f) + raw(-1.0f));
    if (taps) f.integer("kimi-linear.ssm.conv_kernel", 4);
    return f;
  };
  const Checkpoint c = open(file(true));
  const Config delta = c.config.child("linear_attn_config");
  EXPECT_EQ(delta.get<std::vector<int>>("full_attn_layers"), std::vector<int>({2}));
  EXPECT_EQ(delta.get<int>("num_heads"), 5);
  EXPECT_EQ(delta.get<int>("short_conv_kernel_size"), 4);
  EXPECT_TRUE(c.source->find("model.layers.0.self_attn.b_proj.weight"));
  EXPECT_FLOAT_EQ(c.source->load("model.layers.0.self_attn.A_log").data.data<float>()[1], std::log(2.0f));
  refuse(file(false), ErrorKind::bad_checkpoint, {"ssm.conv_kernel"});
}

TEST_F(GgufTables, DbrxConfigsAreNested) {
  Gguf f = file_of("dbrx", 1);
  f.integer("dbrx.feed_forward_length", 12)
      .integer("dbrx.expert_count", 4)
      .integer("dbrx.expert_used_count", 2)
      .integer("dbrx.attention.head_count_kv", 1)
      .number("dbrx.attention.clamp_kqv", 8.0f)
      .tensor("blk.0.attn_output_norm.weight", 0, {8}, floats(8));
  const Checkpoint c = open(f);
  EXPECT_EQ(c.config.get<int>("n_layers"), 1);
  EXPECT_EQ(c.config.child("attn_config").get<int>("kv_n_heads"), 1);
  EXPECT_EQ(c.config.child("attn_config").get<float>("clip_qkv"), 8.0f);
  EXPECT_EQ(c.config.child("ffn_config").get<int>("moe_top_k"), 2);
  EXPECT_TRUE(c.source->find("model.layers.0.norm_attn_norm.norm_2.weight"));
}

}  // namespace
}  // namespace mlxcel
