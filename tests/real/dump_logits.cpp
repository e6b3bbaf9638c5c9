// dump_logits MODEL TOKENS_FILE OUT [exact|high|fast] [f32|f16] [native|reference]: log-probabilities of
// every position as float32 [tokens, vocab], for tools/oracle/compare_kl.py and tools/golden/vary.py; of an
// encoder, hidden states. TOKENS_FILE holds ids apart by blanks. Keys of the config that nobody read are
// listed on stderr.
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "base/error.h"
#include "real_model.h"

namespace {

using namespace mlxcel;

int run(int argc, char** argv) {
  if (argc < 4 || argc > 7)
    fail(ErrorKind::invalid_request, "usage: dump_logits MODEL TOKENS_FILE OUT [PRECISION] [KV] [MODE]");
  real::Setup setup;
  const auto argument = [&](int i, const char* fallback) {
    return std::string(argc > i ? argv[i] : fallback);
  };
  setup.precision = kernels::parse_precision(argument(4, "high"));
  setup.kv = argument(5, "f16") == "f32" ? mx::float32 : mx::float16;
  setup.mode = argument(6, "native") == "reference" ? KernelMode::reference : KernelMode::native;

  std::vector<int32_t> tokens;
  std::ifstream ids(argv[2]);
  for (int32_t id; ids >> id;) tokens.push_back(id);
  if (tokens.empty()) fail(ErrorKind::not_found, "{}: no token ids", argv[2]);

  real::Loaded loaded(argv[1], setup);
  std::ofstream out(argv[3], std::ios::binary);
  const auto write = [&out](const std::vector<float>& values) {
    out.write(reinterpret_cast<const char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof(float)));
  };
  if (loaded.model().info().encoder) {
    for (const auto& hidden : loaded.hidden({tokens})) write(hidden);
  } else {
    RowState row = loaded.make_row();
    for (const auto& logits : loaded.logits(row, tokens, Wants::all)) {
      std::vector<float> values;
      for (const double x : real::log_probabilities(logits)) values.push_back(static_cast<float>(x));
      write(values);
    }
  }
  for (const std::string& key : loaded.checkpoint().config.unread())
    std::fprintf(stderr, "not read: %s\n", key.c_str());
  if (!out.flush()) fail(ErrorKind::internal, "{}: could not be written", argv[3]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
