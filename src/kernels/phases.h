// Work cut into phases that run inside one region of the worker pool: a phase begins when every task of the
// one before it is done. Nobody waits for a worker that holds no task, so a worker kept from its CPU by
// another process delays only the task it was in.
// Internal to kernels, state and nn. Thread: MLX's stream thread, or any other outside a pool region.
// Failure: tasks must not throw (see worker_pool.h).
#pragma once

#include <vector>

namespace mlxcel::kernels {

/// What the phases of one operation run. Owner: whoever planned the operation; outlives the run.
class PhaseWork {
 public:
  virtual ~PhaseWork() = default;
  /// Tasks [begin, end) of part `part`, on worker `worker`.
  virtual void run(int part, int worker, int begin, int end) = 0;
  /// Asks memory for a little of what worker `worker` of `width` will read first of part `part`: called with
  /// step 0, 1 and so on while the worker waits for the end of the phase before. False: there is no more to
  /// ask.
  virtual bool fetch(int /*part*/, int /*worker*/, int /*width*/, int /*step*/) { return false; }
};

struct Phase {
  PhaseWork* work = nullptr;
  int part = 0;
  int tasks = 0;  // at least 1
  int grain = 1;  // tasks taken at a time
};

/// Each worker goes through a share of its own first, so that it reads one stream of memory, then helps with
/// the others'. `serial`: everything on this thread, for work too small to share.
void run_phases(const std::vector<Phase>& phases, bool serial = false);

/// visit(begin, end) over [0, tasks) as one phase. Each worker begins with the share that it has of a product
/// of as many tasks: what it touches first lies in memory near it.
template <class Visit>
void run_tasks(int tasks, int grain, const Visit& visit) {
  struct Work final : PhaseWork {
    explicit Work(const Visit& v) : visit(v) {}
    void run(int, int, int begin, int end) override { visit(begin, end); }
    const Visit& visit;
  } work(visit);
  if (tasks > 0) run_phases({{&work, 0, tasks, grain}});
}

/// Tests: share even work too small to be worth it.
void share_everything(bool on);

}  // namespace mlxcel::kernels
