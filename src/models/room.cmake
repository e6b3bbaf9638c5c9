# The table of architectures: one entry for each file of arch/, named after it. arch/qwen3.cpp defines
# `Arch arch_qwen3()`. Nothing else lists them.
file(GLOB arch_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/arch/*.cpp)
list(SORT arch_files)
set(declarations "")
set(entries "")
foreach(file IN LISTS arch_files)
  get_filename_component(name ${file} NAME_WE)
  string(APPEND declarations "Arch arch_${name}();\n")
  string(APPEND entries "      {\"${name}\", arch_${name}()},\n")
endforeach()
set(table ${CMAKE_BINARY_DIR}/generated/models/arch_table.cpp)
file(CONFIGURE OUTPUT ${table} CONTENT [[
#include "models/arch.h"

namespace mlxcel {

@declarations@
const std::vector<NamedArch>& arch_table() {
  static const std::vector<NamedArch> table = {
@entries@  };
  return table;
}

}  // namespace mlxcel
]] @ONLY)
target_sources(mlxcel_models PRIVATE ${table})
set_property(GLOBAL PROPERTY MLXCEL_ARCH_TABLE ${table})
