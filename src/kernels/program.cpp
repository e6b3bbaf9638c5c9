#include "kernels/program.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/packed.h"
#include "kernels/primitive.h"
#include "kernels/program_rows.h"

namespace mlxcel::kernels {
namespace {

// Of a step: what is said of a model of thirty layers. A longer one grows as vectors do.
constexpr size_t kOps = 192;
// Below so many multiply-adds a program's phases are not worth a second worker.
constexpr long long kParallel = 1 << 18;
constexpr size_t kLine = 16;  // floats of a cache line

RowNorm row_norm(const NormForm& form) {
  return {.layer = form.layer,
          .weight = form.weight ? form.weight->data<float>() : nullptr,
          .bias = form.bias ? form.bias->data<float>() : nullptr,
          .eps = form.eps,
          .offset = form.offset};
}

}  // namespace

Program::Norm::Norm(const NormForm& f) : form(f), row(row_norm(f)) {}

/// What an evaluation needs beside the program; kept by the thread that runs it, so that nothing is allocated
/// once warm.
class Program::Run {
 public:
  void operator()(const Program& program, const Buffers& buffers) {
    program_ = &program;
    buffers_ = &buffers;
    base_ = slots_.get<float>(program.scratch_floats_);
    phases_.clear();
    products_.clear();
    attentions_.clear();
    rows_used_ = 0;
    jobs_used_ = works_used_ = 0;
    for (const Op& op : program.ops_) std::visit([this](const auto& o) { plan(o); }, op);
    products_.bind();
    attentions_.bind();
    run_phases(phases_, program.multiply_adds() < kParallel);
  }

 private:
  float* at(Slot slot) const {
    if (slot == kNone) return nullptr;
    const Values& values = program_->slots_[static_cast<size_t>(slot)];
    if (values.of != kNone) return at(values.of) + values.from;
    if (values.input >= 0) return const_cast<float*>(buffers_->input<float>(values.input));
    if (slot == program_->result_) return buffers_->output<float>();
    return base_ + program_->offsets_[static_cast<size_t>(slot)];
  }

  RowWork& row_work(RowWork::Kind kind, Slot out) {
    if (rows_used_ == rows_.size()) rows_.push_back(std::make_unique<RowWork>());
    RowWork& work = *rows_[rows_used_++];
    work = RowWork{};
    work.kind = kind;
    work.out = at(out);
    work.width = program_->width(out);
    const int count = program_->rows(out);
    phases_.push_back({&work, 0, count, std::clamp(count / 8, 1, 16)});
    return work;
  }

  void plan(const Lookup& op) {
    RowWork& work = row_work(RowWork::kLookup, op.out);
    work.table = op.table.get();
    work.ids = buffers_->input<int>(op.ids);
    work.scale = op.scale;
  }
  void plan(const Angles& op) {
    RowWork& work = row_work(RowWork::kAngles, op.out);
    work.ids = buffers_->input<int>(op.positions);
    work.frequencies = op.frequencies.data<float>();
    work.scale = op.scale;
  }
  void plan(const Add& op) {
    RowWork& work = row_work(RowWork::kAdd, op.out);
    work.norm = op.norm ? &op.norm->row : nullptr;
    work.scale = op.scale;
    work.a = at(op.a);
    work.b = at(op.b);
  }
  void plan(const Columns& op) {
    RowWork& work = row_work(RowWork::kColumns, op.x);
    work.norm = op.norm ? &op.norm->row : nullptr;
    work.from = op.form.from;
    work.heads = op.form.heads;
    work.each = op.form.width;
    work.clip = op.form.clip;
    work.weights = op.form.weights ? op.form.weights->data<float>() : nullptr;
  }
  void plan(const Times& op) {
    RowWork& work = row_work(RowWork::kTimes, op.out);
    work.parts = program_->width(op.b);
    work.b_width = program_->stride(op.b);
    work.activation = op.activation;
    work.a = at(op.a);
    work.b = at(op.b);
  }
  void plan(const Work& op) {
    if (works_used_ == works_.size()) works_.push_back(std::make_unique<OwnWork>());
    OwnWork& own = *works_[works_used_++];
    own.form = &op.form;
    own.view = {};
    for (size_t i = 0; i < op.form.reads.size(); ++i) {
      own.view.read[i] = at(op.form.reads[i]);
      own.view.stride[i] = program_->stride(op.form.reads[i]);
    }
    for (size_t i = 0; i < op.arrays.size(); ++i) own.view.from[i] = buffers_->input<float>(op.arrays[i]);
    for (size_t i = 0; i < op.made.size(); ++i) own.view.made[i] = at(op.made[i]);
    for (size_t i = 0; i < op.form.gives.size(); ++i)
      own.view.given[i] = buffers_->output<float>(1 + static_cast<int>(op.gives + i));
    phases_.push_back({&own, 0, op.form.tasks, op.form.grain});
  }
  void plan(const Multiply& op) {
    const auto data = [](const std::optional<array>& a) { return a ? a->data<float>() : nullptr; };
    Product p;
    p.weights = op.weights.get();
    p.precision = op.precision;
    p.x = at(op.x);
    p.x_stride = program_->stride(op.x);
    p.norm = op.norm ? &op.norm->row : nullptr;
    p.sources = op.form.rows.empty() ? nullptr : op.form.rows.data();
    p.out = at(op.out);
    p.out_columns = program_->width(op.out);
    p.bias = data(op.form.bias);
    p.up_bias = data(op.form.up_bias);
    p.residual = at(op.form.residual);
    p.activation = op.form.activation;
    const Job job{0, 0, program_->rows(op.out)};
    products_.add(p, std::span(&job, 1), phases_);
  }
  void plan(const Attend& op) {
    const PageBlocks& blocks = op.pool.blocks;
    const ptrdiff_t head = blocks.key_dim;
    AttentionCall call{};
    call.q = at(op.qkv);
    call.k = call.q + op.form.heads * head;
    call.v = call.k + blocks.kv_heads * head;
    call.q_stride = call.k_stride = call.v_stride = program_->width(op.qkv);
    call.sinks = op.sinks ? op.sinks->data<float>() : nullptr;
    call.out = at(op.out);
    call.pages = op.pool.layer;
    call.page_bytes = op.pool.page_bytes;
    blocks.tell(call);
    call.heads = op.form.heads;
    call.scale = op.form.scale;
    call.softcap = op.form.softcap;
    call.window = op.form.window;
    call.chunk = op.form.chunk;
    call.rows = op.rows->rows.data();
    call.tables = op.rows->tables.data();
    HeadTurn turn;
    turn.q_norm = op.q_norm ? &op.q_norm->row : nullptr;
    turn.k_norm = op.k_norm ? &op.k_norm->row : nullptr;
    turn.angles = at(op.heads.angles);
    turn.half = op.heads.angles == kNone ? 0 : program_->width(op.heads.angles) / 2;
    turn.interleaved = op.heads.interleaved;
    turn.factors = at(op.heads.factors);
    attentions_.add(call, static_cast<int>(op.rows->rows.size()), &turn, phases_);
  }
  void plan(const AttendLatent& op) {
    AttentionCall call{};
    call.q = at(op.q);
    call.q_stride = program_->stride(op.q);
    call.k = at(op.k);
    call.k_stride = program_->stride(op.k);
    call.out = at(op.out);
    call.pages = op.pool.layer;
    call.page_bytes = op.pool.page_bytes;
    op.pool.blocks.tell(call);
    call.heads = op.form.heads;
    call.scale = op.form.scale;
    call.softcap = op.form.softcap;
    call.window = op.form.window;
    call.chunk = op.form.chunk;
    call.rows = op.rows->rows.data();
    call.tables = op.rows->tables.data();
    attentions_.add(call, static_cast<int>(op.rows->rows.size()), nullptr, phases_);
  }
  void plan(const HeadMultiply& op) {
    if (jobs_used_ == jobs_.size()) jobs_.push_back(std::make_unique<HeadJobs>());
    HeadJobs& own = *jobs_[jobs_used_++];
    const int tokens = program_->rows(op.x), heads = op.weights->experts;
    own.jobs.clear();
    own.rows.clear();
    for (int h = 0; h < heads; ++h) {
      own.jobs.push_back({h, h * tokens, tokens});
      for (int t = 0; t < tokens; ++t) own.rows.push_back(t * heads + h);
    }
    Product p;
    p.weights = op.weights.get();
    p.precision = op.precision;
    p.x = at(op.x);
    p.x_stride = program_->width(op.x) / heads;
    p.sources = p.targets = own.rows.data();
    p.out = at(op.out);
    p.out_columns = program_->width(op.out) / heads;
    products_.add(p, own.jobs, phases_);
  }
  void plan(const TurnHeads& op) {
    RowWork& work = row_work(RowWork::kTurn, op.to);
    work.a = at(op.x);
    work.a_width = program_->stride(op.x);
    work.b = at(op.form.angles);
    work.turned = op.form.angles == kNone ? 0 : program_->width(op.form.angles) / 2;
    work.interleaved = op.form.interleaved;
    work.heads = op.form.heads;
    work.wide = op.form.width;
    work.from = op.form.from;
    work.each = op.form.each;
    work.to_from = op.form.to_from;
    work.to_each = op.form.to_each;
  }

  const Program* program_ = nullptr;
  const Buffers* buffers_ = nullptr;
  float* base_ = nullptr;
  Scratch slots_;
  std::vector<Phase> phases_;
  Products products_;
  Attentions attentions_;
  std::vector<std::unique_ptr<RowWork>> rows_;
  size_t rows_used_ = 0;
  struct HeadJobs {
    std::vector<Job> jobs;
    std::vector<int> rows;
  };
  std::vector<std::unique_ptr<HeadJobs>> jobs_;
  size_t jobs_used_ = 0;
  struct OwnWork final : PhaseWork {
    const WorkForm* form = nullptr;
    WorkView view;
    void run(int, int, int begin, int end) override {
      for (int task = begin; task < end; ++task) form->run(view, task);
    }
  };
  std::vector<std::unique_ptr<OwnWork>> works_;
  size_t works_used_ = 0;
};

bool Program::is_constant(const std::optional<array>& a) {
  return !a ||
         (a->is_available() && a->dtype() == mx::float32 && (a->flags().row_contiguous || a->size() <= 1));
}

bool Program::takes(const Matrix& matrix) {
  const auto& storage = matrix.storage();
  return storage && storage->mode == KernelMode::native && storage->experts == 0 &&
         (!storage->gate_up || storage->fused_gate());
}

bool Program::takes_bank(const Matrix& matrix) {
  const auto& storage = matrix.storage();
  return storage && storage->mode == KernelMode::native && storage->experts > 0 && !storage->gate_up;
}

template <class O>
void Program::say(O op) {
  if (ops_.empty()) {  // growing would move every operation twice
    ops_.reserve(kOps);
    slots_.reserve(kOps);
  }
  ops_.emplace_back(std::move(op));
}

Program::Slot Program::make(int rows, int width, int input) {
  slots_.push_back({.rows = rows, .width = width, .input = input});
  return static_cast<Slot>(slots_.size()) - 1;
}

Program::Slot Program::part(Slot x, int from, int width) {
  if (values(x).of != kNone || from < 0 || width < 1 || width > this->width(x) - from)
    fail(ErrorKind::internal, "program: columns {} to {} of a value of {}", from, from + width,
         this->width(x));
  slots_.push_back({.rows = rows(x), .width = width, .of = x, .from = from});
  return static_cast<Slot>(slots_.size()) - 1;
}

void Program::expect_own(Slot x, const char* what) const {
  if (values(x).input >= 0 || values(x).of != kNone)
    fail(ErrorKind::internal, "program: {} are changed in place, they cannot be an input or a part", what);
}

int Program::node_input(const array& x) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].id() == x.id()) return static_cast<int>(i);
  inputs_.push_back(x);
  return static_cast<int>(inputs_.size()) - 1;
}

Program::Slot Program::input(const array& x) {
  if (x.ndim() != 2 || x.dtype() != mx::float32)
    fail(ErrorKind::internal, "program: expected [rows, width] of f32, got {}", to_string(x.shape()));
  return make(x.shape(0), x.shape(1), node_input(x));
}

Program::Slot Program::lookup(const Matrix& table, const array& ids, float scale) {
  const Slot out = make(ids.shape(0), table.columns());
  say(Lookup{table.storage(), node_input(ids), scale, out});
  return out;
}

Program::Slot Program::angles(const array& positions, const array& frequencies, float scale) {
  const Slot out = make(positions.shape(0), 2 * frequencies.shape(0));
  say(Angles{node_input(positions), frequencies, scale, out});
  return out;
}

Program::Slot Program::product(Slot x, const Matrix& matrix, ProductForm form) {
  const auto& storage = matrix.storage();
  if (width(x) != storage->columns)
    fail(ErrorKind::internal, "program: a matrix of {} columns meets rows of {}", storage->columns, width(x));
  const int columns = storage->fused_gate() ? storage->rows / 2 : storage->rows;
  const int count = form.rows.empty() ? rows(x) : static_cast<int>(form.rows.size());
  if (form.residual != kNone && (rows(form.residual) != count || stride(form.residual) != columns))
    fail(ErrorKind::internal, "program: a residual of [{}, {}] for a product of [{}, {}]",
         rows(form.residual), width(form.residual), count, columns);
  std::optional<Norm> norm;
  if (form.norm) norm.emplace(*form.norm);
  const Slot out = make(count, columns);
  say(Multiply{storage, precision(), x, std::move(form), std::move(norm), out});
  return out;
}

Program::Slot Program::attention(Slot qkv, const HeadsForm& heads, const std::optional<array>& sinks,
                                 const PagePool& pool, std::shared_ptr<const AttentionRows> rows_of,
                                 const AttentionForm& form) {
  const PageBlocks& blocks = pool.blocks;
  expect_own(qkv, "q, k and v");
  if (blocks.key_dim != blocks.value_dim || width(qkv) != (form.heads + 2 * blocks.kv_heads) * blocks.key_dim)
    fail(ErrorKind::internal, "program: q, k and v of {} values, expected {} + 2 * {} heads of {}",
         width(qkv), form.heads, blocks.kv_heads, blocks.key_dim);
  if (heads.factors != kNone && (rows(heads.factors) != rows(qkv) || width(heads.factors) != 1))
    fail(ErrorKind::internal, "program: factors of [{}, {}] for {} tokens", rows(heads.factors),
         width(heads.factors), rows(qkv));
  const auto norm = [](const std::optional<NormForm>& f) {
    std::optional<Norm> n;
    if (f) n.emplace(*f);
    return n;
  };
  const Slot out = make(rows(qkv), form.heads * blocks.value_dim);
  say(Attend{qkv, heads, norm(heads.q_norm), norm(heads.k_norm), sinks, pool, std::move(rows_of), form, out});
  return out;
}

Program::Slot Program::add(Slot a, Slot b, std::optional<NormForm> form, float scale) {
  if (a != kNone && (rows(a) != rows(b) || width(a) != width(b)))
    fail(ErrorKind::internal, "program: [{}, {}] added to [{}, {}]", rows(b), width(b), rows(a), width(a));
  std::optional<Norm> norm;
  if (form) norm.emplace(*form);
  const Slot out = make(rows(b), width(b));
  say(Add{a, b, std::move(norm), scale, out});
  return out;
}

void Program::columns(Slot x, ColumnsForm form) {
  expect_own(x, "columns");
  if (form.from < 0 || form.heads < 1 || form.width < 1 || form.heads > (width(x) - form.from) / form.width)
    fail(ErrorKind::internal, "program: {} heads of {} from column {} of {}", form.heads, form.width,
         form.from, width(x));
  if (form.weights && static_cast<int>(form.weights->size()) != form.heads * form.width)
    fail(ErrorKind::internal, "program: {} weights for {} heads of {}", form.weights->size(), form.heads,
         form.width);
  std::optional<Norm> norm;
  if (form.norm) norm.emplace(*form.norm);
  say(Columns{x, std::move(form), std::move(norm)});
}

Program::Slot Program::multiply(Slot a, Slot b, Activation activation) {
  if (rows(a) != rows(b) || width(b) < 1 || width(a) % width(b) != 0)
    fail(ErrorKind::internal, "program: [{}, {}] times [{}, {}]", rows(a), width(a), rows(b), width(b));
  const Slot out = make(rows(a), width(a));
  say(Times{a, b, activation, out});
  return out;
}

std::vector<Program::Slot> Program::work(WorkForm form) {
  constexpr size_t kMost = WorkView::kMost;
  if (form.reads.size() > kMost || form.arrays.size() > kMost || form.makes.size() > kMost ||
      form.gives.size() > kMost || form.tasks < 1)
    fail(ErrorKind::internal, "program: work of {} tasks that reads {} values", form.tasks,
         form.reads.size());
  Work work{.form = std::move(form), .arrays = {}, .gives = gives_.size(), .made = {}};
  for (const array& a : work.form.arrays) work.arrays.push_back(node_input(a));
  for (const auto& [rows, width] : work.form.makes) work.made.push_back(make(rows, width));
  for (const Shape& shape : work.form.gives) gives_.push_back(shape);
  work.form.arrays.clear();  // the node holds them
  std::vector<Slot> made = work.made;
  say(std::move(work));
  return made;
}

Program::Slot Program::by_heads(Slot x, const Matrix& bank, int out_each) {
  const auto& storage = bank.storage();
  const int heads = storage->experts;
  if (width(x) != stride(x) || width(x) % heads != 0 || width(x) / heads < storage->columns ||
      out_each < storage->rows)
    fail(ErrorKind::internal, "program: {} heads of {} for a row of {}, {} apart", heads, storage->columns,
         stride(x), out_each);
  const Slot out = make(rows(x), heads * out_each);
  say(HeadMultiply{storage, precision(), x, out});
  return out;
}

void Program::turn(Slot x, Slot to, TurnForm form) {
  expect_own(to, "heads");
  const auto fits = [&](int from, int each, int all) {
    return from >= 0 && form.heads >= 1 && form.width >= 1 && each >= form.width &&
           form.heads - 1 <= (all - from - form.width) / each && from + form.width <= all;
  };
  if (rows(x) != rows(to) || !fits(form.from, form.each, stride(x)) ||
      !fits(form.to_from, form.to_each, width(to)) ||
      (form.angles != kNone && width(form.angles) > form.width))
    fail(ErrorKind::internal, "program: {} heads of {} from [{}, {}] to [{}, {}]", form.heads, form.width,
         rows(x), stride(x), rows(to), width(to));
  say(TurnHeads{x, form, to});
}

Program::Slot Program::latent_attention(Slot q, Slot k, const PagePool& pool,
                                        std::shared_ptr<const AttentionRows> rows_of,
                                        const AttentionForm& form) {
  const PageBlocks& blocks = pool.blocks;
  if (blocks.latent < 1 || blocks.kv_heads != 1 || width(k) != blocks.key_dim ||
      width(q) != form.heads * blocks.key_dim || rows(q) != rows(k))
    fail(ErrorKind::internal, "program: q of {} and k of {} values, pages hold latents of {}", width(q),
         width(k), blocks.key_dim);
  const Slot out = make(rows(q), form.heads * blocks.latent);
  say(AttendLatent{q, k, pool, std::move(rows_of), form, out});
  return out;
}

void Program::back_to(const Mark& mark) {
  ops_.erase(ops_.begin() + static_cast<ptrdiff_t>(mark.ops), ops_.end());
  slots_.erase(slots_.begin() + static_cast<ptrdiff_t>(mark.slots), slots_.end());
  gives_.erase(gives_.begin() + static_cast<ptrdiff_t>(mark.gives), gives_.end());
}

template <class Visit>
void Program::each_read(const Op& op, const Visit& visit) {
  if (const auto* m = std::get_if<Multiply>(&op)) {
    visit(m->x);
    visit(m->form.residual);
  } else if (const auto* a = std::get_if<Attend>(&op)) {
    visit(a->qkv);
    visit(a->heads.angles);
    visit(a->heads.factors);
  } else if (const auto* s = std::get_if<Add>(&op)) {
    visit(s->a);
    visit(s->b);
  } else if (const auto* c = std::get_if<Columns>(&op)) {
    visit(c->x);
  } else if (const auto* t = std::get_if<Times>(&op)) {
    visit(t->a);
    visit(t->b);
  } else if (const auto* h = std::get_if<HeadMultiply>(&op)) {
    visit(h->x);
  } else if (const auto* l = std::get_if<AttendLatent>(&op)) {
    visit(l->q);
    visit(l->k);
  } else if (const auto* n = std::get_if<TurnHeads>(&op)) {
    visit(n->x);
    visit(n->to);
    visit(n->form.angles);
  } else if (const auto* w = std::get_if<Work>(&op)) {
    for (const Slot slot : w->form.reads) visit(slot);
  }
}

template <class Visit>
void Program::each_made(const Op& op, const Visit& visit) {
  const Slot one = std::visit([](const auto& o) { return o.out; }, op);
  if (one != kNone) visit(one);
  if (const auto* w = std::get_if<Work>(&op))
    for (const Slot slot : w->made) visit(slot);
}

void Program::place() {
  std::vector<size_t> last(slots_.size(), 0);
  for (size_t i = 0; i < ops_.size(); ++i)
    each_read(ops_[i], [&](Slot slot) {
      if (slot != kNone) last[static_cast<size_t>(values(slot).of == kNone ? slot : values(slot).of)] = i;
    });
  struct Cell {
    size_t size;
    size_t free_from;  // operations from this one on may take it
  };
  std::vector<Cell> cells;
  std::vector<size_t> cell_of(slots_.size(), 0);
  std::vector<Slot> placed;
  const auto hold = [&](Slot out, size_t i) {
    if (out == result_) return;
    const Values& made = values(out);
    const size_t floats = static_cast<size_t>(made.rows) * static_cast<size_t>(made.width);
    const size_t size = (floats + kLine - 1) / kLine * kLine;
    size_t best = cells.size();
    for (size_t c = 0; c < cells.size(); ++c)
      if (cells[c].free_from <= i && cells[c].size >= size &&
          (best == cells.size() || cells[c].size < cells[best].size))
        best = c;
    if (best == cells.size()) cells.push_back({size, 0});
    cells[best].free_from = std::max(last[static_cast<size_t>(out)], i) + 1;
    cell_of[static_cast<size_t>(out)] = best;
    placed.push_back(out);
  };
  for (size_t i = 0; i < ops_.size(); ++i) each_made(ops_[i], [&](Slot out) { hold(out, i); });
  std::vector<size_t> begin(cells.size(), 0);
  scratch_floats_ = kLine;
  for (size_t c = 0; c < cells.size(); ++c) {
    begin[c] = scratch_floats_;
    scratch_floats_ += cells[c].size;
  }
  offsets_.assign(slots_.size(), -1);
  for (const Slot slot : placed)
    offsets_[static_cast<size_t>(slot)] = static_cast<ptrdiff_t>(begin[cell_of[static_cast<size_t>(slot)]]);
}

long long Program::multiply_adds() const {
  long long total = 0;
  for (const Op& op : ops_) {
    if (const auto* m = std::get_if<Multiply>(&op))
      total += static_cast<long long>(rows(m->out)) * m->weights->rows * m->weights->columns;
    else if (const auto* w = std::get_if<Work>(&op))
      total += w->form.multiply_adds;
    else if (const auto* h = std::get_if<HeadMultiply>(&op))
      total +=
          static_cast<long long>(rows(h->out)) * h->weights->experts * h->weights->rows * h->weights->columns;
    else if (const auto* a = std::get_if<Attend>(&op))
      for (const AttentionRow& row : a->rows->rows)
        total += static_cast<long long>(row.count) * (row.position + row.count) * a->form.heads *
                 a->pool.blocks.key_dim;
  }
  return total;
}

std::vector<array> Program::output(std::shared_ptr<Program> program, Slot slot) {
  const Values last = program->slots_.at(static_cast<size_t>(slot));
  if (last.of != kNone) fail(ErrorKind::internal, "program: its output is a part of a value");
  if (last.input >= 0) {
    if (!program->ops_.empty()) fail(ErrorKind::internal, "program: its output is an input");
    return {program->inputs_[static_cast<size_t>(last.input)]};
  }
  program->result_ = slot;
  program->place();
  std::vector<array> inputs = program->inputs_;
  program->inputs_.clear();
  std::vector<Shape> shapes{{last.rows, last.width}};
  shapes.insert(shapes.end(), program->gives_.begin(), program->gives_.end());
  const std::vector<mx::Dtype> types(shapes.size(), mx::float32);
  return native_ops_at_once(
      "program", std::move(shapes), types, inputs,
      [program = std::shared_ptr<const Program>(std::move(program))](const Buffers& buffers) {
        static thread_local Run run;
        run(*program, buffers);
      });
}

}  // namespace mlxcel::kernels
