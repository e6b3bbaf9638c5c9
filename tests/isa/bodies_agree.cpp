// The bodies of two instruction sets on the same bytes, without MLX: products of every kind of code and every
// tile, row-wise operations, recurrences, depthwise convolutions, attention over pages. Built by
// scripts/test_arm.sh for AArch64 and run under an emulator; on x86-64 the same program compares the AVX2
// bodies. usage: bodies_agree; the last line is "N checks agree".
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/isa/depthwise.h"
#include "kernels/isa/matmul.h"
#include "kernels/isa/neon.h"
#include "kernels/isa/recurrent.h"
#include "kernels/isa/rowwise.h"

namespace mlxcel::kernels {
namespace {

int checks = 0;

[[noreturn]] void disagree(const std::string& what, size_t at, double expected, double found) {
  std::printf("%s, value %zu: expected %.9g, found %.9g\n", what.c_str(), at, expected, found);
  std::exit(1);
}

using Floats = std::vector<float>;

void same_bits(const std::string& what, const void* expected, const void* found, size_t bytes) {
  ++checks;
  const auto* a = static_cast<const uint8_t*>(expected);
  const auto* b = static_cast<const uint8_t*>(found);
  for (size_t i = 0; i < bytes; ++i)
    if (a[i] != b[i]) disagree(what + " (bytes)", i, a[i], b[i]);
}
void same_bits(const std::string& what, const Floats& a, const Floats& b) {
  same_bits(what, a.data(), b.data(), a.size() * sizeof(float));
}

void close(const std::string& what, const Floats& expected, const Floats& found, float tolerance) {
  ++checks;
  float largest = 0.0f;
  for (const float x : expected) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(expected[i] - found[i]) <= tolerance * (1.0f + largest)))
      disagree(what, i, static_cast<double>(expected[i]), static_cast<double>(found[i]));
}

Floats normals(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats v(count);
  for (float& x : v) x = normal(random);
  return v;
}

// ---- Products --------------------------------------------------------------------------------------

struct Block {
  CodeLayout layout;
  std::vector<uint8_t> bytes;
};

size_t element_bytes(ElementKind kind) { return kind == kF32 ? 4 : kind == kE8m0 || kind == kE4m3 ? 1 : 2; }

/// A block of random codes with scales near one.
Block random_block(const CodeLayout& layout, int lanes, unsigned seed) {
  const auto [code, group, kind, columns, centred] = layout;
  std::mt19937 random(seed);
  Block block{layout, {}};
  const size_t words = static_cast<size_t>(2 * lanes * words_of(code) * (group / kChunk)) * 4;
  const size_t tail = static_cast<size_t>(2 * lanes) * (kind == kE8m0 || centred ? 1 : 2);
  for (int g = 0; g < columns / group; ++g) {
    for (size_t i = 0; i < words; ++i) {
      auto byte = static_cast<uint8_t>(random());
      if (code == kFloat8 && (byte & 0x7f) == 0x7f) byte = 0x30;  // not a number
      block.bytes.push_back(byte);
    }
    for (size_t i = 0; i < tail; ++i) {
      const float value = 0.5f + static_cast<float>(random() % 1000) / 1000.0f;
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      uint8_t element[4];
      if (kind == kF32) {
        std::memcpy(element, &bits, 4);
      } else if (kind == kBf16) {
        const auto half = static_cast<uint16_t>(bits >> 16);
        std::memcpy(element, &half, 2);
      } else if (kind == kF16) {
        const auto half = static_cast<uint16_t>(((bits >> 23) - 112) << 10 | (bits >> 13 & 0x3ff));
        std::memcpy(element, &half, 2);
      } else {
        element[0] = kind == kE8m0 ? static_cast<uint8_t>(124 + random() % 6)
                                   : static_cast<uint8_t>(0x28 + random() % 24);
      }
      block.bytes.insert(block.bytes.end(), element, element + element_bytes(kind));
    }
  }
  block.bytes.resize(block.bytes.size() + 64);  // a body may load a whole vector at the end
  return block;
}

using Prepare = void (*)(const float* const*, int, int, int, uint8_t*);

void products(const MatmulBodies& known, const MatmulBodies& body) {
  const int rows = 2 * known.lanes;
  struct Kind {
    CodeKind code;
    int group;
    ElementKind kind;
    bool centred = false;
  };
  const Kind kinds[] = {{kCode2, 64, kF16},       {kCode3, 32, kBf16},      {kCode4, 32, kF16},
                        {kCode4, 128, kF32},      {kCode5, 64, kF16},       {kCode6, 32, kBf16},
                        {kCode8, 32, kF16},       {kCode8, 64, kF32},       {kFloat4, 32, kE8m0},
                        {kFloat4, 32, kE4m3},     {kFloat8, 32, kE8m0},     {kCode4, 32, kF16, true},
                        {kCode8, 32, kF16, true}, {kCode5, 64, kBf16, true}};
  for (const Kind& k : kinds) {
    const int columns = 384, chunks = columns / kChunk;
    const CodeLayout layout{k.code, k.group, k.kind, columns, k.centred};
    const Block block = random_block(layout, known.lanes, 7), second = random_block(layout, known.lanes, 17);
    const std::string name = "code " + std::to_string(k.code) + " group " + std::to_string(k.group);
    const auto x = normals(8 * 384, 8);
    const auto tokens = [&](const float** at, int count) {
      for (int t = 0; t < count; ++t) at[t] = x.data() + t * columns;
    };
    const float* at[8];
    Floats expanded(static_cast<size_t>(columns * rows)), other(expanded.size());
    known.expand(block.layout, block.bytes.data(), 0, chunks, expanded.data());
    body.expand(block.layout, block.bytes.data(), 0, chunks, other.data());
    close(name + " expanded", expanded, other, 1e-6f);
    if (k.code == kFloat8) continue;  // no integer products

    // What a tile must give, from the expanded weights and the activations as so many bits hold them.
    const auto expected = [&](int count, float limit) {
      Floats out(static_cast<size_t>(count * rows));
      for (int t = 0; t < count; ++t)
        for (int chunk = 0; chunk < chunks; ++chunk) {
          float most = 0.0f;
          for (int i = 0; i < kChunk; ++i) most = std::max(most, std::abs(at[t][chunk * kChunk + i]));
          for (int i = 0; i < kChunk; ++i) {
            const int column = chunk * kChunk + i;
            const float v = std::nearbyint(at[t][column] * (limit / most)) * (most / limit);
            for (int r = 0; r < rows; ++r)
              out[static_cast<size_t>(t * rows + r)] += v * expanded[static_cast<size_t>(column * rows + r)];
          }
        }
      return out;
    };
    for (int count = 1; count <= body.most_tokens; ++count) {
      tokens(at, count);
      const size_t words = static_cast<size_t>(chunks * count) * (kChunk / 2 + 2);
      std::vector<uint8_t> panel(words * 4 + 64), panel2(words * 4 + 64);
      if (count <= known.most_tokens) {
        known.quantize(at, count, 0, chunks, kLimit16, panel.data());
        body.quantize(at, count, 0, chunks, kLimit16, panel2.data());
        same_bits(name + " quantised", panel.data(), panel2.data(), panel.size() - 64);
      }
      body.quantize(at, count, 0, chunks, kLimit16, panel.data());
      const Floats wide = expected(count, static_cast<float>(kLimit16));
      std::vector<uint8_t> scratch(body.spread_size * static_cast<size_t>(chunks) + 64);
      const size_t size = wide.size();
      Floats tiled(size), tiled2(size);
      const auto tile = [&](const Block& from, bool bytes, Floats& to) {
        std::fill(to.begin(), to.end(), 0.0f);
        body.spread(from.layout, from.bytes.data(), 0, chunks, bytes, scratch.data());
        body.tile(scratch.data(), panel.data(), count, chunks, bytes, k.kind == kE4m3, scratch.data(), 7,
                  to.data());
      };
      // Two blocks by turns as so many streams.
      const auto streams = [&](const std::string& what, const auto& product) {
        for (int n = 1; n <= kMostStreams; ++n) {
          Streams blocks{{}, n};
          for (int b = 0; b < n; ++b) blocks.at[b] = (b % 2 ? second : block).bytes.data();
          Floats direct(size * static_cast<size_t>(n));
          product(blocks, direct.data());
          for (size_t b = 0; b < static_cast<size_t>(n); ++b)
            same_bits(name + what + ", stream " + std::to_string(b + 1) + " of " + std::to_string(n),
                      b % 2 ? tiled2 : tiled,
                      Floats(direct.begin() + static_cast<ptrdiff_t>(b * size),
                             direct.begin() + static_cast<ptrdiff_t>((b + 1) * size)));
        }
      };
      tile(block, false, tiled);
      tile(second, false, tiled2);
      close(name + " in tiles of " + std::to_string(count), wide, tiled, 2e-4f);
      const bool few = count <= body.most_direct;
      if (few)
        streams(" direct", [&](const Streams& from, float* to) {
          body.direct(layout, from, panel.data(), count, false, to);
        });
      if (k.code == kCode4 && count <= body.most_planes) {
        body.quantize_planes(at, count, 0, chunks, panel.data());
        streams(" by planes", [&](const Streams& from, float* to) {
          body.direct_planes(layout, from, panel.data(), count, to);
        });
      }
      if (!body.bytes_serve(k.code)) continue;
      body.quantize_bytes(at, count, 0, chunks, panel.data());
      tile(block, true, tiled);
      tile(second, true, tiled2);
      close(name + " of bytes in tiles of " + std::to_string(count), expected(count, 127.0f), tiled, 2e-4f);
      if (!few) continue;
      streams(" of bytes, direct", [&](const Streams& from, float* to) {
        body.direct(layout, from, panel.data(), count, true, to);
      });
    }
  }
}

void dense(const MatmulBodies& known, const MatmulBodies& body) {
  const int columns = 70;
  for (const ElementKind kind : {kF32, kF16, kBf16}) {
    std::mt19937 random(5);
    std::vector<uint8_t> block(static_cast<size_t>(columns * kDenseRows) * element_bytes(kind));
    for (size_t i = 0; i < block.size(); i += element_bytes(kind)) {
      const float value = static_cast<float>(static_cast<int>(random() % 255) - 127) / 64.0f;
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      const auto high = static_cast<uint16_t>(bits >> 16);
      // The halves of f16 are random patterns of finite numbers.
      const auto half = static_cast<uint16_t>(random() & 0xbbffu);
      if (kind == kF32) std::memcpy(block.data() + i, &value, 4);
      if (kind == kBf16) std::memcpy(block.data() + i, &high, 2);
      if (kind == kF16) std::memcpy(block.data() + i, &half, 2);
    }
    const auto x = normals(columns, 6);
    Floats a(kDenseRows), b(3 * kDenseRows);
    known.dense_one(kind, {{block.data()}, 1}, x.data(), columns, a.data());
    body.dense_one(kind, {{block.data(), block.data(), block.data()}, 3}, x.data(), columns, b.data());
    for (auto at = b.begin(); at < b.end(); at += kDenseRows)
      close("dense, one token", a, Floats(at, at + kDenseRows), 1e-5f);
    Floats wide(static_cast<size_t>(columns * kDenseRows)), wide2(wide.size());
    known.widen(kind, block.data(), wide.size(), wide.data());
    body.widen(kind, block.data(), wide2.size(), wide2.data());
    same_bits("widened elements", wide, wide2);
    const auto panel = normals(static_cast<size_t>(columns) * 4, 7);
    Floats c(4 * kDenseRows), d(4 * kDenseRows);
    known.dense_tile(wide.data(), kDenseRows, panel.data(), 4, columns, c.data());
    body.dense_tile(wide.data(), kDenseRows, panel.data(), 4, columns, d.data());
    close("dense tile", c, d, 1e-5f);
  }
  for (const bool gated : {false, true})
    for (int activation = 0; activation <= 9; ++activation) {
      const int rows = 2 * known.lanes, width = gated ? known.lanes : rows, valid = width + 5;
      const auto acc = normals(static_cast<size_t>(3 * rows), 9), bias = normals(64, 10),
                 residual = normals(3 * 64, 11);
      Floats a(3 * 64), b(3 * 64);
      for (const int block : {0, 1}) {
        Finish how{a.data(),        64,    nullptr, bias.data(), bias.data() + 8,
                   residual.data(), valid, 3,       activation,  gated};
        known.finish(how, acc.data(), rows, block, 0, 3);
        how.out = b.data();
        body.finish(how, acc.data(), rows, block, 0, 3);
      }
      close("finished, activation " + std::to_string(activation), a, b, 1e-6f);
    }
}

// ---- Rows and recurrences --------------------------------------------------------------------------

void row_wise(const RowwiseBodies& known, const RowwiseBodies& body) {
  for (const int width : {1, 7, 8, 16, 75, 576}) {
    const auto x = normals(static_cast<size_t>(3 * width), 1), w = normals(static_cast<size_t>(width), 2);
    Floats a(x.size()), b(x.size());
    known.rms_norm(x.data(), w.data(), 1e-5f, 1.0f, 3, width, a.data());
    body.rms_norm(x.data(), w.data(), 1e-5f, 1.0f, 3, width, b.data());
    close("rms_norm", a, b, 2e-6f);
    known.layer_norm(x.data(), w.data(), w.data(), 1e-5f, 3, width, a.data());
    body.layer_norm(x.data(), w.data(), w.data(), 1e-5f, 3, width, b.data());
    close("layer_norm", a, b, 2e-5f);
    for (const bool interleaved : {false, true}) {
      const int half = width / 2;
      known.rope(x.data(), w.data(), w.data() + half, 3, width, half, interleaved, a.data());
      body.rope(x.data(), w.data(), w.data() + half, 3, width, half, interleaved, b.data());
      close("rope", a, b, 1e-6f);
    }
    for (int kind = 0; kind <= 9; ++kind) {
      known.activate(x.data(), kind, x.size(), a.data());
      body.activate(x.data(), kind, x.size(), b.data());
      close("activation " + std::to_string(kind), a, b, 2e-6f);
      known.gate(x.data(), x.data(), kind, x.size(), a.data());
      body.gate(x.data(), x.data(), kind, x.size(), b.data());
      close("gate " + std::to_string(kind), a, b, 2e-6f);
    }
  }
}

void recurrent(const RecurrentBodies& known, const RecurrentBodies& body) {
  const int count = 5, channels = 75, taps = 4, states = 13, heads = 2, dim = 6;
  const auto x = normals(count * channels, 21), w = normals(channels * taps, 22),
             held = normals(3 * channels, 23);
  Floats out1(x.size()), out2(x.size()), after1(held.size()), after2(held.size());
  ConvRow conv{x.data(),      w.data(), w.data(), held.data(), out1.data(),
               after1.data(), count,    channels, taps,        1};
  for (const int block : {0, 1}) known.conv(conv, block);
  conv.out = out2.data();
  conv.after = after2.data();
  for (const int block : {0, 1}) body.conv(conv, block);
  close("convolution", out1, out2, 1e-6f);
  same_bits("convolution's state", after1, after2);

  Floats dt(static_cast<size_t>(count * channels), 0.1f),
      a = normals(static_cast<size_t>(channels * states), 24);
  for (float& v : a) v = -std::abs(v);
  const auto b = normals(count * states, 25), c = normals(count * states, 26), d = normals(channels, 27);
  const auto state = normals(channels * states, 28);
  Floats s1(state.size()), s2(state.size());
  SelectiveRow selective{x.data(),     dt.data(),   a.data(),  b.data(), c.data(), d.data(),
                         state.data(), out1.data(), s1.data(), count,    channels, states};
  for (const int block : {0, 1}) known.selective(selective, block);
  selective.out = out2.data();
  selective.after = s2.data();
  for (const int block : {0, 1}) body.selective(selective, block);
  close("selective scan", out1, out2, 1e-5f);
  close("selective scan's state", s1, s2, 1e-5f);

  ScanRow scan{x.data(),    dt.data(), a.data(), b.data(), c.data(), d.data(), state.data(),
               out1.data(), s1.data(), count,    heads,    dim,      1,        states};
  for (int h = 0; h < heads; ++h) known.scan(scan, h);
  scan.out = out2.data();
  scan.after = s2.data();
  for (int h = 0; h < heads; ++h) body.scan(scan, h);
  close("scan", out1, out2, 1e-5f);
  close("scan's state", s1, s2, 1e-5f);

  const auto in = normals(6 * count * heads * states, 29);
  const size_t step = static_cast<size_t>(count * heads * states);
  DeltaRow delta{in.data(),
                 in.data() + step,
                 in.data() + 2 * step,
                 in.data() + 3 * step,
                 in.data() + 4 * step,
                 in.data() + 5 * step,
                 state.data(),
                 out1.data(),
                 s1.data(),
                 count,
                 heads,
                 states,
                 dim};
  for (int h = 0; h < heads; ++h) known.delta(delta, h);
  delta.out = out2.data();
  delta.after = s2.data();
  for (int h = 0; h < heads; ++h) body.delta(delta, h);
  close("delta rule", out1, out2, 1e-5f);
  close("delta rule's state", s1, s2, 1e-5f);

  SumRow sum{x.data(), dt.data(), held.data(), out1.data(), after1.data(), count, channels};
  known.sum(sum);
  sum.out = out2.data();
  sum.after = after2.data();
  body.sum(sum);
  close("gated sum", out1, out2, 1e-6f);
}

// ---- Depthwise convolutions ------------------------------------------------------------------------

void depthwise(const DepthwiseBodies& known, const DepthwiseBodies& body) {
  constexpr int kTaps = 5, kSlots = 40, kStride = 45;
  const auto x = normals(kSlots * kStride, 41), weight = normals(kTaps * kDepthwiseBlock, 42),
             bias = normals(kDepthwiseBlock, 43);
  const int slot[kTaps] = {0, 2, 3, 7, 9};
  for (const int channels : {1, 7, 8, 29, 32})
    for (const int outputs : {1, 4, 11, 15}) {
      const std::string name = "depthwise, " + std::to_string(channels) + " channels";
      Floats slots(kSlots * kDepthwiseBlock, 1.0f), slots2 = slots, a(kStride * 15), b(a.size());
      known.copy(x.data(), kStride, kSlots, channels, slots.data());
      body.copy(x.data(), kStride, kSlots, channels, slots2.data());
      same_bits(name + ": slots", slots, slots2);
      DepthwiseRun run{slots.data(), weight.data(), bias.data(), slot,     a.data(), kStride,
                       kTaps,        outputs,       2,           channels, 2};
      known.run(run);
      run.out = b.data();
      body.run(run);
      close(name, a, b, 1e-6f);
    }
}

// ---- Attention -------------------------------------------------------------------------------------

/// One row of `tokens` queries at `position` over pages of its own, all kv heads; its output and its pages.
void attend(const AttentionBodies& body, AttentionCall call, std::vector<char>& pages, Floats& out) {
  call.pages = pages.data();
  call.out = out.data();
  const AttentionRow& row = call.rows[0];
  const int group = call.heads / call.kv_heads,
            padded = (call.value_dim + kAttentionPad - 1) / kAttentionPad * kAttentionPad;
  for (int head = 0; head < call.kv_heads; ++head) {
    for (int page = row.position / kAttentionPage; page * kAttentionPage < row.position + row.count; ++page)
      body.append(call, 0, head, page);
    const AttentionTile tile{0, head, 0, row.count};
    const size_t queries = static_cast<size_t>(row.count * group);
    Floats panel(queries * static_cast<size_t>(call.key_dim)),
        total(queries * static_cast<size_t>(padded + 2)), part(total),
        work(static_cast<size_t>((call.key_dim + padded) * kAttentionPage));
    body.load_queries(call, tile, panel.data());
    const int last = (row.position + row.count - 1) / kAttentionSegment;
    body.segment(call, tile, 0, panel.data(), total.data(), work.data());
    for (int s = 1; s <= last; ++s) {
      body.segment(call, tile, s, panel.data(), part.data(), work.data());
      body.merge(total.data(), part.data(), static_cast<int>(queries), padded);
    }
    body.finish(call, tile, total.data());
  }
}

void attention(const AttentionBodies& known, const AttentionBodies& body) {
  const int heads = 6, kv_heads = 2;
  for (const PageType type : {PageType::f32, PageType::f16, PageType::bf16})
    for (const int dim : {16, 64, 80})
      for (const int count : {1, 5, 20})
        for (const int extra : {0, 1, 2, 3}) {  // plain, window, cap, sinks
          const int position = 300, pages_in_row = (position + count + kAttentionPage - 1) / kAttentionPage;
          const size_t element = type == PageType::f32 ? 4 : 2,
                       keys = static_cast<size_t>(dim * kAttentionPage);
          const auto x = normals(static_cast<size_t>(count * (heads + 2 * kv_heads) * dim), 31);
          const auto sinks = normals(static_cast<size_t>(heads), 32);
          const AttentionRow row{0, count, position, 0};
          std::vector<int32_t> table(static_cast<size_t>(pages_in_row));
          for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
          AttentionCall call{};
          call.q = x.data();
          call.k = x.data() + heads * dim;
          call.v = call.k + kv_heads * dim;
          call.q_stride = call.k_stride = call.v_stride = (heads + 2 * kv_heads) * dim;
          call.sinks = extra == 3 ? sinks.data() : nullptr;
          call.head_bytes = 2 * keys * element;
          call.page_bytes = static_cast<size_t>(kv_heads) * call.head_bytes;
          call.value_offset = keys * element;
          call.type = call.value_type = type;
          call.heads = heads;
          call.kv_heads = kv_heads;
          call.key_dim = call.value_dim = dim;
          call.scale = 0.3f;
          call.softcap = extra == 2 ? 5.0f : 0.0f;
          call.window = extra == 1 ? 40 : 0;
          call.rows = &row;
          call.tables = table.data();
          // What is in the pages before: small numbers in every type.
          std::vector<char> pages(table.size() * call.page_bytes + 64);
          std::mt19937 random(33);
          for (size_t i = 0; i < pages.size() / element; ++i) {
            const auto value = static_cast<float>(static_cast<int>(random() % 17) - 8) / 8.0f;
            uint32_t bits;
            std::memcpy(&bits, &value, 4);
            const auto half = type == PageType::bf16 ? static_cast<uint16_t>(bits >> 16)
                              : bits == 0            ? uint16_t{0}
                                                     : static_cast<uint16_t>((bits >> 16 & 0x8000u) |
                                                                             (((bits >> 23 & 255u) - 112u) << 10) |
                                                                             (bits >> 13 & 0x3ffu));
            std::memcpy(pages.data() + i * element, element == 4 ? static_cast<const void*>(&bits) : &half,
                        element);
          }
          std::vector<char> pages2 = pages;
          Floats a(static_cast<size_t>(count * heads * dim)), b(a.size());
          attend(known, call, pages, a);
          attend(body, call, pages2, b);
          const std::string name =
              "attention of " + std::to_string(count) + " queries, width " + std::to_string(dim);
          same_bits(name + ": pages", pages.data(), pages2.data(), pages.size());
          same_bits(name, a, b);
        }
}

}  // namespace
}  // namespace mlxcel::kernels

int main() {
  using namespace mlxcel::kernels;
#if defined(__aarch64__)
  for (const MatmulBodies* body : {&matmul_neon(), &matmul_i8mm()}) {
    products(matmul_generic(), *body);
    dense(matmul_generic(), *body);
  }
  row_wise(rowwise_generic(), rowwise_neon());
  recurrent(recurrent_generic(), recurrent_neon());
  depthwise(depthwise_generic(), depthwise_neon());
  attention(kAttentionGeneric, kAttentionNeon);
#else
  products(matmul_generic(), matmul_avx2());
  dense(matmul_generic(), matmul_avx2());
  row_wise(rowwise_generic(), rowwise_avx2());
  recurrent(recurrent_generic(), recurrent_avx2());
  depthwise(depthwise_generic(), depthwise_avx2());
  attention(kAttentionGeneric, kAttentionAvx2);
#endif
  std::printf("%d checks agree\n", checks);
  return 0;
}
