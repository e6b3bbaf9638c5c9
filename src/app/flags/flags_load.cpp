// Rows of the table: what is done to a checkpoint as it is loaded, and whether it fits.
#include <cmath>

#include "app/flags/flag.h"

namespace mlxcel::app {
namespace {

using Kind = Flag::Kind;
using S = FlagState;

}  // namespace

void add_load_flags(std::vector<Flag>& f) {
  const char* g = "Loading";
  f.push_back({"--surgery", "MLXCEL_SURGERY", g, Kind::value, "FILE",
               "edit weights while loading, by a YAML file",
               text([](S& s, const auto& v) { s.serve.model.surgery = v; })});
  f.push_back({"--estimate-memory", "", g, Kind::toggle, "",
               "print what the model needs, and stop if it does not fit",
               onoff([](S& s, bool on) { s.serve.model.estimate = on; })});
  f.push_back({"--force,--no-memory-check", "", g, Kind::toggle, "",
               "go on although the estimate is over the budget",
               onoff([](S& s, bool on) { s.serve.model.force = on; })});
  g = "Positions (RoPE)";
  f.push_back(
      {"--rope-scaling", "LLAMA_ARG_ROPE_SCALING_TYPE", g, Kind::value, "none|linear|yarn",
       "how positions are stretched (default: the model's)",
       word({"none", "linear", "yarn"}, [](S& s, const auto& v) { s.serve.model.rope.scaling = v; })});
  const auto number = [&f, &g](const char* names, const char* env, const char* help, double low, double high,
                               std::optional<double> RopeFlags::* field) {
    f.push_back({names, env, g, Kind::value, "F", help,
                 real(low, high, [field](S& s, double x) { s.serve.model.rope.*field = x; })});
  };
  // llama-server's 0 stands for the model's own base.
  f.push_back({"--rope-freq-base", "LLAMA_ARG_ROPE_FREQ_BASE", g, Kind::value, "F",
               "base of the frequencies; 0: the model's", real(0, 1e30, [](S& s, double x) {
                 s.serve.model.rope.freq_base = x > 0 ? std::optional<double>(x) : std::nullopt;
               })});
  number("--rope-scale", "LLAMA_ARG_ROPE_SCALE", "stretch by this factor", 1e-6, 1e6, &RopeFlags::scale);
  number("--rope-freq-scale", "LLAMA_ARG_ROPE_FREQ_SCALE", "the same as --rope-scale 1/F", 1e-6, 1e6,
         &RopeFlags::freq_scale);
  f.push_back({"--yarn-orig-ctx", "LLAMA_ARG_YARN_ORIG_CTX", g, Kind::value, "N",
               "window the model was trained with; 0: the model's",
               integer(0, 1 << 24,
                       [](S& s, long long n) { s.serve.model.rope.yarn_orig_ctx = static_cast<int>(n); })});
  number("--yarn-ext-factor", "LLAMA_ARG_YARN_EXT_FACTOR",
         "share of extrapolation, 0 (all interpolated) to 1; -1: the model's", -1, 1,
         &RopeFlags::yarn_ext_factor);
  number("--yarn-attn-factor", "LLAMA_ARG_YARN_ATTN_FACTOR", "scale of the rotated values; -1: the model's",
         -1, 1e6, &RopeFlags::yarn_attn_factor);
  number("--yarn-beta-slow", "LLAMA_ARG_YARN_BETA_SLOW", "-1: the model's", -1, 1e6,
         &RopeFlags::yarn_beta_slow);
  number("--yarn-beta-fast", "LLAMA_ARG_YARN_BETA_FAST", "-1: the model's", -1, 1e6,
         &RopeFlags::yarn_beta_fast);
  g = "Diffusion Options";
  f.push_back(
      {"--max-denoising-steps", "", g, Kind::value, "N",
       "most rounds that fill in a block; default: one for each of its tokens",
       integer(1, 4096, [](S& s, long long n) { s.serve.model.diffusion.steps = static_cast<int>(n); })});
  f.push_back(
      {"--diffusion-threshold", "", g, Kind::value, "F",
       "tokens that the model is surer of than this are taken at once; default: the model's",
       real(0, 1, [](S& s, double x) { s.serve.model.diffusion.threshold = static_cast<float>(x); })});
  f.push_back({"--diffusion-sampler", "", g, Kind::value, "entropy-bound|confidence|random",
               "which tokens of a round stay; default: the model's",
               word({"entropy-bound", "confidence", "random"},
                    [](S& s, const auto& v) { s.serve.model.diffusion.sampler = v; })});
  f.push_back(
      {"--diffusion-min-canvas-length", "", g, Kind::value, "N",
       "shortest block, where less is left to write; default: the model's",
       integer(1, 4096, [](S& s, long long n) { s.serve.model.diffusion.least = static_cast<int>(n); })});
  f.push_back(
      {"--diffusion-max-canvas-length", "", g, Kind::value, "N", "longest block; default: the model's",
       integer(1, 4096, [](S& s, long long n) { s.serve.model.diffusion.most = static_cast<int>(n); })});
  f.push_back({"--diffusion-full-canvas", "", g, Kind::toggle, "", "blocks are always the longest",
               onoff([](S& s, bool on) { s.serve.model.diffusion.whole = on; })});
}

}  // namespace mlxcel::app
