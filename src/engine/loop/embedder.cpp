#include "engine/loop/embedder.h"

#include <fmt/format.h>
#include <mlx/transforms.h>

#include <cmath>

#include "base/clock.h"
#include "engine/loop/fault.h"
#include "state/step.h"

namespace mlxcel {

void EmbedJob::settle(const std::optional<Error>& error) {
  if (settled) return;
  settled = true;
  if (error)
    promise.set_value(*error);
  else
    promise.set_value(std::move(result));
}

Embedder::Outcome Embedder::step(Jobs& jobs) {
  std::vector<Input> inputs;
  int tokens = 0;
  const EmbedJob* kind = nullptr;  // a step gives vectors, scores or logits
  for (const auto& job : jobs) {
    if (kind != nullptr &&
        (kind->scores != job->scores || kind->answers.has_value() != job->answers.has_value()))
      continue;
    while (!job->settled && job->next < job->request.inputs.size()) {
      const int count = static_cast<int>(job->request.inputs[job->next].size());
      if (!inputs.empty() && tokens + count > budget_) break;
      kind = job.get();
      inputs.push_back({job.get(), job->next++});
      tokens += count;
    }
    if (tokens >= budget_) break;
  }
  Outcome outcome;
  if (inputs.empty()) return outcome;
  try {
    evaluate(inputs, outcome);
    return outcome;
  } catch (const std::exception& error) {
    outcome.evaluation_failed = true;
    outcome.error = error.what();
    if (inputs.size() == 1) {
      inputs[0].job->settle(to_error(error));
      return outcome;
    }
  }
  // One input may have spoiled the step: each alone, so that only the culprit's job fails.
  for (const Input& input : inputs) {
    if (input.job->settled) continue;
    try {
      evaluate({input}, outcome);
    } catch (const std::exception& error) {
      input.job->settle(to_error(error));
    }
  }
  return outcome;
}

void Embedder::evaluate(const std::vector<Input>& inputs, Outcome& outcome) {
  Step step;
  const EmbedJob& first = *inputs.front().job;
  for (const Input& input : inputs)
    step.add(nullptr, input.job->request.inputs[input.index], first.answers ? Wants::last : Wants::none,
             nullptr, input.job->seconds.empty() ? 0 : input.job->seconds[input.index]);
  step.seal();
  if (first.scores) return score(inputs, step, outcome);
  const TimePoint before = Clock::now();
  array hidden = mx::contiguous(model_.hidden(step));
  mx::eval(hidden);
  outcome.kernel_seconds += seconds_between(before, Clock::now());
  outcome.any_succeeded = true;
  const int width = hidden.shape(-1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EmbedJob& job = *inputs[i].job;
    if (job.settled) continue;
    const StepRow& row = step.rows()[i];
    const std::span<const float> values(
        hidden.data<float>() + static_cast<size_t>(row.first) * static_cast<size_t>(width),
        static_cast<size_t>(row.count) * static_cast<size_t>(width));
    outcome.inputs += 1;
    outcome.tokens += row.count;
    try {
      job.result.vectors[inputs[i].index] =
          pool(values, width, job.pooling, job.request.dimensions, job.request.normalize, dense_);
    } catch (const std::exception& error) {
      job.settle(to_error(error));
      continue;
    }
    if (++job.done == job.request.inputs.size()) job.settle();
  }
}

void Embedder::score(const std::vector<Input>& inputs, Step& step, Outcome& outcome) {
  const bool answers = inputs.front().job->answers.has_value();
  const TimePoint before = Clock::now();
  array values = mx::contiguous(answers ? model_.logits(step) : model_.scores(step));
  mx::eval(values);
  outcome.kernel_seconds += seconds_between(before, Clock::now());
  outcome.any_succeeded = true;
  const auto width = static_cast<size_t>(values.shape(-1));
  for (size_t i = 0; i < inputs.size(); ++i) {
    EmbedJob& job = *inputs[i].job;
    if (job.settled) continue;
    const std::span<const float> row(values.data<float>() + i * width, width);
    outcome.inputs += 1;
    outcome.tokens += step.rows()[i].count;
    auto& result = job.result.vectors[inputs[i].index];
    if (answers)
      result = {row[static_cast<size_t>(job.answers->first)] - row[static_cast<size_t>(job.answers->second)]};
    else
      result.assign(row.begin(), row.end());
    for (const float x : result)
      if (!std::isfinite(x)) {
        job.settle(Error(ErrorKind::internal,
                         fmt::format("input[{}]: the model's score is not a number", inputs[i].index)));
        break;
      }
    if (!job.settled && ++job.done == job.request.inputs.size()) job.settle();
  }
}

}  // namespace mlxcel
