// The weights against the configuration.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <map>

#include "app/doctor.h"
#include "app/estimate.h"
#include "app/terminal.h"
#include "base/error.h"
#include "checkpoint/formats/quant_map.h"
#include "checkpoint/text_config.h"
#include "checkpoint/values.h"
#include "tensor/external.h"

namespace mlxcel::app {
namespace {

/// The embedding's name, whatever prefix the checkpoint has.
std::string embedding_name(const Source& source) {
  for (const std::string& name : source.names())
    if (name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight")) return name;
  return "";
}
std::string head_name(const Source& source) {
  for (const std::string& name : source.names())
    if (name == "lm_head.weight" || name.ends_with(".lm_head.weight")) return name;
  return "";
}

void examine_head(const Checkpoint& checkpoint, bool deep, Report& report) {
  const Config text = text_config(checkpoint.config);
  const char* key = "tie_word_embeddings";
  const std::string head = head_name(*checkpoint.source), embedding = embedding_name(*checkpoint.source);
  const bool says = text.has(key) || checkpoint.config.has(key);
  const bool tied = text.get(key, checkpoint.config.get(key, false));
  if (embedding.empty()) return report.ok("tied-head", "the model has no token embedding to tie");
  if (head.empty() && says && !tied)
    return report.warn("tied-head",
                       "the configuration says that the head is not tied, but there is none: the embedding "
                       "serves as head. If answers are nonsense, a shard is missing",
                       key);
  if (head.empty()) return report.ok("tied-head", "the embedding is the head");
  if (!tied) return report.ok("tied-head", "a head of its own", head);
  if (!deep)
    return report.warn("tied-head",
                       "the configuration ties the head to the embedding, yet the files hold a head: the "
                       "embedding is used. --deep tells whether the two differ",
                       head);
  const Weight a = checkpoint.source->load(head), b = checkpoint.source->load(embedding);
  const bool same = a.shape == b.shape && [&] {
    const array x = float_values(a), y = float_values(b);
    return std::memcmp(mlxcel::bytes_of(x), mlxcel::bytes_of(y), x.nbytes()) == 0;
  }();
  if (same)
    return report.ok("tied-head", "a copy of the embedding lies beside it; harmless, takes space", head);
  report.warn("tied-head",
              "differs from the embedding, which is used as head (tie_word_embeddings): answers follow the "
              "embedding. If the head was trained, set tie_word_embeddings to false",
              head);
}

void examine_bits(const Checkpoint& checkpoint, Report& report) {
  std::map<std::string, std::vector<std::string>> forms;
  std::map<std::string, size_t> bytes;
  for (const std::string& name : checkpoint.source->names()) {
    const auto info = checkpoint.source->find(name);
    if (!info || info->shape.size() < 2) continue;
    forms[info->stored_as].push_back(name);
    bytes[info->stored_as] += info->bytes;
  }
  for (const std::string& warning : checkpoint.warnings)
    if (warning.find("quantisation map") != std::string::npos)
      report.warn(
          "bits",
          warning + "; the weights are read as the shapes say. Correct config.json for other programs");
  std::string usual;
  for (const auto& [form, size] : bytes)
    if (usual.empty() || size > bytes[usual]) usual = form;
  std::string text = fmt::format("{} matrices as {}", forms[usual].size(), usual);
  for (const auto& [form, names] : forms)
    if (form != usual) text += fmt::format("; {} as {} ({})", names.size(), form, listed(names));
  report.settle("bits", text);
}

std::vector<int> eos_of(const Config& config) {
  if (!config.has("eos_token_id")) return {};
  if (config.is_array("eos_token_id")) return config.get<std::vector<int>>("eos_token_id");
  const int id = config.integer("eos_token_id", -1, 1 << 30);
  return id < 0 ? std::vector<int>{} : std::vector<int>{id};
}

void examine_eos(const Checkpoint& checkpoint, int vocab, Report& report) {
  std::vector<std::string> sources;
  const auto add = [&](const char* from, const std::vector<int>& ids) {
    if (!ids.empty()) sources.push_back(fmt::format("{} {}", from, fmt::join(ids, ", ")));
  };
  if (checkpoint.format == Checkpoint::Format::gguf) {
    add("GGUF keys:", checkpoint.eos_ids);
  } else {
    add("generation_config:", eos_of(checkpoint.generation_config));
    add("config:", eos_of(checkpoint.config));
    if (checkpoint.config.is_object("text_config"))
      add("text_config:", eos_of(checkpoint.config.child("text_config")));
  }
  if (checkpoint.eos_ids.empty())
    report.warn(
        "eos",
        "neither configuration names an end token: only the tokenizer's own ends an answer; without one, "
        "answers run to the limit. Add eos_token_id to generation_config.json");
  for (const int id : checkpoint.eos_ids)
    if (vocab > 0 && id >= vocab)
      report.warn(
          "eos", fmt::format(
                     "{} lies outside the vocabulary of {}: it can never come; the file is of another model?",
                     id, vocab));
  report.settle(
      "eos", fmt::format("ends at {} ({})", fmt::join(checkpoint.eos_ids, ", "), fmt::join(sources, "; ")));
}

void examine_rope(const Checkpoint& checkpoint, Report& report) {
  const Config text = text_config(checkpoint.config);
  const Config parameters = text.child("rope_parameters");
  const Config block = parameters.empty() ? text.child("rope_scaling") : parameters;
  const int window =
      text.has("max_position_embeddings") ? text.integer("max_position_embeddings", 1, 1 << 30, 0) : 0;
  if (block.empty())
    return report.ok(
        "rope", fmt::format("no scaling ({})", text.has("rope_theta")
                                                   ? fmt::format("theta {:g}", text.get<float>("rope_theta"))
                                                   : std::string("theta by default")));
  if (block.has("full_attention") || block.has("sliding_attention"))
    return report.ok("rope", "one rotation for each layer type", "rope_parameters");
  const std::string type =
      block.get<std::string>("rope_type", block.get<std::string>("type", std::string("default")));
  if (block.has("rope_type") && block.has("type") &&
      block.get<std::string>("rope_type") != block.get<std::string>("type"))
    report.warn(
        "rope",
        fmt::format("rope_type says {}, type says {}: the first counts here, other programs may differ. "
                    "Remove one",
                    type, block.get<std::string>("type")),
        "rope_scaling");
  if (block.has("factor")) {
    const float factor = block.get<float>("factor");
    const int original = block.has("original_max_position_embeddings")
                             ? block.integer("original_max_position_embeddings", 1, 1 << 30)
                             : 0;
    if (factor < 1)
      report.warn("rope", fmt::format("factor {} shrinks the window instead of stretching it", factor),
                  "rope_scaling.factor");
    else if (original > 0 && window > 0 && type == "yarn" &&
             std::abs(original * factor - window) > 0.51 * window)
      report.warn(
          "rope",
          fmt::format(
              "{} x {} is {:.0f}, the window is {}: long prompts may lose their thread; compare with the "
              "original configuration",
              original, factor, original * factor, window),
          "rope_scaling.factor");
  }
  report.settle("rope",
                fmt::format("{} scaling{}", type, window > 0 ? fmt::format(", window {}", window) : ""));
}

void examine_window(const Checkpoint& checkpoint, Report& report) {
  const Config text = text_config(checkpoint.config);
  const int layers = text.has("num_hidden_layers") ? text.integer("num_hidden_layers", 0, 1 << 20) : 0;
  const int window = text.has("sliding_window") ? text.integer("sliding_window", 0, 1 << 30, 0) : 0;
  if (!text.is_array("layer_types"))
    return report.ok(
        "window", window > 0 ? fmt::format("sliding window of {}; which layers, the family decides", window)
                             : std::string("every layer sees everything"));
  const auto types = text.get<std::vector<std::string>>("layer_types");
  if (static_cast<int>(types.size()) != layers)
    report.fail(
        "window",
        fmt::format("{} entries for {} layers: which layer sees what is unknown and loading stops; fetch the "
                    "configuration again",
                    types.size(), layers),
        "layer_types");
  std::map<std::string, int> counts;
  for (const std::string& type : types) ++counts[type];
  if (counts.contains("sliding_attention") && window == 0)
    report.fail("window", "there are sliding layers but no sliding_window", "layer_types");
  std::vector<std::string> parts;
  for (const auto& [type, count] : counts) parts.push_back(fmt::format("{} {}", count, type));
  report.settle("window", fmt::format("{}{}", fmt::join(parts, ", "),
                                      window > 0 ? fmt::format(", window {}", window) : ""));
}

void examine_values(const Checkpoint& checkpoint, Report& report) {
  size_t tensors = 0;
  for (const std::string& name : checkpoint.source->names()) {
    const auto info = checkpoint.source->find(name);
    if (!info->format && info->dtype != mx::float32 && info->dtype != mx::float16 &&
        info->dtype != mx::bfloat16)
      continue;
    const array values = float_values(checkpoint.source->load(name));
    size_t nan = 0, inf = 0, zero = 0;
    const float* data = values.data<float>();
    for (size_t i = 0; i < values.size(); ++i) {
      nan += std::isnan(data[i]);
      inf += std::isinf(data[i]);
      zero += data[i] == 0.0f;
    }
    ++tensors;
    if (nan > 0)
      report.fail("names",
                  fmt::format("{} of {} values are NaN: every answer will fail; the export went wrong", nan,
                              values.size()),
                  name);
    if (inf > 0)
      report.fail("names",
                  fmt::format("{} of {} values are infinite: answers will fail; the export went wrong", inf,
                              values.size()),
                  name);
    if (zero == values.size() && values.size() > 0 && !name.ends_with("bias"))
      report.warn("names",
                  "is all zero: the layer does nothing. Intended (pruned), or a shard that never arrived",
                  name);
  }
  report.settle("names", fmt::format("{} tensors read, all finite", tensors));
}

}  // namespace

void examine_model(const Checkpoint& checkpoint, bool deep, Report& report) {
  int vocab = 0;
  try {
    const ModelPlan plan = plan_model(checkpoint.config, checkpoint.source);
    vocab = plan.info.vocab_size;
    report.ok("names", fmt::format("{} tensors, each one asked for, none missing ({})", plan.tensors.size(),
                                   plan.info.family));
    const int tokens = plan.info.max_positions > 0 ? std::min(plan.info.max_positions, 4096) : 4096;
    const Estimate e =
        estimate_memory(plan, checkpoint.config, "fp16", static_cast<std::uintmax_t>(tokens), 1, 2048);
    const std::string text =
        fmt::format("{} at {} tokens, {} available", human_bytes(e.total), tokens, human_bytes(e.budget));
    if (e.fits) report.ok("memory", text);
    if (!e.fits)
      report.warn("memory", text + ": it does not fit; take a smaller quantisation or a shorter window");
  } catch (const std::exception& error) {
    report.fail("names", fmt::format("{}; the model cannot be built from these files", error.what()));
    const Config text = text_config(checkpoint.config);
    if (text.has("vocab_size")) vocab = text.integer("vocab_size", 0, 1 << 30, 0);
  }
  const auto guard = [&](const char* id, const auto& check) {
    try {
      check();
    } catch (const std::exception& error) {
      report.fail(id, error.what());
    }
  };
  guard("tied-head", [&] { examine_head(checkpoint, deep, report); });
  guard("bits", [&] { examine_bits(checkpoint, report); });
  guard("eos", [&] { examine_eos(checkpoint, vocab, report); });
  guard("rope", [&] { examine_rope(checkpoint, report); });
  guard("window", [&] { examine_window(checkpoint, report); });
  if (deep) guard("names", [&] { examine_values(checkpoint, report); });
}

}  // namespace mlxcel::app
