// Deliberate faults, each in the parts of a family that has them: every one must move log-probabilities (of
// encoders: hidden states) by more than the goldens' widest tolerance. Self-consistency never sees a wrong
// scale; this proves that a comparison with right numbers does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "network.h"
#include "nn/fault.h"

namespace mlxcel {

namespace {
std::string_view in_force;
}
std::string_view current_fault() { return in_force; }

namespace archtest {
namespace {

constexpr float kWidestTolerance = 5e-3f;

struct Mutant {
  const char* fault;
  std::vector<std::string> families;  // all of those that have such a part
};

using Families = std::vector<std::string>;

Families joined(Families a, const Families& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Families that between them use every option of the shared parts; the goldens hold each family to its
// reference with mutants of its own config.
const Families kGated = {"llama", "qwen2", "qwen3", "qwen3_moe", "gemma3_text",
                         "phi3",  "glm4",  "olmo2", "cohere2"};
const Families kRotated = joined(kGated, {"qwen3_5", "lfm2", "gpt_neox"});
const Families kDecoders = joined(kGated, {"starcoder2", "gpt_neox", "gpt2", "gpt_bigcode"});
const Families kWindowed = {"modernbert", "llama",  "qwen2",   "gemma3_text",
                            "phi3",       "gemma2", "smollm3", "cohere2"};
const Families kSparse = {"gpt_oss",     "mixtral",      "qwen2_moe", "deepseek_v2",
                          "deepseek_v3", "ernie4_5_moe", "klear",     "longcat_flash"};
const Families kLatent = {"deepseek_v2", "deepseek_v3", "youtu_llm"};

const std::vector<Mutant>& mutants() {
  static const std::vector<Mutant> list = {
      {"rope left out", kRotated},
      {"rope backwards", kRotated},
      {"rope pairs the other way", kRotated},
      {"rope left out", {"helium", "lille_130m", "telechat3"}},
      {"embedding scale dropped", {"recurrent_gemma"}},
      {"residual dropped", {"recurrent_gemma", "rwkv7"}},
      {"layer norm bias dropped", {"rwkv7"}},
      {"rope ignores length", {"phi3"}},
      {"window ignored", kWindowed},
      {"window one too wide", kWindowed},
      {"window one too narrow", kWindowed},
      {"chunk ignored", {"llama4_text"}},
      {"score scale dropped", joined(kDecoders, {"bert"})},
      {"query heads reversed", kDecoders},
      {"kv heads not tiled", {"plamo"}},
      {"query temperature dropped", {"ministral3", "llama4_text"}},
      {"clip dropped", {"olmo"}},
      {"norm before the output left out", {"bitnet"}},
      {"qk norm left out",
       {"qwen3", "qwen3_5", "lfm2", "qwen3_moe", "gemma3_text", "olmo2", "olmo3", "cohere", "stablelm",
        "exaone4", "hunyuan_v1_dense", "openelm", "apertus", "nanochat", "llama4_text"}},
      {"qk norm on the other side of rope", {"hunyuan_v1_dense", "olmo2", "cohere"}},
      {"bias dropped",
       {"llama",    "qwen2",    "gpt2",      "bert",      "mamba2",     "gemma",    "smollm3",     "glm",
        "glm4",     "olmo",     "cohere",    "exaone",    "starcoder2", "gpt_neox", "gpt_bigcode", "phi",
        "seed_oss", "ernie4_5", "internlm2", "internlm3", "qwen",       "nemotron", "nemotron_nas"}},
      {"residual dropped",
       {"llama", "qwen2", "qwen3", "qwen3_moe", "gpt2", "bert", "mamba2", "phi3", "gemma", "smollm3",
        "apertus", "bitnet", "nemotron_nas", "openelm"}},
      {"residual scale dropped", {"granite", "minicpm"}},
      {"parallel branches in a row", {"cohere", "cohere2", "stablelm", "gpt_neox", "phi", "plamo"}},
      {"gate and up swapped", joined(kGated, {"qwen3_5", "lfm2"})},
      {"activation of another kind",
       joined(kGated, {"gpt2", "starcoder2", "gpt_bigcode", "nemotron", "nanochat"})},
      {"norm eps dropped", {"llama", "nanochat"}},
      {"norm offset dropped", {"gemma3_text", "gemma", "gemma2"}},
      {"norm after sublayer left out", {"gemma3_text", "gemma2", "glm4", "olmo2", "olmo3", "exaone4"}},
      {"embedding scale dropped", {"gemma3_text", "gemma", "gemma2", "granite", "minicpm"}},
      {"embedding norm left out", {"nanochat"}},
      {"logit scale dropped", {"minicpm", "cohere", "cohere2"}},
      {"logit cap dropped", {"gemma2", "nanochat"}},
      {"layer norm bias dropped", {"gpt2", "bert", "starcoder2", "stablelm", "gpt_neox", "phi", "nemotron"}},
      {"layer norm as rms norm", {"gpt2", "bert", "olmo", "cohere", "starcoder2", "stablelm", "gpt_neox"}},
      {"learned positions shifted", {"gpt2", "bert", "gpt_bigcode"}},
      {"rope left out", kSparse},
      {"score scale dropped", kSparse},
      {"correction bias dropped",
       {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "dots1", "solar_open", "exaone_moe", "bailing_moe",
        "ernie4_5_moe", "klear", "longcat_flash"}},
      {"routed scale dropped",
       {"deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "dots1", "solar_open", "exaone_moe",
        "bailing_moe", "longcat_flash"}},
      {"expert groups ignored",
       {"deepseek_v2", "deepseek_v3", "glm4_moe", "dots1", "solar_open", "exaone_moe", "bailing_moe"}},
      {"shared experts dropped",
       {"qwen2_moe", "deepseek", "deepseek_v2", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "dots1",
        "solar_open", "exaone_moe", "bailing_moe", "ernie4_5_moe", "klear"}},
      {"expert weights dropped", kSparse},
      {"expert weights renormalised wrongly", {"qwen2_moe", "mellum", "glm4_moe", "klear", "deepseek_v2"}},
      {"expert bias dropped", {"gpt_oss"}},
      {"clamp left out", {"gpt_oss"}},
      {"zero experts dropped", {"longcat_flash"}},
      {"mscale dropped", {"deepseek_v2", "deepseek_v3"}},
      {"rope left out", kLatent},
      {"rope pairs the other way", kLatent},
      {"score scale dropped", kLatent},
      {"window ignored", {"gpt_oss", "mixtral", "qwen2_moe", "dots1", "exaone_moe", "mellum"}},
      {"expert weights renormalised wrongly", {"qwen3_moe"}},
      {"expert weights dropped", {"qwen3_moe"}},
      {"gated norm over the full width", {"mamba2", "falcon_h1", "granitemoehybrid", "nemotron_h"}},
      {"norms of the scan left out", {"mamba", "jamba"}},
      {"gate of the scan left out", {"mamba", "jamba"}},
      {"multipliers dropped", {"falcon_h1"}},
      {"value norm left out", {"gemma4_text", "gemma3n"}},
      {"per layer table left out", {"gemma4_text", "gemma3n"}},
      {"residual scale dropped", {"granitemoehybrid"}},
      {"logit scale dropped", {"granitemoehybrid", "falcon_h1"}},
      {"expert scale dropped", {"gemma4_text"}},
      {"memory never fades",
       {"qwen3_5", "kimi_linear", "bailing_moe_linear", "qwen3_next", "recurrent_gemma", "rwkv7"}},
      {"delta rule without beta", {"qwen3_5"}},
      {"delta rule without correction", {"qwen3_5", "kimi_linear", "qwen3_next", "rwkv7"}},
      {"output gate left out",
       {"qwen3_5", "kimi_linear", "bailing_moe_linear", "qwen3_next", "recurrent_gemma"}},
      {"first values dropped", {"rwkv7"}},
      {"layer scalar dropped", {"gemma4_text"}},
      {"sparsity ignored", {"gemma3n"}},
      {"bias dropped", {"granite"}},
      {"logit scale dropped", {"granite"}},
      {"rope left out", {"granite"}},
      {"activation of another kind", {"gpt_neox"}},
      {"gates of the convolution swapped", {"lfm2"}},
      {"value scale dropped", {"mimo_v2_flash"}},
      {"clip dropped", {"dbrx"}},
      {"expert output weighed", {"llama4"}},
      {"clamp left out", {"step3p5"}},
      {"output gate dropped", {"step3p5"}},
      {"routed scale dropped", {"step3p5"}},
      {"sinks dropped", {"mimo_v2_flash"}},
      {"window ignored", {"mimo_v2_flash", "cohere2_moe"}},
      {"qk norm on the other side of rope", {"hunyuan_v1_moe"}},
      {"shared experts dropped", {"hunyuan_v1_moe", "cohere2_moe", "mistral4"}},
      {"query temperature dropped", {"mistral4"}},
      {"mscale dropped", {"mistral4"}},
      {"expert groups ignored", {"mistral4", "mimo_v2_flash"}},
      {"expert weights dropped", {"phimoe", "cohere2_moe"}},
      {"correction bias dropped",
       {"afmoe", "laguna", "minimax", "minimax_m3", "deepseek_v32", "glm_moe_dsa"}},
      {"choice of keys ignored", {"deepseek_v32", "glm_moe_dsa", "minimax_m3"}},
      {"index keys not rotated", {"deepseek_v32", "glm_moe_dsa", "minimax_m3"}},
      {"one key fewer chosen", {"deepseek_v32", "glm_moe_dsa"}},
      {"local blocks not kept", {"minimax_m3"}},
      {"routed scale dropped", {"afmoe", "laguna"}},
      {"shared experts dropped", {"afmoe", "laguna", "llama4"}},
      {"expert weights dropped", {"olmoe", "granitemoe", "minimax", "llama4"}},
      {"residual scale dropped", {"granitemoe", "minicpm3"}},
      {"embedding scale dropped", {"minicpm3", "afmoe", "granitemoe"}},
      {"logit scale dropped", {"granitemoe", "minicpm3"}},
      {"qk norm left out", {"olmoe", "minimax", "afmoe", "laguna", "llama4"}},
      {"output gate dropped", {"afmoe", "laguna", "muse_glimmer"}},
      {"earlier tokens ignored", {"longcat_flash_ngram"}},
      {"embedding norm left out", {"muse_glimmer"}},
      {"logit scale dropped", {"muse_glimmer"}},
      {"logit cap dropped", {"muse_glimmer"}},
      {"window ignored", {"afmoe", "laguna"}},
      {"chunk ignored", {"llama4"}},
      {"blocks seen one way", {"llada2_moe"}},
      {"residual mix left out", {"kimi_k3"}},
      {"latent norm left out", {"kimi_k3"}},
      {"output gate left out", {"kimi_k3"}},
      {"memory never fades", {"kimi_k3"}},
      {"query temperature dropped", {"llama4"}},
      {"token before left out", {"baichuan_m1"}},
      {"steps of keys and values dropped", {"afm7"}},
      {"own keys of the second pass left out", {"iquestloopcoder"}},
      {"layer norm bias dropped", {"phi3small"}},  // its golden's own mutants change the pattern of blocks
      {"distances not weighed", {"inkling"}},
      {"earlier tokens ignored", {"inkling"}},
      {"query temperature dropped", {"inkling"}},
      {"shared experts dropped", {"inkling"}},
      {"correction bias dropped", {"inkling"}},
      {"window ignored", {"inkling"}},
      {"embedding norm left out", {"inkling"}},
      {"window one too wide", {"baichuan_m1", "iquestloopcoder"}},
      {"rope left out", {"phixtral", "plamo2"}},
      {"expert weights dropped", {"phixtral"}},
      {"expert bias dropped", {"phixtral"}},
      {"window ignored", {"plamo2", "deepseek_v4"}},
      {"window one too narrow", {"plamo2"}},
      {"qk norm left out", {"plamo2", "deepseek_v4"}},
      {"norms of the scan left out", {"plamo2"}},
      {"gate of the scan left out", {"plamo2"}},
      {"choice of keys ignored", {"deepseek_v4"}},
      {"tail not rotated", {"deepseek_v4"}},
      {"answers not turned back", {"deepseek_v4"}},
      {"run before left out", {"deepseek_v4"}},
      {"pooled keys left out", {"deepseek_v4"}},
      {"sinks dropped", {"deepseek_v4"}},
      {"streams not balanced", {"deepseek_v4"}},
      {"experts of tokens ignored", {"deepseek_v4"}},
      {"correction bias dropped", {"deepseek_v4"}},
      {"shared experts dropped", {"deepseek_v4"}},
      {"layer scalar dropped", {"diffusion_gemma"}},
      {"qk norm left out", {"hunyuan"}},
      {"shared experts dropped", {"hunyuan"}},
      {"rope left out", {"hunyuan"}},
      {"expert scale dropped", {"diffusion_gemma"}},
      {"value norm left out", {"diffusion_gemma"}},
      {"rope left out", {"mllama", "molmo"}},
      {"bias dropped", {"molmo"}},
      {"qk norm left out", {"molmo"}},
      {"rope left out", {"falcon_ocr", "jina_vlm", "moondream", "unlimited_ocr"}},
      {"qk norm left out", {"falcon_ocr", "jina_vlm"}},
      {"expert weights dropped", {"moondream"}},
      {"bias dropped", {"moondream"}},
      {"shared experts dropped", {"unlimited_ocr"}},
  };
  return list;
}

class MutantTest : public ::testing::TestWithParam<size_t> {};

TEST_P(MutantTest, is_caught) {
  const Mutant& mutant = mutants()[GetParam()];
  int tried = 0;
  for (const NamedArch& entry : arch_table()) {
    if (std::find(mutant.families.begin(), mutant.families.end(), entry.family) == mutant.families.end())
      continue;
    ++tried;
    const auto answers = [&](std::string_view fault) {
      in_force = fault;  // some faults act while a model is built, others while it runs
      const auto model = build_model(tiny_config(entry), tiny_source(entry));
      Rows rows = run(*model, some_tokens(model->info().vocab_size, 40));
      in_force = {};
      return std::pair(std::move(rows), model->info().encoder);
    };
    const auto [right, encoder] = answers("");
    const auto [wrong, same] = answers(mutant.fault);
    const float moved = encoder ? distance(right, wrong) : log_distance(right, wrong);
    EXPECT_GT(moved, 4 * kWidestTolerance) << entry.family << ": \"" << mutant.fault << "\" goes unseen";
  }
  if (tried == 0) GTEST_SKIP() << "no architecture has this part yet";
}

std::vector<size_t> indices() {
  std::vector<size_t> list;
  for (size_t i = 0; i < mutants().size(); ++i) list.push_back(i);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Each, MutantTest, ::testing::ValuesIn(indices()), [](const auto& parameter) {
  std::string name = fmt::format("{}_{}", mutants()[parameter.param].fault, parameter.param);
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(Mutants, no_fault_is_no_difference) {
  for (const NamedArch& entry : arch_table()) {
    const auto once = build_model(tiny_config(entry), tiny_source(entry));
    const auto twice = build_model(tiny_config(entry), tiny_source(entry));
    const Tokens tokens = some_tokens(once->info().vocab_size, 20);
    EXPECT_EQ(run(*once, tokens), run(*twice, tokens)) << entry.family;
  }
}

/// Text sides of models with towers: another family builds them.
bool is_wrapper(const std::string& family) {
  static const std::set<std::string> wrappers = {
      "deepseek_vl_v2",  "granite4_vision", "hunyuan_vl",  "minicpmo",       "minicpmv4_6",
      "paddleocr_vl",    "llava_bunny",     "mage_vl",     "locateanything", "nemotron_h_nano_omni",
      "ernie4_5_moe_vl", "step3p7",         "youtu_vl",    "cohere2_vision", "gemma3",
      "glm4v",           "glm4v_moe",       "idefics3",    "internvl",       "kimi_k25",
      "llava_next",      "llava_qwen2",     "mistral3",    "phi3_v",         "qwen2_vl",
      "qwen3_omni_moe",  "qwen3_vl",        "qwen3_vl_moe"};
  return wrappers.contains(family);
}

TEST(Mutants, every_architecture_has_several) {
  for (const NamedArch& entry : arch_table()) {
    if (is_wrapper(entry.family)) continue;
    const auto count = std::count_if(mutants().begin(), mutants().end(), [&](const Mutant& mutant) {
      return std::find(mutant.families.begin(), mutant.families.end(), entry.family) != mutant.families.end();
    });
    EXPECT_GE(count, 1) << entry.family << " is in no mutant's list";
  }
}

}  // namespace
}  // namespace archtest
}  // namespace mlxcel
