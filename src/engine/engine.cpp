#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <future>

#include "base/log.h"
#include "engine/loop/adapters.h"
#include "engine/loop/loop.h"
#include "engine/loop/model_thread.h"
#include "models/side_drafter.h"

namespace mlxcel {

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "";
}

void Handle::cancel() const {
  if (cancelled_) cancelled_->store(true, std::memory_order_relaxed);
}

struct Engine::Impl {
  ModelThread& thread = ModelThread::shared();
  Checkpoint checkpoint;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  std::unique_ptr<Loop> loop;
  bool fused = false;  // adapters were baked in
  std::unique_ptr<const Grammars> grammars;

  ~Impl() {
    if (!loop) return;
    thread.call([&] {
      thread.remove(loop.get());
      loop->close();
    });
  }
};

namespace {

std::vector<TokenId> end_tokens(const Checkpoint& checkpoint, const Tokenizer* tokenizer) {
  std::vector<TokenId> ids(checkpoint.eos_ids.begin(), checkpoint.eos_ids.end());
  if (tokenizer != nullptr && tokenizer->eos()) ids.push_back(*tokenizer->eos());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

namespace {

struct OpenDrafter {
  Checkpoint checkpoint;
  std::shared_ptr<const Tokenizer> other = nullptr;  // where its vocabulary is not the target's
};

/// A drafter's checkpoint, its vocabulary compared with the target's token by token. A smaller model may have
/// another one; drafters made for their target may come without: it is the target's.
OpenDrafter open_drafter(const EngineOptions& options, const Tokenizer& target) {
  const std::filesystem::path& path = options.draft_model;
  Checkpoint checkpoint = open_checkpoint(path);
  const DrafterKind kind = drafter_kind(checkpoint.config);
  if (!options.draft_kind.empty() && options.draft_kind != to_string(kind))
    fail_param("draft-kind", "draft-kind {}: {}: this is a drafter of the kind {}", options.draft_kind,
               path.string(), to_string(kind));
  if (kind != DrafterKind::model && !std::filesystem::exists(checkpoint.path / "tokenizer.json"))
    return {std::move(checkpoint)};
  auto own = Tokenizer::load(checkpoint);
  const int shared = std::min(own->vocab_size(), target.vocab_size());
  // Some tables are padded at the end.
  for (TokenId id = 0; id < shared; ++id) {
    if (own->token_text(id) == target.token_text(id)) continue;
    if (kind == DrafterKind::model) return {std::move(checkpoint), std::move(own)};
    fail_param(
        "model-draft",
        "model-draft: {}: another vocabulary than the target's: token {} is \"{}\", the target has \"{}\"",
        path.string(), id, own->token_text(id), target.token_text(id));
  }
  return {std::move(checkpoint)};
}

}  // namespace

namespace {

void place_drafter(EngineOptions& options, OpenDrafter drafter) {
  options.draft_tokenizer = std::move(drafter.other);
  if (drafter_kind(drafter.checkpoint.config) == DrafterKind::model)
    options.make_drafter = [own = std::move(drafter.checkpoint)] { return load_model(own); };
  else
    options.side_drafter = std::make_shared<const Checkpoint>(std::move(drafter.checkpoint));
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Engine> Engine::with_model(std::function<std::unique_ptr<Model>()> make,
                                           std::shared_ptr<const Tokenizer> tokenizer,
                                           std::shared_ptr<const ChatTemplate> chat_template,
                                           Checkpoint checkpoint, const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->checkpoint = std::move(checkpoint);
  impl->tokenizer = std::move(tokenizer);
  impl->chat_template = std::move(chat_template);
  return begin(std::move(impl), make, options);
}

std::unique_ptr<Engine> Engine::begin(std::unique_ptr<Impl> impl,
                                      const std::function<std::unique_ptr<Model>()>& make,
                                      const EngineOptions& options) {
  impl->fused = options.fuse_adapters && !options.adapters.empty();
  impl->loop = std::make_unique<Loop>(options, end_tokens(impl->checkpoint, impl->tokenizer.get()));
  impl->thread.call([&] {
    impl->loop->open(make(), impl->checkpoint, impl->tokenizer.get());
    impl->thread.add(impl->loop.get());
  });
  if (!options.fuse_adapters)
    for (const AdapterSource& one : options.adapters)
      impl->loop->load_adapter({one.path, options.adapters_apply ? one.scale : 0.0f});
  impl->grammars =
      std::make_unique<const Grammars>(impl->tokenizer, impl->loop->info().vocab_size, impl->loop->eos());
  for (const auto& warning : impl->loop->warnings()) log::warn("engine", "{}", warning);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

std::unique_ptr<Engine> Engine::load(const EngineOptions& options,
                                     const std::function<void(Checkpoint&)>& edit) {
  auto impl = std::make_unique<Impl>();
  impl->checkpoint = open_checkpoint(options.model);
  const auto stored = impl->checkpoint.source;
  if (edit) edit(impl->checkpoint);
  // The vocabulary is built while the model thread reads the weights. A fault there ends the reading, but not
  // before the model's configuration has been understood: that is what to mend first.
  std::atomic<bool> wordless = false;
  auto words = std::async(std::launch::async, [&] {
    try {
      impl->tokenizer = Tokenizer::load(impl->checkpoint);
      impl->chat_template = ChatTemplate::load(impl->checkpoint, *impl->tokenizer);
    } catch (...) {
      wordless = true;
      throw;
    }
  });
  const auto progress = [&](size_t done, size_t total) {
    if (wordless) fail(ErrorKind::cancelled, "the vocabulary could not be read");
    if (options.progress) options.progress(done, total);
  };
  LoadOptions load{.progress = progress, .fuse = {}, .keeps_nothing = options.reranker};
  if (impl->checkpoint.source == stored && options.weight_edits.empty())
    load.packed = PackedCacheOptions::from_environment();
  if (options.fuse_adapters)
    for (const AdapterSource& one : options.adapters) {
      check_scale("scale", one.scale);
      if (one.scale != 0.0f && options.adapters_apply)
        load.fuse.push_back({AdapterFiles::read(one.path), one.scale});
    }
  std::unique_ptr<Model> model;
  try {
    impl->thread.call([&] { model = load_model(impl->checkpoint, load); });
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) words.get();
    throw;
  }
  words.get();
  EngineOptions complete = options;
  for (const FusedAdapter& fused : load.fuse)
    complete.weight_edits += fmt::format("|{:016x}*{:a}", fused.files.digest(), fused.scale);
  if (!options.draft_model.empty()) place_drafter(complete, open_drafter(options, *impl->tokenizer));
  return begin(std::move(impl), [&] { return std::move(model); }, complete);
}

Engine::~Engine() {
  if (!impl_) return;
  drain(0.0);
}

Handle Engine::submit(Request request, Sink sink) {
  Handle handle;
  std::tie(handle.id_, handle.cancelled_) = impl_->loop->submit(std::move(request), std::move(sink));
  impl_->thread.wake();
  return handle;
}

std::shared_ptr<const Grammar> Engine::compile(const Constraint& constraint) const {
  return impl_->grammars->compile(constraint);
}

Embeddings Engine::embed(const EmbedRequest& request) {
  auto result = impl_->loop->embed(request);
  impl_->thread.wake();
  auto outcome = result.get();
  if (const auto* error = std::get_if<Error>(&outcome)) throw *error;
  return std::get<Embeddings>(std::move(outcome));
}

Scores Engine::score(const ScoreRequest& request) {
  auto result = impl_->loop->score(request);
  impl_->thread.wake();
  auto outcome = result.get();
  if (const auto* error = std::get_if<Error>(&outcome)) throw *error;
  auto& embeddings = std::get<Embeddings>(outcome);
  return {.scores = std::move(embeddings.vectors), .prompt_tokens = embeddings.prompt_tokens};
}

void Engine::drain(double timeout_s) {
  impl_->loop->refuse_new();
  if (impl_->loop->wait_until_empty(timeout_s)) return;
  impl_->loop->cancel_all();
  impl_->thread.wake();
  impl_->loop->wait_until_empty(1e6);
}

void Engine::clear_prompt_cache(bool disk) {
  impl_->loop->flush_disk_cache();
  impl_->thread.call([&] { impl_->loop->clear_prompt_cache(); });
  if (disk) impl_->loop->clear_disk_cache();
}

void Engine::set_step_token_budget(int tokens) { impl_->loop->set_step_token_budget(tokens); }
void Engine::set_max_per_key(size_t requests) {
  impl_->loop->set_max_per_key(requests);
  impl_->thread.wake();  // who waited may run now
}
void Engine::set_language_bias(const LanguageBias& bias) { impl_->loop->set_language_bias(bias); }

SlotFile Engine::save_slot(int slot, const std::filesystem::path& file) {
  const TimePoint before = Clock::now();
  const std::string& fingerprint = impl_->loop->fingerprint(impl_->checkpoint);
  Loop::SlotImage held;
  impl_->thread.call([&] { held = impl_->loop->image_of_slot(slot); });
  SlotFile result{.tokens = static_cast<int>(held.tokens.size())};
  std::exception_ptr fault;
  try {
    result.bytes = write_prefix(file, fingerprint, held.scope, held.tokens, *held.image);
  } catch (...) {
    fault = std::current_exception();
  }
  impl_->thread.call([&] { held.image.reset(); });
  if (fault) std::rethrow_exception(fault);
  result.ms = milliseconds_between(before, Clock::now());
  return result;
}

SlotFile Engine::restore_slot(int slot, const std::filesystem::path& file) {
  const TimePoint before = Clock::now();
  const auto open = File::open(file);
  PrefixFile prefix;
  try {
    if (read_prefix_head(*open).fingerprint != impl_->loop->fingerprint(impl_->checkpoint))
      fail(ErrorKind::invalid_request, "it is of another model, or of other settings");
    prefix = read_prefix(*open);
    impl_->thread.call([&] { impl_->loop->fill_slot(slot, prefix); });
  } catch (const Error& fault) {
    if (fault.kind() != ErrorKind::invalid_request) throw;
    fail_param("filename", "{} cannot be restored: {}", file.filename().string(), fault.what());
  }
  return {.tokens = static_cast<int>(prefix.head.tokens.size()),
          .bytes = open->size(),
          .ms = milliseconds_between(before, Clock::now())};
}

int Engine::erase_slot(int slot) {
  int tokens = 0;
  impl_->thread.call([&] { tokens = impl_->loop->empty_slot(slot); });
  return tokens;
}

std::vector<AdapterInfo> Engine::adapters() const { return impl_->loop->adapters().list(); }
bool Engine::adapters_fused() const { return impl_->fused; }

namespace {

void refuse_fused(bool fused) {
  if (fused) fail(ErrorKind::unsupported, "adapters are fused into the weights: they cannot be changed");
}

}  // namespace

int Engine::load_adapter(const AdapterSource& source) {
  refuse_fused(impl_->fused);
  return impl_->loop->load_adapter(source);
}

void Engine::unload_adapter(int id) {
  refuse_fused(impl_->fused);
  impl_->loop->adapters().remove(id);
}

std::vector<int> Engine::set_adapter_scales(const std::vector<AdapterScale>& scales) {
  refuse_fused(impl_->fused);
  return impl_->loop->adapters().set_scales(scales);
}

std::optional<std::string> Engine::failure() const { return impl_->loop->failure(); }
const ModelInfo& Engine::info() const { return impl_->loop->info(); }
int Engine::context() const { return impl_->loop->context(); }
int Engine::max_input() const { return impl_->loop->max_input(); }
uint32_t Engine::step_token_budget() const { return static_cast<uint32_t>(impl_->loop->step_token_budget()); }
int Engine::max_token_gap_ms() const { return impl_->loop->max_token_gap_ms(); }
const std::shared_ptr<const Tokenizer>& Engine::tokenizer() const { return impl_->tokenizer; }
const std::shared_ptr<const ChatTemplate>& Engine::chat_template() const { return impl_->chat_template; }
const Checkpoint& Engine::checkpoint() const { return impl_->checkpoint; }
const std::vector<TokenId>& Engine::eos() const { return impl_->loop->eos(); }
EngineStats Engine::stats() const { return impl_->loop->stats(); }
std::string Engine::draft_kind() const { return impl_->loop->draft_kind(); }
DraftPolicyReport Engine::draft_policy() const { return impl_->loop->draft_policy(); }
std::string Engine::speculation_label() const { return impl_->loop->speculation_label(); }
std::string Engine::kv_label() const { return impl_->loop->kv_label(); }
const std::vector<std::string>& Engine::warnings() const { return impl_->loop->warnings(); }

}  // namespace mlxcel
