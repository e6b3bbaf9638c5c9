#include "kernels/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/packed.h"
#include "kernels/primitive.h"

namespace mlxcel::kernels {
namespace {

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

/// Operations whose rows need no others, each row a task.
class RowWork final : public PhaseWork {
 public:
  enum Kind { kLookup, kAngles, kAdd, kColumns, kTimes };
  Kind kind = kAdd;
  const Matrix::Storage* table = nullptr;
  const int* ids = nullptr;  // of rows, or positions
  const float* frequencies = nullptr;
  float scale = 1.0f;
  const RowNorm* norm = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;
  ptrdiff_t width = 0;
  ptrdiff_t parts = 0;                // times: values of a row of b
  int from = 0, heads = 0, each = 0;  // columns
  float clip = 0.0f;
  const float* weights = nullptr;

  void run(int, int, int begin, int end) override {
    for (ptrdiff_t row = begin; row < end; ++row) {
      float* const to = out + row * width;
      if (kind == kLookup)
        look_up(ids[row], to);
      else if (kind == kAngles)
        turn(ids[row], to);
      else if (kind == kColumns)
        columns(to + from);
      else if (kind == kTimes)
        times(a + row * width, b + row * parts, to);
      else
        add(row, to);
    }
  }

 private:
  void look_up(int id, float* to) const {
    decode_row(*table, id, to);
    if (scale == 1.0f) return;
    for (ptrdiff_t i = 0; i < width; ++i) to[i] *= scale;
  }
  void turn(int position, float* to) const {
    const ptrdiff_t half = width / 2;
    for (ptrdiff_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      to[i] = std::cos(angle) * scale;
      to[half + i] = std::sin(angle) * scale;
    }
  }
  void add(ptrdiff_t row, float* to) const {
    const float* const source = b + row * width;
    if (norm)
      apply_norm(source, 1, static_cast<int>(width), to);
    else
      std::memcpy(to, source, static_cast<size_t>(width) * sizeof(float));
    if (scale != 1.0f)
      for (ptrdiff_t i = 0; i < width; ++i) to[i] *= scale;
    if (!a) return;
    for (ptrdiff_t i = 0; i < width; ++i) to[i] = a[row * width + i] + to[i];
  }
  void apply_norm(const float* x, int count, int size, float* to) const {
    const auto& body = rowwise_bodies();
    if (norm->layer)
      body.layer_norm(x, norm->weight, norm->bias, norm->eps, count, size, to);
    else
      body.rms_norm(x, norm->weight, norm->eps, norm->offset, count, size, to);
  }
  void columns(float* x) const {
    const int count = heads * each;
    if (clip > 0.0f)
      for (int i = 0; i < count; ++i) x[i] = x[i] < -clip ? -clip : x[i] > clip ? clip : x[i];
    if (norm) apply_norm(x, heads, each, x);
    if (weights)
      for (int i = 0; i < count; ++i) x[i] *= weights[i];
  }
  void times(const float* x, const float* by, float* to) const {
    const ptrdiff_t size = width / parts;
    for (ptrdiff_t p = 0; p < parts; ++p, x += size, to += size)
      for (ptrdiff_t i = 0; i < size; ++i) to[i] = x[i] * by[p];
  }
};

}  // namespace

Program::Norm::Norm(const NormForm& f) : form(f), row(row_norm(f)) {}

/// What an evaluation needs beside the program; kept by the stream's thread, so that nothing is allocated
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
    for (const Op& op : program.ops_) std::visit([this](const auto& o) { plan(o); }, op);
    products_.bind();
    attentions_.bind();
    run_phases(phases_, program.multiply_adds() < kParallel);
  }

 private:
  float* at(Slot slot) const {
    if (slot == kNone) return nullptr;
    const Values& values = program_->slots_[static_cast<size_t>(slot)];
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
    work.a = at(op.a);
    work.b = at(op.b);
  }
  void plan(const Multiply& op) {
    const auto data = [](const std::optional<array>& a) { return a ? a->data<float>() : nullptr; };
    Product p;
    p.weights = op.weights.get();
    p.precision = op.precision;
    p.x = at(op.x);
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

  const Program* program_ = nullptr;
  const Buffers* buffers_ = nullptr;
  float* base_ = nullptr;
  Scratch slots_;
  std::vector<Phase> phases_;
  Products products_;
  Attentions attentions_;
  std::vector<std::unique_ptr<RowWork>> rows_;
  size_t rows_used_ = 0;
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

Program::Slot Program::make(int rows, int width, int input) {
  slots_.push_back({rows, width, input});
  return static_cast<Slot>(slots_.size()) - 1;
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
  ops_.push_back(Lookup{table.storage(), node_input(ids), scale, out});
  return out;
}

Program::Slot Program::angles(const array& positions, const array& frequencies, float scale) {
  const Slot out = make(positions.shape(0), 2 * frequencies.shape(0));
  ops_.push_back(Angles{node_input(positions), frequencies, scale, out});
  return out;
}

Program::Slot Program::product(Slot x, const Matrix& matrix, ProductForm form) {
  const auto& storage = matrix.storage();
  if (width(x) != storage->columns)
    fail(ErrorKind::internal, "program: a matrix of {} columns meets rows of {}", storage->columns, width(x));
  const int columns = storage->fused_gate() ? storage->rows / 2 : storage->rows;
  const int count = form.rows.empty() ? rows(x) : static_cast<int>(form.rows.size());
  if (form.residual != kNone && (rows(form.residual) != count || width(form.residual) != columns))
    fail(ErrorKind::internal, "program: a residual of [{}, {}] for a product of [{}, {}]",
         rows(form.residual), width(form.residual), count, columns);
  std::optional<Norm> norm;
  if (form.norm) norm.emplace(*form.norm);
  const Slot out = make(count, columns);
  ops_.push_back(Multiply{storage, precision(), x, std::move(form), std::move(norm), out});
  return out;
}

Program::Slot Program::attention(Slot qkv, const HeadsForm& heads, const std::optional<array>& sinks,
                                 const PagePool& pool, std::shared_ptr<const AttentionRows> rows_of,
                                 const AttentionForm& form) {
  const PageBlocks& blocks = pool.blocks;
  if (slots_[static_cast<size_t>(qkv)].input >= 0)
    fail(ErrorKind::internal, "program: q, k and v are turned in place, they cannot be an input");
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
  ops_.push_back(
      Attend{qkv, heads, norm(heads.q_norm), norm(heads.k_norm), sinks, pool, std::move(rows_of), form, out});
  return out;
}

Program::Slot Program::add(Slot a, Slot b, std::optional<NormForm> form, float scale) {
  if (a != kNone && (rows(a) != rows(b) || width(a) != width(b)))
    fail(ErrorKind::internal, "program: [{}, {}] added to [{}, {}]", rows(b), width(b), rows(a), width(a));
  std::optional<Norm> norm;
  if (form) norm.emplace(*form);
  const Slot out = make(rows(b), width(b));
  ops_.push_back(Add{a, b, std::move(norm), scale, out});
  return out;
}

void Program::columns(Slot x, ColumnsForm form) {
  if (slots_[static_cast<size_t>(x)].input >= 0)
    fail(ErrorKind::internal, "program: columns are changed in place, they cannot be an input's");
  if (form.from < 0 || form.heads < 1 || form.width < 1 || form.heads > (width(x) - form.from) / form.width)
    fail(ErrorKind::internal, "program: {} heads of {} from column {} of {}", form.heads, form.width,
         form.from, width(x));
  if (form.weights && static_cast<int>(form.weights->size()) != form.heads * form.width)
    fail(ErrorKind::internal, "program: {} weights for {} heads of {}", form.weights->size(), form.heads,
         form.width);
  std::optional<Norm> norm;
  if (form.norm) norm.emplace(*form.norm);
  ops_.push_back(Columns{x, std::move(form), std::move(norm)});
}

Program::Slot Program::multiply(Slot a, Slot b) {
  if (rows(a) != rows(b) || width(b) < 1 || width(a) % width(b) != 0)
    fail(ErrorKind::internal, "program: [{}, {}] times [{}, {}]", rows(a), width(a), rows(b), width(b));
  const Slot out = make(rows(a), width(a));
  ops_.push_back(Times{a, b, out});
  return out;
}

void Program::back_to(const Mark& mark) {
  ops_.erase(ops_.begin() + static_cast<ptrdiff_t>(mark.ops), ops_.end());
  slots_.erase(slots_.begin() + static_cast<ptrdiff_t>(mark.slots), slots_.end());
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
  }
}

Program::Slot Program::out_of(const Op& op) {
  return std::visit([](const auto& o) { return o.out; }, op);
}

void Program::place() {
  std::vector<size_t> last(slots_.size(), 0);
  for (size_t i = 0; i < ops_.size(); ++i)
    each_read(ops_[i], [&](Slot slot) {
      if (slot != kNone) last[static_cast<size_t>(slot)] = i;
    });
  struct Cell {
    size_t size;
    size_t free_from;  // operations from this one on may take it
  };
  std::vector<Cell> cells;
  std::vector<size_t> cell_of(slots_.size(), 0);
  std::vector<Slot> placed;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Slot out = out_of(ops_[i]);
    if (out == kNone || out == result_) continue;
    const Values& values = slots_[static_cast<size_t>(out)];
    const size_t floats = static_cast<size_t>(values.rows) * static_cast<size_t>(values.width);
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
  }
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
    else if (const auto* a = std::get_if<Attend>(&op))
      for (const AttentionRow& row : a->rows->rows)
        total += static_cast<long long>(row.count) * (row.position + row.count) * a->form.heads *
                 a->pool.blocks.key_dim;
  }
  return total;
}

array Program::output(std::shared_ptr<Program> program, Slot slot) {
  const Values values = program->slots_.at(static_cast<size_t>(slot));
  if (values.input >= 0) {
    if (!program->ops_.empty()) fail(ErrorKind::internal, "program: its output is an input");
    return program->inputs_[static_cast<size_t>(values.input)];
  }
  program->result_ = slot;
  program->place();
  std::vector<array> inputs = program->inputs_;
  program->inputs_.clear();
  return native_op("program", {values.rows, values.width}, mx::float32, std::move(inputs),
                   [program = std::shared_ptr<const Program>(std::move(program))](const Buffers& buffers) {
                     static thread_local Run run;
                     run(*program, buffers);
                   });
}

}  // namespace mlxcel::kernels
