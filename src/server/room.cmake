# GCC 12 sees overlapping copies in std::string's own assignment at -O3 (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set_source_files_properties(${dir}/request_parser.cpp PROPERTIES COMPILE_OPTIONS -Wno-restrict)
endif()
