// Engines over the fake model, their requests and what comes of them. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "engine/engine.h"
#include "engine/loop/fake_model.h"

namespace mlxcel::testing {

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<TimePoint> times;  // of each token's event
  std::vector<Draw> draws, scored;
  std::vector<Progress> progress;
  std::optional<Finished> finished;
  std::optional<Error> error;
  TimePoint end = {};
};

/// A request under way, its events collected by whoever waits.
struct Running {
  using Events = Channel<std::pair<Event, TimePoint>>;
  std::shared_ptr<Events> events = std::make_shared<Events>();
  Handle handle;

  /// Waits for one token; false when the end came first.
  bool token(Outcome& outcome) {
    while (auto event = events->pop_for(std::chrono::seconds(30))) {
      const size_t before = outcome.tokens.size();
      take(outcome, std::move(event->first), event->second);
      if (outcome.finished || outcome.error) return false;
      if (outcome.tokens.size() > before) return true;
    }
    ADD_FAILURE() << "no event in 30 s";
    return false;
  }
  /// Until the end, or for so many tokens.
  Outcome wait(size_t tokens = ~size_t{0}) {
    Outcome outcome;
    while (outcome.tokens.size() < tokens && token(outcome)) {
    }
    return outcome;
  }

 private:
  static void take(Outcome& outcome, Event event, TimePoint at) {
    outcome.end = at;
    if (auto* token = std::get_if<Token>(&event)) {
      outcome.tokens.push_back(token->draw.token);
      outcome.draws.push_back(token->draw);
      outcome.times.push_back(at);
    }
    if (auto* scored = std::get_if<Scored>(&event))
      outcome.scored.insert(outcome.scored.end(), scored->tokens.begin(), scored->tokens.end());
    if (auto* progress = std::get_if<Progress>(&event)) outcome.progress.push_back(*progress);
    if (auto* finished = std::get_if<Finished>(&event)) outcome.finished = *finished;
    if (auto* failed = std::get_if<Failed>(&event)) outcome.error.emplace(failed->error);
  }
};

class FakeEngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> make(const EngineOptions& options = {}, int window = 512, bool encoder = false) {
    control_ = std::make_shared<FakeControl>();
    Checkpoint checkpoint;
    checkpoint.eos_ids = {FakeModel::kEos};
    auto engine = Engine::with_model([&] { return std::make_unique<FakeModel>(control_, encoder, window); },
                                     nullptr, nullptr, checkpoint, options);
    control_->steps = 0;
    return engine;
  }
  static Running start(Engine& engine, Request request) {
    Running running;
    running.handle = engine.submit(std::move(request), [events = running.events](Event e) {
      events->push({std::move(e), Clock::now()});
    });
    return running;
  }
  static Request request(std::vector<int32_t> prompt, int max_tokens, Priority priority = Priority::normal) {
    Request r;
    r.prompt = std::move(prompt);
    r.max_tokens = max_tokens;
    r.priority = priority;
    return r;
  }
  static std::vector<int32_t> prompt(int length, int seed) {
    std::mt19937 rng(static_cast<unsigned>(seed));
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    for (auto& t : tokens) t = static_cast<int32_t>(rng() % 89);
    return tokens;
  }
  template <class F>
  static Error error_of(F&& f) {
    try {
      f();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing thrown";
    return {ErrorKind::internal, ""};
  }

  std::shared_ptr<FakeControl> control_;
};

}  // namespace mlxcel::testing
