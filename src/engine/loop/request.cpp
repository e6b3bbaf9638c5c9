// What callers hand to the loop: requests and embedding jobs, checked and prepared on their own threads.
#include <algorithm>
#include <limits>

#include "engine/loop/loop.h"
#include "engine/loop/pattern.h"

namespace mlxcel {

std::shared_ptr<const TokenBytes> Loop::token_bytes() {
  if (tokenizer_ == nullptr) return nullptr;
  std::call_once(token_bytes_once_, [&] {
    auto bytes = std::make_shared<TokenBytes>();
    bytes->reserve(static_cast<size_t>(info_.vocab_size));
    for (TokenId id = 0; id < info_.vocab_size; ++id)
      bytes->push_back(tokenizer_->is_special(id) ? tokenizer_->token_text(id) : tokenizer_->token_bytes(id));
    token_bytes_ = std::move(bytes);
  });
  return token_bytes_;
}

std::shared_ptr<const TokenBiases> Loop::biases_of(const LanguageBias& bias) const {
  if (bias.languages.empty()) return nullptr;
  if (tokenizer_ == nullptr)
    fail_param("lang-bias", "lang-bias: this model has no tokenizer to tell languages by");
  TokenBytes bytes(static_cast<size_t>(info_.vocab_size));  // marks belong to no language
  for (TokenId id = 0; id < info_.vocab_size; ++id)
    if (!tokenizer_->is_special(id)) bytes[static_cast<size_t>(id)] = tokenizer_->token_bytes(id);
  return std::make_shared<const TokenBiases>(token_biases(bias, bytes));
}

std::shared_ptr<const TokenBiases> Loop::language_bias() {
  const std::lock_guard lock(language_mutex_);
  if (!language_bias_) language_bias_ = biases_of(options_.language_bias);
  return *language_bias_;
}

void Loop::set_language_bias(const LanguageBias& bias) {
  check(bias);
  auto biases = biases_of(bias);
  const std::lock_guard lock(language_mutex_);
  language_bias_ = std::move(biases);
}

void Loop::set_step_token_budget(int tokens) {
  if (tokens != 0 && tokens < options_.parallel)
    fail_param("step-token-budget",
               "step-token-budget: expected at least one token for each of {} sequences, found {}",
               options_.parallel, tokens);
  pace_.fix(tokens);
}

void Loop::check_prompt(const Request& request) const {
  if (info_.encoder)
    fail(ErrorKind::unsupported, "{} is an encoder: it gives embeddings, not text", info_.model_type);
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) fail_param("prompt", "the prompt is empty: expected at least one token");
  if (prompt > context_)
    fail_param("prompt",
               "request ({} tokens) exceeds the available context size ({} tokens), try increasing it",
               prompt, context_);
  if (prompt == context_ && request.max_tokens != 0 && !options_.context_shift)
    fail_param("prompt",
               "request ({} tokens) fills the available context size ({} tokens): no room for an answer, try "
               "increasing it",
               prompt, context_);
  for (size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= info_.vocab_size)
      fail_param("prompt", "prompt[{}]: token {} is outside the vocabulary of {} tokens", i,
                 request.prompt[i], info_.vocab_size);
  if (request.slot < -1 || request.slot >= options_.parallel)
    fail_param("id_slot", "id_slot: expected -1 (any) or 0 to {}, found {}", options_.parallel - 1,
               request.slot);
  if (request.keep_tokens < -1 || request.discard_tokens < 0)
    fail_param(request.discard_tokens < 0 ? "n_discard" : "n_keep",
               "n_keep, n_discard: expected -1 or more and 0 or more tokens, found {} and {}",
               request.keep_tokens, request.discard_tokens);
  if (request.max_tokens < -1)
    fail_param("max_tokens", "max_tokens: expected -1 (to the window's end) or more, found {}",
               request.max_tokens);
}

std::unique_ptr<Sequence> Loop::make_sequence(Request request, Sink sink) {
  check_prompt(request);
  check_loops(request.loops);
  request.loops = loops_in_force(request, loops_, info_.model_type);
  if (request.eos.empty()) request.eos = eos_;
  if (request.ignore_eos) {
    for (const std::vector<TokenId>* ids : {&eos_, static_cast<const std::vector<TokenId>*>(&request.eos)})
      for (TokenId id : *ids)
        if (id >= 0 && id < info_.vocab_size) request.sampling.banned.push_back(id);
    request.eos.clear();
  }
  if (info_.diffusion.mask >= 0) request.sampling.banned.push_back(info_.diffusion.mask);

  if (!request.sampling.language_bias) request.sampling.language_bias = language_bias();
  auto sequence = std::make_unique<Sequence>();
  const SamplingParams& sampling = request.sampling;
  const bool needs_bytes =
      request.grammar.grammar || (sampling.dry_multiplier > 0.0f && !sampling.dry_breakers.empty());
  const auto bytes = needs_bytes ? token_bytes() : nullptr;
  sequence->sampler.emplace(sampling, info_.vocab_size, request.choice, bytes);
  if (request.grammar.grammar) {
    if (request.ignore_eos)
      fail_param("ignore_eos",
                 "ignore_eos: a constrained answer ends when it is complete; leave one of the two out");
    sequence->gate.emplace(request.grammar, bytes, request.eos, info_.vocab_size);
  }
  auto chosen = adapters_.choose(request.adapters);
  sequence->adapters = std::move(chosen.set);
  sequence->adapter_key = std::move(chosen.key);
  sequence->prompt_tokens = static_cast<int>(request.prompt.size());
  const bool shifts = options_.context_shift && info_.diffusion.block == 0;
  sequence->limit = shifts ? std::numeric_limits<int>::max() : context_ - sequence->prompt_tokens;
  if (request.max_tokens >= 0) sequence->limit = std::min(sequence->limit, request.max_tokens);
  sequence->tokens = std::move(request.prompt);
  sequence->request = std::move(request);
  begin_canvas(*sequence);
  if (disk_ && sequence->request.cache_prompt && !sequence->request.prompt_logprobs &&
      sequence->tokens.size() > 1)
    sequence->stored = disk_->find(cache_scope(*sequence), sequence->tokens, !uncuttable_);
  sequence->sink = std::move(sink);
  sequence->cancelled = std::make_shared<std::atomic<bool>>(false);
  sequence->submitted = Clock::now();
  return sequence;
}

int Loop::load_adapter(const AdapterSource& source) {
  check_scale("scale", source.scale);
  const AdapterFiles files = AdapterFiles::read(source.path);
  return adapters_.add(files, model_->adapter(files), source.scale);
}

std::pair<uint64_t, std::shared_ptr<std::atomic<bool>>> Loop::submit(Request request, Sink sink) {
  auto sequence = make_sequence(std::move(request), std::move(sink));
  auto cancelled = sequence->cancelled;
  const uint64_t id = inbox_.put(std::move(sequence));
  return {id, std::move(cancelled)};
}

std::future<EmbedJob::Outcome> Loop::embed(const EmbedRequest& request) {
  if (!info_.encoder)
    fail(ErrorKind::unsupported, "{} generates text: it gives no embeddings", info_.model_type);
  auto job = std::make_unique<EmbedJob>();
  job->request = request;
  job->pooling = embedding_.pooling;
  if (!request.pooling.empty()) {
    const auto pooling = parse_pooling(request.pooling);
    if (!pooling)
      fail_param("pooling", "pooling: expected mean, cls, last or max, found \"{}\"", request.pooling);
    job->pooling = *pooling;
  }
  const int width = embedding_.dense.empty() ? info_.hidden : embedding_.dense.back().out;
  if (request.dimensions < 0 || request.dimensions > width)
    fail_param("dimensions", "dimensions: expected 1 to {}, found {}", width, request.dimensions);
  check_inputs(*job);
  return enqueue(std::move(job));
}

std::future<EmbedJob::Outcome> Loop::score(const ScoreRequest& request) {
  if (!info_.encoder || (info_.labels == 0 && !request.answers))
    fail(ErrorKind::unsupported, "{} is no reranker: it gives no scores", info_.model_type);
  auto job = std::make_unique<EmbedJob>();
  job->request.inputs = request.inputs;
  job->scores = true;
  job->seconds = request.seconds;
  if (info_.labels == 0) job->answers = request.answers;
  if (!request.seconds.empty() && request.seconds.size() != request.inputs.size())
    fail_param("input", "input: {} texts with {} beginnings of second texts", request.inputs.size(),
               request.seconds.size());
  if (job->answers)
    for (const TokenId id : {job->answers->first, job->answers->second})
      if (id < 0 || id >= info_.vocab_size)
        fail_param("answers", "answers: token {} is outside the vocabulary of {} tokens", id,
                   info_.vocab_size);
  check_inputs(*job);
  return enqueue(std::move(job));
}

/// Lengths and ids; cuts what may be cut, counts tokens, makes room for the answers.
void Loop::check_inputs(EmbedJob& job) const {
  const EmbedRequest& request = job.request;
  if (request.inputs.empty()) fail_param("input", "input: expected at least one text");
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    auto& tokens = job.request.inputs[i];
    if (tokens.empty()) fail_param("input", "input[{}] has no tokens", i);
    if (tokens.size() > static_cast<size_t>(embedding_.max_input)) {
      if (!request.truncate)
        fail_param("input", "input[{}] has {} tokens, this model takes {}: shorten it or ask for truncation",
                   i, tokens.size(), embedding_.max_input);
      const TokenId last = tokens.back();
      tokens.resize(static_cast<size_t>(embedding_.max_input));
      if (tokenizer_ != nullptr && tokenizer_->is_special(last))
        tokens.back() = last;  // SEP closes every input
      ++job.result.truncated;
    }
    for (TokenId id : tokens)
      if (id < 0 || id >= info_.vocab_size)
        fail_param("input", "input[{}]: token {} is outside the vocabulary of {} tokens", i, id,
                   info_.vocab_size);
    job.result.prompt_tokens += static_cast<int>(tokens.size());
  }
  job.result.vectors.resize(request.inputs.size());
}

std::future<EmbedJob::Outcome> Loop::enqueue(std::unique_ptr<EmbedJob> job) {
  auto future = job->promise.get_future();
  inbox_.put(std::move(job));
  return future;
}

}  // namespace mlxcel
