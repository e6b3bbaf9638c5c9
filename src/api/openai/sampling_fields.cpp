#include "api/openai/sampling_fields.h"

#include <charconv>
#include <limits>

#include "api/error.h"
#include "api/utf8.h"

namespace mlxcel::openai {
namespace {

constexpr size_t kMaxStops = 16;
constexpr double kHuge = 1e9;
constexpr size_t kMaxAdapters = 256;

std::optional<float> real(const JsonNode& body, std::string_view key, double low, double high) {
  const auto x = body.number(key, low, high);
  if (!x) return std::nullopt;
  return static_cast<float>(*x);
}

std::optional<int> whole(const JsonNode& body, std::string_view key, int low, int high) {
  const auto x = body.integer(key, low, high);
  if (!x) return std::nullopt;
  return static_cast<int>(*x);
}

std::map<int32_t, float> parse_logit_bias(const JsonNode& body, int vocab_size) {
  std::map<int32_t, float> out;
  const auto node = body.find("logit_bias");
  if (!node) return out;
  if (node->kind() == JsonKind::array && node->size() == 0) return out;
  if (node->kind() != JsonKind::object) node->wrong("an object of token ids to biases");
  for (const auto& [name, bias] : node->members()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0 || id >= vocab_size) {
      fail_param(bias.path(), "logit_bias: the key \"{}\" is not a token id from 0 to {}", name.substr(0, 64),
                 vocab_size - 1);
    }
    if (!out.emplace(id, static_cast<float>(bias.number(-100, 100))).second) {
      fail_param(bias.path(), "logit_bias: token {} is given twice", id);
    }
  }
  return out;
}

void refused(const JsonNode& body, std::string_view key, std::string_view hint = "") {
  if (body.has(key)) fail_param(std::string(key), "{}: not supported yet{}", key, hint);
}

}  // namespace

std::optional<uint32_t> fold_seed(int64_t seed) {
  const auto folded = static_cast<uint32_t>(static_cast<uint64_t>(seed));
  if (folded == std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return folded;
}

std::vector<std::string> parse_stop(const JsonNode& body) {
  std::vector<std::string> out;
  const auto node = body.find("stop");
  if (!node) return out;
  auto add = [&](const JsonNode& item) {
    out.push_back(item.string());
    if (out.back().empty()) fail_param(item.path(), "{}: a stop string must not be empty", item.path());
  };
  if (node->kind() == JsonKind::string) {
    add(*node);
  } else if (node->kind() == JsonKind::array) {
    if (node->size() > kMaxStops) {
      fail_param("stop", "stop: at most {} strings, found {}", kMaxStops, node->size());
    }
    for (const auto& item : node->items()) add(item);
  } else {
    node->wrong("a string or an array of strings");
  }
  return out;
}

SamplingFields parse_sampling(const JsonNode& body, const Bounds& bounds) {
  SamplingFields out;
  out.temperature = real(body, "temperature", 0, 2);
  out.top_p = real(body, "top_p", 0, 1);
  out.min_p = real(body, "min_p", 0, 1);
  out.repeat_penalty = real(body, "repetition_penalty", 0.01, 100);
  if (const auto other = real(body, "repeat_penalty", 0.01, 100); other && !out.repeat_penalty) {
    out.repeat_penalty = other;
  }
  out.frequency_penalty = real(body, "frequency_penalty", -2, 2);
  out.presence_penalty = real(body, "presence_penalty", -2, 2);
  constexpr int kMost = std::numeric_limits<int>::max();
  out.top_k = whole(body, "top_k", -1, kMost);
  if (out.top_k == -1) out.top_k = 0;  // another spelling of "off"
  out.repeat_last_n = whole(body, "repeat_last_n", -1, kMost);
  out.min_keep = whole(body, "min_keep", 0, kMost);
  if (const auto seed = body.integer("seed", INT64_MIN, INT64_MAX)) {
    out.seed = fold_seed(*seed);
    out.seed_given = true;
  }
  out.logit_bias = parse_logit_bias(body, bounds.vocab_size);
  out.ignore_eos = body.boolean("ignore_eos");
  // llama-server's own spellings of "off" (-1, above 0.5) are for its own routes.
  body.number("top_n_sigma", 0, kHuge);
  body.number("xtc_threshold", 0, 0.5);
  parse_chain(body, out);
  out.stop = parse_stop(body);
  return out;
}

StreamFields parse_stream(const JsonNode& body) {
  StreamFields out;
  out.stream = body.boolean("stream").value_or(false);
  if (const auto options = body.find("stream_options")) {
    if (options->kind() != JsonKind::object) options->wrong("an object");
    if (!out.stream) fail_param("stream_options", "stream_options: only with stream: true");
    out.include_usage = options->boolean("include_usage").value_or(false);
    options->boolean("include_obfuscation");
  }
  return out;
}

void refuse_unsupported(const JsonNode& body) {
  for (const char* key : {"web_search_options", "audio"}) refused(body, key);
  if (const auto modalities = body.find("modalities")) {
    for (const auto& item : modalities->items()) {
      const auto name = item.string();
      if (name == "text") continue;
      if (name == "audio") {
        refuse_param(501, "not_supported_error", item.path(),
                     "modalities: this model does not produce audio");
      }
      fail_param(item.path(), "{}: expected \"text\", found \"{}\"", item.path(), name.substr(0, 64));
    }
  }
}

namespace {

Denoising parse_denoising(const JsonNode& body) {
  Denoising out{.steps = whole(body, "max_denoising_steps", 1, 4096),
                .threshold = real(body, "diffusion_threshold", 0, 1),
                .sampler = {},
                .least = whole(body, "diffusion_min_canvas_length", 1, 4096),
                .most = whole(body, "diffusion_max_canvas_length", 1, 4096),
                .whole = body.boolean("diffusion_full_canvas").value_or(false)};
  if (const auto sampler = body.find("diffusion_sampler")) {
    out.sampler = sampler->string();
    if (*out.sampler != "entropy-bound" && *out.sampler != "confidence" && *out.sampler != "random")
      fail_param("diffusion_sampler",
                 "diffusion_sampler: expected \"entropy-bound\", \"confidence\" or \"random\", found \"{}\"",
                 out.sampler->substr(0, 64));
  }
  if (out.least && out.most && *out.least > *out.most)
    fail_param("diffusion_min_canvas_length", "diffusion_min_canvas_length {}: over the longest, {}",
               *out.least, *out.most);
  return out;
}

}  // namespace

void parse_chain(const JsonNode& body, SamplingFields& out) {
  constexpr int kMost = std::numeric_limits<int>::max();
  out.typical_p = real(body, "typical_p", 0, 1);
  out.top_n_sigma = real(body, "top_n_sigma", -1, kHuge);
  out.xtc_probability = real(body, "xtc_probability", 0, 1);
  out.xtc_threshold = real(body, "xtc_threshold", 0, 1);
  out.dry_multiplier = real(body, "dry_multiplier", 0, 100);
  out.dry_base = real(body, "dry_base", 1, 100);
  out.dry_allowed_length = whole(body, "dry_allowed_length", 0, kMost);
  out.dry_penalty_last_n = whole(body, "dry_penalty_last_n", -1, kMost);
  if (const auto list = body.find("dry_sequence_breakers")) {
    out.dry_breakers.emplace();
    for (const auto& item : list->items()) {
      if (item.kind() == JsonKind::array) {
        out.dry_breaker_ids.push_back(item.integers(0, kMost));
        if (out.dry_breaker_ids.back().empty())
          fail_param(item.path(), "{}: a breaker must not be empty", item.path());
        continue;
      }
      out.dry_breakers->push_back(item.string());
      if (out.dry_breakers->back().empty())
        fail_param(item.path(), "{}: a breaker must not be empty", item.path());
    }
  }
  out.dynatemp_range = real(body, "dynatemp_range", 0, 100);
  out.dynatemp_exponent = real(body, "dynatemp_exponent", 0, 100);
  out.mirostat = whole(body, "mirostat", 0, 2);
  out.mirostat_tau = real(body, "mirostat_tau", 0, 100);
  out.mirostat_eta = real(body, "mirostat_eta", 0, 1);
  out.adaptive_target = real(body, "adaptive_target", -1, 1);
  out.adaptive_decay = real(body, "adaptive_decay", 0, 0.99);
  if (const auto list = body.find("samplers")) {
    if (list->kind() == JsonKind::string) {
      out.samplers = parse_stage_letters(list->string(), "samplers");
    } else {
      std::vector<std::string> names;
      for (const auto& item : list->items()) names.push_back(item.string());
      out.samplers = parse_stages(names, "samplers");
    }
  }
  out.adapters = parse_adapters(body);
  out.slot = whole(body, "id_slot", -1, kMost);
  out.keep = whole(body, "n_keep", -1, kMost);
  out.discard = whole(body, "n_discard", 0, kMost);
  out.return_progress = body.boolean("return_progress").value_or(false);
  out.denoising = parse_denoising(body);
  out.max_pattern = whole(body, "max_pattern_size", 0, 4096);
  out.min_pattern = whole(body, "min_pattern_size", 0, 4096);
  out.min_count = whole(body, "min_count", 2, 4096);
  out.cache_prompt = body.boolean("cache_prompt").value_or(true);
  out.cache_key = body.string("prompt_cache_key").value_or("");
  if (out.cache_key.size() > 512) {
    fail_param("prompt_cache_key", "prompt_cache_key: at most 512 characters, found {}",
               out.cache_key.size());
  }
}

std::vector<std::pair<int, float>> parse_adapter_list(const JsonNode& list) {
  if (list.kind() != JsonKind::array) list.wrong("an array of {id, scale}");
  if (list.size() > kMaxAdapters)
    fail_param("lora", "lora: at most {} adapters, found {}", kMaxAdapters, list.size());
  std::vector<std::pair<int, float>> out;
  for (const auto& item : list.items()) {
    if (item.kind() != JsonKind::object) item.wrong("an object of id and scale");
    const auto id = item.integer("id", 0, std::numeric_limits<int>::max());
    const auto scale = item.number("scale", -kHuge, kHuge);
    if (!id || !scale) fail_param("lora", "{}: expected an id and a scale", item.path());
    for (const auto& [earlier, own] : out)
      if (earlier == *id) fail_param("lora", "{}: adapter {} is named twice", item.path(), *id);
    out.emplace_back(static_cast<int>(*id), static_cast<float>(*scale));
  }
  return out;
}

std::optional<std::vector<std::pair<int, float>>> parse_adapters(const JsonNode& body) {
  const auto list = body.find("lora");
  return list ? std::optional(parse_adapter_list(*list)) : std::nullopt;
}

EchoedFields parse_inert(const JsonNode& body) {
  EchoedFields out;
  body.string("user");
  body.string("safety_identifier");
  body.boolean("store");
  body.string("verbosity");
  if (const auto prediction = body.find("prediction"); prediction && prediction->kind() != JsonKind::object)
    prediction->wrong("an object");
  out.service_tier = body.string("service_tier").value_or("");
  if (const auto metadata = body.find("metadata")) {
    if (metadata->kind() != JsonKind::object) metadata->wrong("an object");
    if (metadata->size() > 16)
      fail_param("metadata", "metadata: at most 16 entries, found {}", metadata->size());
    for (const auto& [name, value] : metadata->members()) {
      if (const size_t length = utf8_length(name); length > 64)
        fail_param("metadata", "metadata: a key has {} characters, at most 64", length);
      if (utf8_length(value.string()) > 512)
        fail_param(value.path(), "{}: at most 512 characters", value.path());
    }
    out.metadata_json = metadata->dump();
  }
  return out;
}

}  // namespace mlxcel::openai
