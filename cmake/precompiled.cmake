# Headers of others that most files of a room parse anyway, compiled once for each target. Parsing MLX's and
# the standard library's headers is about half of what a file costs. Only headers that never change here stand in
# this list; every file still includes what it uses. Rooms without MLX stay out: GCC 12 forgets that a precompiled
# std::string came from a system header and then doubts its own copies (bug 105329).
set(precompiled_rooms tensor state nn models engine)
set(precompiled_headers <algorithm> <cmath> <functional> <limits> <map> <memory> <optional> <span> <string>
    <string_view> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <mlx/array.h>
    <mlx/dtype.h> <mlx/ops.h>)

# mlxcel_precompile(TARGET ROOMS...): only where one of ROOMS uses MLX's headers.
function(mlxcel_precompile target)
  foreach(room IN LISTS ARGN)
    if(room IN_LIST precompiled_rooms)
      target_precompile_headers(${target} PRIVATE ${precompiled_headers})
      return()
    endif()
  endforeach()
endfunction()

# mlxcel_precompile_test(TARGET ROOMS...): the same with GoogleTest; nothing in a test is worth -O3, but the bodies
# of kernels that some tests hold.
function(mlxcel_precompile_test target)
  mlxcel_precompile(${target} ${ARGN})
  get_target_property(has_headers ${target} PRECOMPILE_HEADERS)
  if(has_headers)
    target_precompile_headers(${target} PRIVATE <gtest/gtest.h>)
  endif()
  if(NOT "kernels" IN_LIST ARGN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
endfunction()
