#include "app/options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mlx/version.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>

#include "app/command_words.h"
#include "app/flags/shared.h"
#include "app/say.h"
#include "app/wrapped_text.h"
#include "base/file.h"
#include "base/worker_pool.h"
#include "kernels/matrix.h"

namespace mlxcel::app {
namespace {

std::function<void(CLI::App&)> flag_sink;

/// Help in the manner of man pages: names, then what the value is; defaults and variables at the end.
class HelpText final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string text = "usage: " + (name.empty() ? app->get_name() : name) + " [OPTIONS]";
    for (const CLI::Option* option : app->get_options())
      if (option->get_positional()) text += " [" + option->get_single_name() + "]";
    return "\n" + text + "\n";
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (positional) return option->get_single_name();
    std::string text;
    for (const auto& name : option->get_snames()) text += (text.empty() ? "-" : ", -") + name;
    for (const auto& name : option->get_lnames()) text += (text.empty() ? "--" : ", --") + name;
    return text;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = value_of(*option);
    return value.empty() ? "" : " " + value;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    if (const Flag* row = shared_row(option))
      for (const std::string& name : own_variables(*row)) text += " [" + name + "]";
    return fmt::format("{}", fmt::join(wrapped(text, help_width() - get_column_width()), "\n"));
  }
};

/// A stream that was closed before the program began would be the next file opened: messages would be written
/// into it. Reading finds nothing then, errors vanish, and what is written to stdout fails.
void open_standard_streams() {
  constexpr int kModes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int fd = 0; fd < 3; ++fd)
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF) (void)!::open("/dev/null", kModes[fd]);
}

/// The exit code of a command that ended well: what it printed may still lie in a buffer.
int written(const std::string& program, int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  say("{}: stdout: could not be written{}{}\n", program, errno != 0 ? ": " : "",
      errno != 0 ? std::strerror(errno) : "");
  return code != 0 ? code : 1;
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

Reference checked_reference(const ModelFlags& flags) {
  try {
    return parse_reference(flags.model);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
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
  // One value after each name: what follows is the next word's affair.
  for (CLI::Option* option : app.get_options({}))
    if (option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) option->allow_extra_args(false);
  try {
    check_values(app);
    auto words = command_words(app, argc, argv);
    std::vector<char*> pointers{argv[0]};
    for (std::string& word : words) pointers.push_back(word.data());
    app.parse(static_cast<int>(pointers.size()), pointers.data());
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    throw;
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}\nsee {} --help", with_typed_names(app, error.what()), app.get_name()));
  }
}

int guarded(const std::string& program, const std::function<int()>& body) {
  // A closed pipe and a limit on files are write errors with a message, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  open_standard_streams();
  try {
    return written(program, body());
  } catch (const CLI::CallForHelp&) {
    return written(program, 0);
  } catch (const UsageError& error) {
    say("{}: {}\n", program, error.what());
    return 2;
  } catch (const Interrupted&) {
    std::fflush(nullptr);
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);  // the shell shall see what ended it
    return 130;
  } catch (const std::bad_alloc&) {
    say("{}: out of memory\n", program);
    return 1;
  } catch (const std::system_error& error) {
    say("{}: {}{}\n", program, std::ferror(stdout) ? "stdout: " : "", error.what());
    return 1;
  } catch (const std::exception& error) {
    say("{}: {}\n", program, error.what());
    return 1;
  }
}

}  // namespace mlxcel::app
