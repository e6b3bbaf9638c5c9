# Flags of the instruction-set bodies, by file name. They are optimised in every preset: they hold the
# arithmetic of whole models, and their tests would crawl otherwise.
# -Wno-psabi: vectors passed by value stay inside a body.
set(body_generic -O3 -Wno-psabi)
set(body_avx2 -O3)
set(body_neon -O3)
set(body_i8mm -O3)
# GCC 12 warns of its own _mm512_undefined_ps.
set(body_avx512 -O3 -Wno-uninitialized $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND body_avx2 -mavx2 -mfma -mf16c)
  list(APPEND body_avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  list(APPEND body_neon -march=armv8.2-a+dotprod)
  list(APPEND body_i8mm -march=armv8.2-a+dotprod+i8mm)
endif()
foreach(body_isa generic avx2 avx512 neon i8mm)
  file(GLOB body_sources CONFIGURE_DEPENDS ${dir}/isa/*_${body_isa}.cpp)
  if(body_sources)
    set_source_files_properties(${body_sources} PROPERTIES COMPILE_OPTIONS "${body_${body_isa}}")
  endif()
endforeach()

# The emulated 16-lane bodies pass vectors by value and are hot enough to be optimised too.
set_source_files_properties(${dir}/isa/matmul_avx512_emulated_test.cpp PROPERTIES
                            COMPILE_OPTIONS "-O2;-Wno-psabi")
