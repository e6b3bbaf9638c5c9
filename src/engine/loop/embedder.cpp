#include "engine/loop/embedder.h"

#include <mlx/transforms.h>

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
  for (const auto& job : jobs) {
    while (!job->settled && job->next < job->request.inputs.size()) {
      const int count = static_cast<int>(job->request.inputs[job->next].size());
      if (!inputs.empty() && tokens + count > budget_) break;
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
  for (const Input& input : inputs) step.add(nullptr, input.job->request.inputs[input.index], Wants::none);
  step.seal();
  array hidden = mx::contiguous(model_.hidden(step));
  const TimePoint before = Clock::now();
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
          pool(values, width, job.pooling, job.request.dimensions, job.request.normalize);
    } catch (const std::exception& error) {
      job.settle(to_error(error));
      continue;
    }
    if (++job.done == job.request.inputs.size()) job.settle();
  }
}

}  // namespace mlxcel
