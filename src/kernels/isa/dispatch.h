// Which instruction set's bodies run. Each body is its own translation unit under isa/, named
// *_generic.cpp, *_avx2.cpp, *_avx512.cpp, *_neon.cpp, *_i8mm.cpp; room.cmake gives it its flags by that
// name. Rule for bodies: everything in an anonymous namespace but the one entry point, and no include whose
// inline functions or templates the linker might share with other units (no std::, only C headers and
// <immintrin.h> or <arm_neon.h>): the copy it keeps could hold instructions the machine lacks.
// Thread: any. Failure: a forced set that is unknown or absent is an invalid_request naming those here.
#pragma once

#include <string_view>
#include <vector>

namespace mlxcel::kernels {

enum class Isa { generic, avx2, avx512, neon, i8mm };

const char* to_string(Isa isa);

/// The sets this machine runs, weakest first. avx2: AVX2, FMA, F16C. avx512: F, BW, VL, DQ and VNNI.
/// neon: AArch64 with dot products; i8mm: and products of unsigned by signed bytes.
const std::vector<Isa>& available_isas();

/// The set whose bodies run: MLXCEL_CPU_ISA, or the strongest available (`auto`).
Isa isa();

/// Overrides it for what is built from now on (packed layouts depend on it); for tests.
void set_isa(Isa isa);

/// `auto` or a name, against what is available.
Isa parse_isa(std::string_view text, const std::vector<Isa>& available);

}  // namespace mlxcel::kernels
