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

# The names of the golden files, for the catalogue.
file(GLOB golden_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/golden/data/*.json)
list(SORT golden_files)
set(names "")
foreach(file IN LISTS golden_files)
  get_filename_component(name ${file} NAME_WLE)
  string(APPEND names "      \"${name}\",\n")
endforeach()
set(golden_list ${CMAKE_BINARY_DIR}/generated/models/golden_names.cpp)
file(CONFIGURE OUTPUT ${golden_list} CONTENT [[
#include "models/catalogue.h"

namespace mlxcel {

const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = {
@names@  };
  return names;
}

}  // namespace mlxcel
]] @ONLY)
target_sources(mlxcel_models PRIVATE ${golden_list})
