# What a user of the installed library gets: public headers, libkvring (and libkvring_mpi), a CMake
# package and pkg-config files. All of it can be moved to another prefix.
include(CMakePackageConfigHelpers)

set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvring)
install(DIRECTORY include/kvring DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "mpi.h" EXCLUDE)
install(TARGETS kvring EXPORT kvringTargets)
install(EXPORT kvringTargets NAMESPACE kvring:: DESTINATION ${config_dir})

# The MPI transport is a component of its own: who does not ask for it needs no MPI.
if(TARGET kvring_mpi)
  install(FILES include/kvring/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvring)
  set_target_properties(kvring_mpi PROPERTIES EXPORT_NAME mpi)
  install(TARGETS kvring_mpi EXPORT kvringMpiTargets)
  install(EXPORT kvringMpiTargets NAMESPACE kvring:: DESTINATION ${config_dir})
endif()

configure_package_config_file(cmake/kvringConfig.cmake.in kvringConfig.cmake INSTALL_DESTINATION ${config_dir})
# Until 1.0 a minor version may change the interface.
write_basic_package_version_file(kvringConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/kvringConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/kvringConfigVersion.cmake
        DESTINATION ${config_dir})

# A static libkvring is of no use without what it links, so a plain `pkg-config --libs` must name it too;
# a shared one carries its dependencies itself.
set(pc_dependencies "fmt libhwy libxxhash")
if(BUILD_SHARED_LIBS)
  set(pc_requires "Requires.private: ${pc_dependencies}")
  set(pc_libs "Libs: -L\${libdir} -lkvring\nLibs.private: -pthread")
else()
  set(pc_requires "Requires: ${pc_dependencies}")
  set(pc_libs "Libs: -L\${libdir} -lkvring -pthread")
endif()
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE pc_includedir)
set(pc_files kvring.pc)
if(TARGET kvring_mpi)
  list(APPEND pc_files kvring-mpi.pc)
endif()
foreach(file ${pc_files})
  configure_file(cmake/${file}.in ${file} @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
