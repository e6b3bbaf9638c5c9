# Every dependency of the project, with its version and the reason it is here.

# MLX: the array library, graph and devices. The PyPI wheel is used as an archive (docs/adr/0003);
# scripts/fetch_mlx.sh puts it at third_party/mlx-<backend> after checking its SHA-256.
set(MLXCEL_MLX_DIR "${CMAKE_SOURCE_DIR}/third_party/mlx-${MLXCEL_BACKEND}" CACHE PATH "unpacked MLX wheel")
if(NOT EXISTS ${MLXCEL_MLX_DIR}/mlx/include/mlx/mlx.h)
  message(FATAL_ERROR "MLX is not at ${MLXCEL_MLX_DIR}: run scripts/fetch_mlx.sh ${MLXCEL_BACKEND} first")
endif()
find_library(MLXCEL_MLX_LIBRARY mlx PATHS ${MLXCEL_MLX_DIR}/mlx/lib NO_DEFAULT_PATH REQUIRED)
add_library(mlx_archive SHARED IMPORTED)
set_target_properties(mlx_archive PROPERTIES IMPORTED_LOCATION ${MLXCEL_MLX_LIBRARY})
target_include_directories(mlx_archive SYSTEM INTERFACE ${MLXCEL_MLX_DIR}/mlx/include)
if(EXISTS ${MLXCEL_MLX_DIR}/mlx_cpu.libs)
  target_link_options(mlx_archive INTERFACE -Wl,-rpath-link,${MLXCEL_MLX_DIR}/mlx_cpu.libs)
endif()

find_package(Threads REQUIRED)
# fmt 9 and spdlog 1.10: formatting (GCC 12 has no std::format) and logs.
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
# nlohmann-json 3.11: JSON, in .cpp files only.
find_package(nlohmann_json REQUIRED)
# OpenSSL 3: TLS, SHA-256.
find_package(OpenSSL REQUIRED)
# Boost 1.81: Asio and Beast (HTTP, WebSocket, C++20 coroutines), headers only.
find_package(Boost 1.81 REQUIRED)
# libcurl 7.85 or later: downloads.
find_package(CURL 7.85 REQUIRED)
# CLI11 2.1: command lines.
find_package(CLI11 REQUIRED)
# libedit 3.1: the REPL's line editing.
find_library(MLXCEL_EDIT_LIBRARY edit REQUIRED)
if(MLXCEL_TESTS)
  find_package(GTest REQUIRED)
endif()

# What each room uses of them.
set(MLXCEL_USES_base fmt::fmt spdlog::spdlog Threads::Threads)
set(MLXCEL_USES_tensor mlx_archive)
set(MLXCEL_USES_hub nlohmann_json::nlohmann_json CURL::libcurl OpenSSL::Crypto OpenSSL::SSL)
# yaml-cpp 0.7: surgery files.
find_package(yaml-cpp REQUIRED)
set(MLXCEL_USES_checkpoint nlohmann_json::nlohmann_json ${YAML_CPP_LIBRARIES})
set(MLXCEL_USES_text nlohmann_json::nlohmann_json $<TARGET_NAME_IF_EXISTS:mlxcel_bridge>)
set(MLXCEL_USES_models nlohmann_json::nlohmann_json)
set(MLXCEL_USES_engine nlohmann_json::nlohmann_json OpenSSL::Crypto)
set(MLXCEL_USES_api nlohmann_json::nlohmann_json)
set(MLXCEL_USES_server nlohmann_json::nlohmann_json Boost::headers OpenSSL::SSL OpenSSL::Crypto)
set(MLXCEL_USES_app nlohmann_json::nlohmann_json CLI11::CLI11 ${MLXCEL_EDIT_LIBRARY})
