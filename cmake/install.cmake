# `cmake --install` and packages: the programs, with MLX beside them. libmlx looks for its BLAS at
# ../../mlx_cpu.libs, so the wheel's layout is kept under lib/mlxcel.
include(GNUInstallDirs)
set(mlx_home ${CMAKE_INSTALL_LIBDIR}/mlxcel)
if(APPLE)
  set(rpath "@loader_path/../${mlx_home}/mlx/lib")
else()
  set(rpath "$ORIGIN/../${mlx_home}/mlx/lib")
endif()
foreach(program mlxcel mlxcel-server)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${rpath}")
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(DIRECTORY ${MLXCEL_MLX_DIR}/mlx/lib/ DESTINATION ${mlx_home}/mlx/lib FILES_MATCHING PATTERN "libmlx*" PATTERN "*.metallib")
file(GLOB libs LIST_DIRECTORIES true ${MLXCEL_MLX_DIR}/*.libs)
install(DIRECTORY ${libs} DESTINATION ${mlx_home})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Man pages and completions are printed by the program itself, from its table of flags.
if(TARGET mlxcel)
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    execute_process(COMMAND \"$<TARGET_FILE:mlxcel>\" --write-docs \"\${share}\" RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR \"mlxcel --write-docs: \${code}\")
    endif()")
endif()

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  # The prefix is known only now: packages install below /usr, whatever the build was configured for.
  install(CODE "
    set(CMAKE_INSTALL_FULL_BINDIR \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    configure_file(\"${CMAKE_CURRENT_SOURCE_DIR}/packaging/mlxcel.service.in\"
                   \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/mlxcel.service\" @ONLY)
    if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
      configure_file(\"${CMAKE_CURRENT_SOURCE_DIR}/packaging/mlxcel.default\"
                     \"\$ENV{DESTDIR}/etc/default/mlxcel\" COPYONLY)
    endif()")
endif()

# A package holds the programs; whoever packs has built them, and need not build the tests.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)
set(CPACK_PACKAGE_NAME mlxcel)
set(CPACK_PACKAGE_VENDOR "mlxcel")
set(CPACK_PACKAGE_CONTACT "The mlxcel authors <mlxcel@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs AI models on this machine")
set(CPACK_PACKAGE_DESCRIPTION "An engine for language and embedding models on MLX, with CPU kernels of its own: chat in the\n"
    "terminal, an OpenAI-compatible server, quantisation. No Python at run time.")
string(REPLACE ";" "" CPACK_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_INSTALL_PREFIX "/usr")
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${MLXCEL_MLX_DIR}/mlx/lib ${libs})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/conffiles "/etc/default/mlxcel\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
