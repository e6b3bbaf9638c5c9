# Flags that every target of ours shares. Third-party headers come in as SYSTEM and stay silent.
find_program(MLXCEL_CCACHE ccache)
if(MLXCEL_CCACHE)
  # Several build folders share one cache: paths inside the source tree do not enter the hash.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${MLXCEL_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

find_program(MLXCEL_MOLD mold)
if(MLXCEL_MOLD AND NOT APPLE)
  add_link_options(-fuse-ld=mold)
endif()

add_library(mlxcel_compiler INTERFACE)
# -ffp-contract=off: a product and a sum round apart unless a kernel asks for fma, so that every
# instruction-set body and every row count gives the same bits.
target_compile_options(mlxcel_compiler INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                       -ffp-contract=off $<$<BOOL:${MLXCEL_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # At -O3 GCC 12 sees overlapping copies in std::string's own assignment (GCC bug 105651).
  target_compile_options(mlxcel_compiler INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
endif()
target_include_directories(mlxcel_compiler INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(mlxcel_compiler INTERFACE MLXCEL_VERSION="${PROJECT_VERSION}"
                           MLXCEL_BACKEND_NAME="${MLXCEL_BACKEND}")

if(MLXCEL_SANITIZE)
  # GCC 12 sees uninitialised members through the sanitizers' own branches; the release build judges.
  target_compile_options(mlxcel_compiler INTERFACE -Wno-maybe-uninitialized)
endif()
if(MLXCEL_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(MLXCEL_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  add_compile_definitions(BOOST_ASIO_DISABLE_FENCED_BLOCK)
elseif(MLXCEL_SANITIZE)
  message(FATAL_ERROR "MLXCEL_SANITIZE=${MLXCEL_SANITIZE}: expected address, thread or nothing")
endif()
