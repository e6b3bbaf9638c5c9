# The two programs, side by side in bin/.
add_executable(mlxcel ${dir}/mlxcel_main.cpp)
target_link_libraries(mlxcel PRIVATE mlxcel_compiler mlxcel_app)
if(EXISTS ${dir}/server_main.cpp)
  add_executable(mlxcel-server ${dir}/server_main.cpp)
  target_link_libraries(mlxcel-server PRIVATE mlxcel_compiler mlxcel_app)
  set_target_properties(mlxcel-server PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()
set_target_properties(mlxcel PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
