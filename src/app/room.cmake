# The two programs, side by side in bin/.
add_executable(mlxcel ${dir}/mlxcel_main.cpp)
target_link_libraries(mlxcel PRIVATE mlxcel_compiler mlxcel_app)
if(EXISTS ${dir}/server_main.cpp)
  add_executable(mlxcel-server ${dir}/server_main.cpp)
  target_link_libraries(mlxcel-server PRIVATE mlxcel_compiler mlxcel_app)
  set_target_properties(mlxcel-server PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()
set_target_properties(mlxcel PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
# Nearly every file here reads flags, prints JSON and knows the engine: those headers are compiled once, and nothing
# is worth -O3.
target_precompile_headers(mlxcel_app PRIVATE ${CMAKE_SOURCE_DIR}/src/engine/engine.h <CLI/CLI.hpp> <nlohmann/json.hpp> <fmt/format.h> <fmt/ranges.h>)
target_compile_options(mlxcel_app PRIVATE $<$<CONFIG:Release>:-O1>)
