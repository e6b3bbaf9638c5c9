#include "app/options.h"

#include <fmt/format.h>
#include <mlx/version.h>

#include <array>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <limits>
#include <memory>
#include <string_view>

#include "app/download_bars.h"
#include "app/terminal.h"
#include "base/file.h"
#include "base/worker_pool.h"
#include "checkpoint/surgery.h"
#include "hub/download.h"
#include "kernels/matrix.h"

namespace mlxcel::app {
namespace {

/// A name for messages: the flag as users type it.
int bounded(long long value, long long low, long long high, const char* flag) {
  if (value < low || value > high)
    throw UsageError(fmt::format("{} {}: expected {} to {}", flag, value, low, high));
  return static_cast<int>(value);
}

void add_logit_bias(SamplingParams& params, const std::string& text) {
  // ID(+/-)BIAS, as llama.cpp spells it: 15043+1, 15043-1.5, 15043-inf.
  const auto sign = text.find_first_of("+-", 1);
  int id = -1;
  float bias = std::numeric_limits<float>::quiet_NaN();
  if (sign != std::string::npos) {
    const auto parsed = std::from_chars(text.data(), text.data() + sign, id);
    if (parsed.ec != std::errc{} || parsed.ptr != text.data() + sign) id = -1;
    const std::string number = text.substr(text[sign] == '+' ? sign + 1 : sign);
    if (number == "-inf") {
      bias = -std::numeric_limits<float>::infinity();
    } else {
      const auto end = number.data() + number.size();
      const auto value = std::from_chars(number.data(), end, bias);
      if (value.ec != std::errc{} || value.ptr != end || !std::isfinite(bias))
        bias = std::numeric_limits<float>::quiet_NaN();
    }
  }
  if (id < 0 || std::isnan(bias))
    throw UsageError(
        fmt::format("--logit-bias {}: expected TOKEN_ID+BIAS or TOKEN_ID-BIAS, for example 15043-1.5", text));
  params.logit_bias[id] = bias;
}

std::function<void(CLI::App&)> flag_sink;

/// Help in the manner of man pages: names, then what the value is; defaults and variables at the end.
class HelpText final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = "usage: " + (name.empty() ? app->get_name() : name) + " [OPTIONS]";
    for (const CLI::Option* option : app->get_options())
      if (option->get_positional()) text += " [" + option->get_name(true) + "]";
    return "\n" + text + "\n";
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (positional) return option->get_name(true);
    std::string text;
    for (const auto& name : option->get_snames()) text += (text.empty() ? "-" : ", -") + name;
    for (const auto& name : option->get_lnames()) text += (text.empty() ? "--" : ", --") + name;
    return text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_items_expected_max() == 0) return "";
    std::string type = option->get_type_name();
    const auto open = type.find('{'), close = type.rfind('}');
    if (open != std::string::npos && close != std::string::npos) {
      type = type.substr(open + 1, close - open - 1);
      for (char& c : type) c = c == ',' ? '|' : c;
    } else if (const auto colon = type.find(':'); colon != std::string::npos) {
      type.resize(colon);
    }
    const auto bounds = type.find(" in [");
    return type.empty() ? "" : " " + (bounds == std::string::npos ? type : type.substr(0, bounds));
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    if (!option->get_envname().empty()) text += " [" + option->get_envname() + "]";
    return text;
  }
};

/// Words with one dash and several letters become the long flag, where there is one; values stay as they are.
std::vector<std::string> long_spellings(const CLI::App& app, int argc, char** argv) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kSpellings = {{
      {"-sys", "--system"},
      {"-jf", "--json-schema-file"},
      {"-md", "--draft-model"},
      {"-pg", "--pg"},
      {"-hff", "--hf-file"},
      {"-ctk", "--cache-type-k"},
      {"-ctv", "--cache-type-v"},
      {"-hft", "--hf-token"},
  }};
  std::vector<std::string> out;
  bool value = false, verbatim = false;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (!value && !verbatim) {
      verbatim = word == "--";
      for (const auto& [from, to] : kSpellings)
        if (word == from && app.get_option_no_throw(std::string(to))) word = to;
      const bool flag = word.size() > 1 && word[0] == '-' && word.find('=') == std::string::npos;
      const auto* option = flag ? app.get_option_no_throw(word) : nullptr;
      value = option && option->get_expected_min() > 0;
    } else {
      value = false;
    }
    out.push_back(std::move(word));
  }
  return out;
}

}  // namespace

void add_source_flags(CLI::App& app, ModelFlags& flags, bool positional) {
  const std::string text =
      "model: a folder, a .gguf file, owner/name, owner/name:QUANT, or a name in the store";
  app.add_option("-m,--model", flags.model, text)->type_name("REF")->group("Model");
  if (positional) app.add_option("MODEL", flags.model, text)->group("");
  app.add_option("--models-dir", flags.models_dir,
                 "model store (default: MLXCEL_MODELS_DIR, else <cache root>/models)")
      ->type_name("PATH")
      ->group("Model");
  app.add_option("--revision", flags.revision, "branch, tag or revision id of the repository")
      ->type_name("REV")
      ->group("Model");
  app.add_option("--hf-file", flags.hf_file, "one file of the repository exactly; beats the quant")
      ->type_name("FILE")
      ->group("Model");
  app.add_flag("--offline", flags.offline, "never use the network (also LLAMA_ARG_OFFLINE=on)")
      ->group("Model");
  app.add_option("--hf-token", flags.hf_token, "access token of the hub (default: HF_TOKEN)")
      ->type_name("TOKEN")
      ->group("Model");
}

void add_runtime_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("-c,--ctx-size", flags.context, "context window in tokens; 0: the model's")
      ->type_name("N")
      ->group("Run time");
  app.add_option("--kv-cache-mode", flags.kv_cache_mode,
                 "how keys and values are kept: fp16, or f32 for tests")
      ->type_name("MODE")
      ->capture_default_str()
      ->group("Run time");
  app.add_option("-t,--threads", flags.threads, "worker threads; 0: the cores this process may use")
      ->type_name("N")
      ->group("Run time");
  app.add_option("--cpu-precision", flags.cpu_precision,
                 "high: answers of full precision (default); fast: 8-bit activations; exact: 32-bit")
      ->type_name("P")
      ->group("Run time");
  app.add_option("--prefill-chunk-size", flags.prefill_chunk, "prompt tokens per pass; 0: one pass")
      ->type_name("N")
      ->capture_default_str()
      ->group("Run time");
  app.add_flag("--no-warmup", flags.no_warmup, "leave out the warm-up pass")->group("Run time");
  app.add_flag("--quiet", flags.quiet, "no banner and no statistics")->group("Output");
}

Reference checked_reference(const ModelFlags& flags) {
  try {
    return parse_reference(flags.model);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::filesystem::path resolve(const ModelFlags& flags) {
  ResolveOptions options;
  if (!flags.models_dir.empty()) options.store = flags.models_dir;
  options.revision = flags.revision;
  options.file = flags.hf_file;
  const Reference reference = checked_reference(flags);
  if (reference.path && !flags.revision.empty())
    throw UsageError(fmt::format("--revision {}: {} is a local path; a revision needs owner/name",
                                 flags.revision, flags.model));
  if (flags.offline) go_offline();
  if (flags.fetch && !offline()) {
    options.fetch = [&](const Reference& source, const std::filesystem::path& folder) {
      fmt::print(stderr, "{}: not here yet; fetching it\n", source.text);
      DownloadBars bars;
      download_model(
          source,
          {.folder = folder, .revision = flags.revision, .file = flags.hf_file, .token = flags.hf_token},
          bars);
    };
  } else if (offline()) {
    options.why_no_fetch = "offline";
  }
  return resolve_model(reference, options);
}

CheckpointEdit surgery_edit(const ModelFlags& flags) {
  const char* variable = std::getenv("MLXCEL_SURGERY");
  const bool from_variable = flags.surgery.empty() && variable && *variable;
  if (flags.surgery.empty() && !from_variable) return nullptr;
  try {
    return [surgery = read_surgery(from_variable ? variable : flags.surgery)](Checkpoint& checkpoint) {
      checkpoint.source = operate(checkpoint.source, checkpoint.config, surgery);
    };
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", from_variable ? "MLXCEL_SURGERY" : "--surgery", error.what()));
  }
}

EngineOptions engine_options(const ModelFlags& flags) {
  EngineOptions options;
  surgery_edit(flags);  // a bad file ends here, before a model is touched
  options.context = bounded(flags.context, 0, 1 << 24, "--ctx-size");
  options.prefill_chunk = bounded(flags.prefill_chunk, 0, 1 << 24, "--prefill-chunk-size");
  options.kv_cache_mode = flags.kv_cache_mode;
  options.warmup = !flags.no_warmup;
  if (flags.threads != 0) WorkerPool::set_shared_threads(bounded(flags.threads, 1, 1024, "--threads"));
  if (!flags.cpu_precision.empty()) {
    try {
      kernels::set_precision(kernels::parse_precision(flags.cpu_precision));
    } catch (const Error& error) {
      throw UsageError(fmt::format("--cpu-precision: {}", error.what()));
    }
  }
  return options;
}

std::unique_ptr<Engine> load_engine(const ModelFlags& flags, EngineOptions options,
                                    const CheckpointEdit& edit) {
  checked_reference(flags);
  const CheckpointEdit surgery = surgery_edit(flags);
  options.model = resolve(flags);
  ProgressBar bar("loading");
  options.progress = [&](size_t done, size_t total) { bar.update(done, total); };
  if (!surgery && !edit) return Engine::load(options);
  Checkpoint checkpoint = open_checkpoint(options.model);
  if (surgery) surgery(checkpoint);
  if (edit) edit(checkpoint);
  auto tokenizer = Tokenizer::load(checkpoint);
  auto chat_template = ChatTemplate::load(checkpoint, *tokenizer);
  const auto make = [checkpoint, progress = options.progress] {
    return load_model(checkpoint, LoadOptions{.progress = progress});
  };
  return Engine::with_model(make, std::move(tokenizer), std::move(chat_template), checkpoint, options);
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const char* group = "Sampling";
  app.add_option("--temp,--temperature", flags.temperature,
                 "0: greedy (default unless the checkpoint says otherwise)")
      ->type_name("F")
      ->group(group);
  app.add_option("--top-k", flags.top_k, "keep the k likeliest tokens; 0: off")->type_name("N")->group(group);
  app.add_option("--top-p", flags.top_p, "keep the likeliest tokens up to this probability; 1: off")
      ->type_name("F")
      ->group(group);
  app.add_option("--min-p", flags.min_p, "drop tokens below this share of the best one; 0: off")
      ->type_name("F")
      ->group(group);
  app.add_option("--repeat-penalty", flags.repeat_penalty, "divide the logits of recent tokens; 1: off")
      ->type_name("F")
      ->group(group);
  app.add_option("--frequency-penalty", flags.frequency_penalty, "subtract per earlier use; 0: off")
      ->type_name("F")
      ->group(group);
  app.add_option("--presence-penalty", flags.presence_penalty, "subtract once for any earlier use; 0: off")
      ->type_name("F")
      ->group(group);
  app.add_option("--repeat-last-n", flags.repeat_last_n, "tokens the penalties look at; -1: all (default 64)")
      ->type_name("N")
      ->group(group);
  app.add_option("--logit-bias", flags.logit_bias, "TOKEN_ID+BIAS or TOKEN_ID-BIAS; repeatable")
      ->type_name("ID(+/-)BIAS")
      ->group(group)
      ->take_all();
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on past the end token")->group(group);
  app.add_option("-s,--seed", flags.seed, "seed of the draws; unset or -1: random")
      ->type_name("N")
      ->group(group);
}

SamplingParams sampling_params(const SamplingFlags& flags, const Config& generation_config) {
  SamplingParams params;
  if (generation_config.get<bool>("do_sample", false)) {
    params.temperature = generation_config.get<float>("temperature", 1.0f);
    params.top_k = generation_config.integer("top_k", 0, 1 << 30, 50);
    params.top_p = generation_config.get<float>("top_p", 1.0f);
    params.min_p = generation_config.get<float>("min_p", 0.0f);
  }
  if (generation_config.has("repetition_penalty"))
    params.repeat_penalty = generation_config.get<float>("repetition_penalty");
  const auto take = [](auto& target, const auto& flag) {
    if (flag) target = *flag;
  };
  take(params.temperature, flags.temperature);
  take(params.top_k, flags.top_k);
  take(params.top_p, flags.top_p);
  take(params.min_p, flags.min_p);
  take(params.repeat_penalty, flags.repeat_penalty);
  take(params.frequency_penalty, flags.frequency_penalty);
  take(params.presence_penalty, flags.presence_penalty);
  take(params.repeat_last_n, flags.repeat_last_n);
  if (flags.seed && *flags.seed != -1) {
    if (*flags.seed < 0 || *flags.seed > 0xffffffffll)
      throw UsageError(fmt::format("--seed {}: expected -1 to 4294967295", *flags.seed));
    params.seed = static_cast<uint32_t>(*flags.seed);
  }
  for (const std::string& text : flags.logit_bias) add_logit_bias(params, text);
  return params;
}

std::string device_label() {
  if (kernel_mode() == KernelMode::reference) return fmt::format("{} (plain MLX graph)", MLXCEL_BACKEND_NAME);
  const int threads = WorkerPool::shared().width();
  return fmt::format("cpu {}, {} thread{}, {}", kernels::isa_name(), threads, threads == 1 ? "" : "s",
                     kernels::to_string(kernels::precision()));
}

std::string version_line() {
  return fmt::format("mlxcel {} (mlx {}.{}.{}, backends: {})", MLXCEL_VERSION, MLX_VERSION_MAJOR,
                     MLX_VERSION_MINOR, MLX_VERSION_PATCH,
                     std::string_view(MLXCEL_BACKEND_NAME) == "cpu" ? "cpu" : "cpu," MLXCEL_BACKEND_NAME);
}

void configure(CLI::App& app, const std::string& examples) {
  app.option_defaults()->take_last();
  app.set_help_flag("-h,--help", "print this help and exit");
  if (!examples.empty()) app.footer("Examples:\n" + examples);
  const auto formatter = std::make_shared<HelpText>();
  formatter->column_width(34);
  app.formatter(formatter);
}

std::string text_file(const std::string& path, const char* flag, size_t limit) {
  try {
    return read_file(path, limit);
  } catch (const Error& error) {
    throw UsageError(fmt::format("{}: {}", flag, error.what()));
  }
}

FlagProbe::FlagProbe(std::function<void(CLI::App&)> sink) { flag_sink = std::move(sink); }
FlagProbe::~FlagProbe() { flag_sink = nullptr; }

void parse(CLI::App& app, int argc, char** argv) {
  if (flag_sink) {
    flag_sink(app);
    throw FlagProbe::Done{};
  }
  try {
    auto words = long_spellings(app, argc, argv);
    std::vector<char*> pointers{argv[0]};
    for (std::string& word : words) pointers.push_back(word.data());
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}\nsee {} --help", error.what(), app.get_name()));
  }
}

int guarded(const std::string& program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const CLI::CallForHelp&) {
    return 0;
  } catch (const UsageError& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 2;
  } catch (const Interrupted&) {
    std::fflush(nullptr);
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);  // the shell shall see what ended it
    return 130;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: out of memory\n", program);
    return 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 1;
  }
}

}  // namespace mlxcel::app
